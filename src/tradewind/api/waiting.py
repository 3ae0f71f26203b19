"""Long polls: one subscription per process tells who waits for the end of a task; open only while somebody waits."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from redis.exceptions import RedisError

from tradewind.errors import Overloaded
from tradewind.ids import short_random
from tradewind.tasks.store import TaskStore

MAX_WAITING = 1000
#: Pub/sub may lose a message, so a waiter also looks by itself.
LOOK_S = 1.0
RECONNECT_S = 0.5


class Endings:
    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._client_id = f"api-{short_random()}"
        self._events: dict[str, set[asyncio.Event]] = {}
        self._count = 0
        self._listening = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._is_closed = False

    async def wait(self, task_id: str, seconds: float) -> None:
        """Return when the task has ended, the time is over or the server stops. Raises TaskNotFound, Overloaded."""
        if self._count >= MAX_WAITING:
            raise Overloaded(
                f"{MAX_WAITING} requests wait for tasks already", code="too_many_waiting", hint="ask again without wait"
            )
        event = asyncio.Event()
        self._count += 1
        self._events.setdefault(task_id, set()).add(event)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._until_ended(task_id, event)
        finally:
            self._count -= 1
            self._events[task_id].discard(event)
            if not self._events[task_id]:
                del self._events[task_id]
            if not self._events:
                self._stop_listening()

    def close(self) -> None:
        """Let everybody go; later waits return at once."""
        self._is_closed = True
        for events in self._events.values():
            for event in events:
                event.set()
        self._stop_listening()

    async def _until_ended(self, task_id: str, event: asyncio.Event) -> None:
        # First a look: most tasks that are asked for have ended.
        while not self._is_closed and (await self._store.wait(self._client_id, [task_id]))[0] is None:
            if self._listener is None:
                self._listener = asyncio.create_task(self._listen(), name="api-endings")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    if not self._listening.is_set():
                        await self._listening.wait()
                        continue  # it may have ended before we listened
                    await event.wait()
            if not self._is_closed:
                event.clear()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
            self._listening = asyncio.Event()

    async def _listen(self) -> None:
        plane = self._store.plane
        while True:
            async with plane.link.new_client() as client, aclosing(client.pubsub()) as messages:
                with suppress(RedisError):
                    await messages.subscribe(plane.keys.reply(self._client_id))
                    async for message in messages.listen():
                        self._listening.set()  # the first message says that we are subscribed
                        if message["type"] == "message":
                            for event in self._events.get(message["data"].decode(), ()):
                                event.set()
            self._listening.clear()
            await asyncio.sleep(RECONNECT_S)
