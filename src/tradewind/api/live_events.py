"""What live streams of events share: a bounded queue per watcher, and a listener on a channel of Redis."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from redis.exceptions import RedisError

from tradewind.redis.connection import Link

#: Events that wait for one watcher; then the oldest are dropped, and it is told how many.
MAX_BEHIND = 1000
RECONNECT_S = 0.5
#: Messages that are told together.
TOGETHER = 200


class EventQueue:
    """Events of one watcher: (name, data). One named `lost` says how many are missing before the next; its `count` is
    null when nobody knows, as after Redis was away."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._lost: int | None = 0
        self._news = asyncio.Event()
        self._is_closed = False

    def put(self, name: str, data: dict[str, Any]) -> None:
        if len(self._waiting) >= MAX_BEHIND:
            self._waiting.popleft()
            if self._lost is not None:
                self._lost += 1
        self._waiting.append((name, data))
        self._news.set()

    def miss(self) -> None:
        """What happened since the last event is not known."""
        self._lost = None
        self._news.set()

    def close(self) -> None:
        self._is_closed = True
        self._news.set()

    async def next(self) -> tuple[str, dict[str, Any]] | None:
        """None when the server stops."""
        while not self._waiting and self._lost == 0 and not self._is_closed:
            self._news.clear()
            await self._news.wait()
        if self._is_closed:
            return None
        if self._lost != 0:
            lost, self._lost = self._lost, 0
            return "lost", {"count": lost}
        return self._waiting.popleft()


async def listen(
    link: Link,
    channel: str,
    is_open: asyncio.Event,
    tell: Callable[[list[bytes]], Awaitable[None]],
    miss: Callable[[], None],
) -> None:
    """Forever. While `is_open` is set nothing is missed; messages that come in a flood are told in pieces. `miss` is
    called when it listens again after a time in which it did not."""
    was_open = False
    while True:
        async with link.new_client() as client, aclosing(client.pubsub()) as messages:
            with suppress(RedisError):
                await messages.subscribe(channel)
                async for message in messages.listen():
                    if was_open and not is_open.is_set():
                        miss()
                    was_open = True
                    is_open.set()  # the first message says that we are subscribed
                    if message["type"] == "message":
                        await tell([message["data"], *await _more(messages)])
        is_open.clear()
        await asyncio.sleep(RECONNECT_S)


async def _more(messages: Any) -> list[bytes]:
    """What has come already."""
    found: list[bytes] = []
    while len(found) < TOGETHER:
        message = await messages.get_message(ignore_subscribe_messages=True, timeout=0)
        if message is None:
            break
        found.append(message["data"])
    return found
