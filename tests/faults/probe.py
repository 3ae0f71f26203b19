"""What a fault test asks of a station from outside: submit, wait for the end, look into Redis and SQL."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import tradewind
from tests.faults.station_process import Site
from tradewind.errors import Unavailable
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.tasks.client import Client
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import TERMINAL, Task
from tradewind.tasks.store import TaskStore


class Probe:
    """`client` is the public client; `plane` reaches the same Redis for looking."""

    def __init__(self, site: Site, client: Client, plane: Plane) -> None:
        self.site = site
        self.client = client
        self.plane = plane
        self.store = TaskStore(plane)
        self._made = 0

    async def submit(self, kind: str, calls: Sequence[Sequence[object]]) -> list[str]:
        """Submit and, when Redis is away, submit the same ids again until it is accepted."""
        ids = [f"{kind}-{self._made + n:06}" for n in range(len(calls))]
        self._made += len(calls)
        batch = [(kind, args, {"task_id": task_id}) for args, task_id in zip(calls, ids, strict=True)]
        while True:
            try:
                await self.client.submit_many(batch)
                return ids
            except Unavailable:
                await asyncio.sleep(0.2)

    async def ended(self) -> Counter[str]:
        """How many tasks ever reached each terminal state: counted by the scripts, so a second end would show."""
        names = sorted(str(status).lower() for status in TERMINAL)
        values = await self.plane.redis.mget([self.plane.keys.metric_task_count(name) for name in names])
        return Counter({name: int(value) for name, value in zip(names, values, strict=True) if value and int(value)})

    async def wait_ended(self, many: int, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while (counts := await self.ended()).total() < many:
            if time.monotonic() > end:
                raise TimeoutError(f"only {counts} of {many} ended within {timeout_s} s\n{self.site.logs()}")
            await asyncio.sleep(0.05)

    async def wait_until(self, is_true: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Like `wait_for`, but lets this loop go on."""
        end = time.monotonic() + timeout_s
        while not is_true():
            if time.monotonic() > end:
                raise TimeoutError(f"{what} did not happen within {timeout_s} s\n{self.site.logs()}")
            await asyncio.sleep(0.02)

    async def read(self, ids: Sequence[str]) -> list[Task]:
        found = await self.store.read_live(ids)
        gone = [task_id for task_id, task in zip(ids, found, strict=True) if task is None]
        assert not gone, f"{len(gone)} tasks are lost, first {gone[:5]}"
        return [task for task in found if task is not None]

    async def assert_succeeded(self, ids: Sequence[str]) -> list[Task]:
        """Every task ended once, SUCCESS, with one outcome; nothing else ended in this Redis. Returns the tasks."""
        tasks = await self.read(ids)
        assert Counter(str(task.status) for task in tasks) == {"SUCCESS": len(ids)}
        assert await self.ended() == {"success": len(ids)}
        for start in range(0, len(ids), 1000):
            bodies = await self.plane.redis.mget([self.plane.keys.body(i) for i in ids[start : start + 1000]])
            assert all(body.count(b"\n") == 1 for body in bodies), "a task has more than one outcome"
        return tasks

    async def leader(self) -> str:
        return ((await self.plane.redis.get(self.plane.keys.leader())) or b"").decode()

    async def epoch(self) -> int:
        return int(await self.plane.redis.get(self.plane.keys.epoch()) or 0)

    async def archived(self, many: int, timeout_s: float) -> list[tuple[str, str]]:
        """The rows (id, status) of the archive, once it has that many and the outbox is empty."""
        end = time.monotonic() + timeout_s
        while True:
            with contextlib.closing(sqlite3.connect(next(self.site.data_dir.glob("*.db")))) as sql:
                rows = sql.execute("SELECT id, status FROM tasks").fetchall()
            left = await self.plane.redis.xlen(self.plane.keys.outbox())
            if len(rows) >= many and not left:
                return rows
            if time.monotonic() > end:
                raise TimeoutError(f"{len(rows)} of {many} rows, {left} entries in the outbox\n{self.site.logs()}")
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def probe(site: Site, redis_url: str = "") -> AsyncIterator[Probe]:
    """Connect to the site's Redis, or to `redis_url` when the site reaches it by another way."""
    url = redis_url or site.redis_url
    link = await open_link(RedisSettings(url=url))
    try:
        async with tradewind.connect(url) as client:
            yield Probe(site, client, Plane(link, Settings(redis=RedisSettings(url=url))))
    finally:
        await link.close()
