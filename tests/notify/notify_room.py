"""The notify part of a station on any Redis, with a key prefix of its own: outbox, store, keepers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.nodes.web import Web
from tradewind.clock import Clock, FakeClock
from tradewind.notify.keeper import NotifyKeeper
from tradewind.notify.plane import NotifyPlane
from tradewind.notify.store import NotifyStore
from tradewind.redis.connection import Link
from tradewind.settings import Settings

#: Short leases, so that a takeover is seen soon.
LEASES = {"leader_ttl_s": 1.5, "renew_s": 0.4}
AT_HOME = {"allow_private": True, "group_wait_s": 0, "timeout_s": 5}
TICK_S = 0.02


def settings_of(prefix: str, **notify: Any) -> Settings:
    return Settings.model_validate({"key_prefix": prefix, "scheduler": LEASES, "notify": AT_HOME | notify})


class NotifyRoom:
    def __init__(self, link: Link, prefix: str, clock: Clock | None = None, **notify: Any) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.link = link
        self.plane = NotifyPlane(link, settings_of(prefix, **notify), self.clock)
        self.keys = self.plane.keys
        self.store = NotifyStore(self.plane)
        self.redis: Any = link.client
        self._versions: dict[str, int] = {}

    def advance(self, seconds: float) -> None:
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(seconds)

    @asynccontextmanager
    async def keeper(self, keeper_id: str = "") -> AsyncIterator[NotifyKeeper]:
        """A keeper of its own that leads already."""
        keeper = NotifyKeeper(self.plane, keeper_id=keeper_id, tick_s=TICK_S)
        stop = asyncio.Event()
        task = asyncio.create_task(keeper.run(stop), name="keeper")
        try:
            await until(lambda: keeper.is_leading)
            yield keeper
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)

    async def event(self, event: str, alarm_id: str = "alarm_1", **fields: Any) -> None:
        """What the alarm scripts write, and the record as it is then."""
        version = self._versions[alarm_id] = self._versions.get(alarm_id, 0) + 1
        status = {"raised": "New", "cleared": "Resolved", "acknowledged": "Acknowledged", "escalated": "Escalated"}
        entry = {
            "kind": "alarm",
            "event": event,
            "alarm_id": alarm_id,
            "rule_id": "r1",
            "source": "comsrv:1001:m:1",
            "level": "High",
            "category": "power",
            "status": status.get(event, "New"),
            "title": f"Title of {alarm_id}",
            "text": "too hot",
            "targets": "",
            "flood": 0,
            "at": self.clock.now_ms(),
            "key": f"{alarm_id}:{version}",
        } | fields
        if isinstance(entry["targets"], list):
            entry["targets"] = json.dumps(entry["targets"])
        record = {name: entry[name] for name in ("level", "status", "title", "rule_id", "category")}
        record["source_point"] = entry["source"]
        if event == "acknowledged":
            record["acknowledged_at"] = "2024-01-01T10:00:00Z"
        pipe = self.redis.pipeline(transaction=True)
        pipe.hset(self.keys.alarm(alarm_id), mapping=record)
        pipe.xadd(self.keys.notify_outbox(), entry)
        await pipe.execute()

    async def planned(self) -> None:
        """Everything that was told has left the outbox."""

        async def is_empty() -> bool:
            return not await self.redis.xlen(self.keys.notify_outbox())

        await until(is_empty)

    async def quiet(self) -> None:
        """Everything is planned, and no delivery is left."""
        await self.planned()

        async def is_empty() -> bool:
            return not await self.redis.hlen(self.keys.notify_jobs())

        await until(is_empty)

    async def faults(self) -> list[tuple[str, str, str]]:
        found = await self.redis.xrange(self.keys.faults())
        return [(f[b"code"].decode(), f[b"source"].decode(), f[b"state"].decode()) for _, f in found]


def documents(web: Web, path: str) -> list[dict[str, Any]]:
    return [json.loads(body) for _, asked, _, body in web.asked if asked == path]


def events(web: Web, path: str) -> list[str]:
    """`event alarm_id` of every message that arrived there, in order."""
    found = [message for document in documents(web, path) for message in document["messages"]]
    return [f"{message['event']} {message.get('alarm_id', '')}".strip() for message in found]


async def until(condition: Callable[[], bool | Awaitable[bool]], timeout_s: float = 15.0) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)
