"""The keeper's hands in Redis during one term: what it reads, and the scripts that refuse it once another one leads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import redis.asyncio

from tradewind.notify.job import Job, read_job
from tradewind.notify.message import Message, level_of, read_entry
from tradewind.notify.plan import AlarmFacts, Book, Planner, Told
from tradewind.notify.plane import NotifyPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType
from tradewind.redis.fences import sorted_out
from tradewind.redis.scripts import Arg
from tradewind.redis.text import text_of

LOG_KEPT = 10_000
FAILED_KEPT = 10_000
_FACTS = ("status", "acknowledged_at", "level", "title", "source_point", "rule_id", "category")


class Deposed(Exception):
    """Another process is the keeper now."""


class Desk:
    def __init__(self, plane: NotifyPlane, keeper_id: str, epoch: int) -> None:
        self._plane = plane
        self._keys = plane.keys
        self._head: list[Arg] = [keeper_id, epoch]

    async def book(self) -> Book:
        """Everything that the keeper before has left."""
        keys = self._keys
        with translated(self._plane.link):
            pipe = self._plane.redis.pipeline(transaction=True)
            pipe.hvals(keys.notify_jobs())
            pipe.hgetall(keys.notify_targets())
            jobs, targets = await pipe.execute()
        book = Book(failed=await self.failed())
        for data in jobs:
            if (job := read_job(data)) is not None:
                book.jobs[job.id] = job
        for field, value in targets.items():
            name, _, word = text_of(field).rpartition(":")
            if word == "last":
                book.last[name] = int(value) if value.isdigit() else 0
            else:
                book.failing.add(name)
        return book

    async def failed(self) -> set[str]:
        """Ids of deliveries that were given up, as far as they are kept."""
        with translated(self._plane.link):
            return set(map(text_of, await self._plane.redis.zrange(self._keys.notify_failed(), 0, -1)))

    async def messages(
        self, client: redis.asyncio.Redis, count: int, wait_ms: int
    ) -> tuple[list[bytes], list[Message]]:
        """The oldest messages and their ids; waits so long when there is none. What is planned leaves the stream."""
        with translated(self._plane.link):
            found: Any = await client.xread({self._keys.notify_outbox(): "0-0"}, count=count, block=max(1, wait_ms))
        entries = found[0][1] if found else []
        return [id for id, _ in entries], [read_entry(fields, int(id.partition(b"-")[0])) for id, fields in entries]

    async def due_alarms(self, now_ms: int, count: int) -> list[str]:
        with translated(self._plane.link):
            found = await self._plane.redis.zrange(
                self._keys.notify_timers(), "-inf", now_ms, byscore=True, offset=0, num=count
            )
            odd = [id for id in found if text_of(id).encode() != id]
            if odd:  # of another program: no alarm has such an id, and it would be due for ever
                await self._plane.redis.zrem(self._keys.notify_timers(), *odd)
        return [text_of(id) for id in found if id not in odd]

    async def told(self, alarm_ids: Collection[str]) -> dict[str, Told]:
        ids = list(dict.fromkeys(alarm_ids))
        if not ids:
            return {}
        with translated(self._plane.link):
            found = await self._plane.redis.hmget(self._keys.notify_told(), ids)
        read = {id: _told(data) for id, data in zip(ids, found, strict=True) if data}
        return {id: told for id, told in read.items() if told is not None}

    async def facts(self, alarm_ids: Collection[str]) -> dict[str, AlarmFacts]:
        """What the records of the alarms say; an alarm that is gone is left out, and one that is no record."""
        ids = list(dict.fromkeys(alarm_ids))
        if not ids:
            return {}
        with translated(self._plane.link):
            pipe = self._plane.redis.pipeline(transaction=False)
            for id in ids:
                pipe.hmget(self._keys.alarm(id), _FACTS)
            asked = [("HMGET", self._keys.alarm(id)) for id in ids]
            rows = sorted_out(asked, await pipe.execute(raise_on_error=False))
        found = {}
        for id, row in zip(ids, rows, strict=True):
            if isinstance(row, WrongType):
                continue
            status, acknowledged, level, title, *rest = map(text_of, row)
            if status:
                found[id] = AlarmFacts(status, bool(acknowledged), level_of(level) or "Info", title, *rest)
        return found

    async def store(self, ids: Sequence[bytes], plan: Planner) -> None:
        """Raises Deposed."""
        await self._store(ids, plan.jobs, plan.told, plan.timers)

    async def keep(self, job: Job) -> None:
        """Store a delivery as it is now. Raises Deposed."""
        await self._store((), {job.id: job}, {}, {})

    async def done(self, job: Job, status: str, now_ms: int) -> None:
        """Raises Deposed."""
        keys = self._keys
        names = [keys.notify_jobs(), keys.notify_due(), keys.notify_log(), keys.notify_failed(), keys.notify_targets()]
        args: list[Arg] = [*self._head, job.id, job.target, status, job.count, job.attempts, job.error, now_ms]
        args += [LOG_KEPT, FAILED_KEPT]
        if not await self._plane.scripts.run("notify_done", [*self._lead(), *names], args):
            raise Deposed

    async def fails(self, target: str) -> None:
        """Note that it was reported, for whoever keeps it next. Raises Deposed."""
        names = [*self._lead(), self._keys.notify_targets()]
        if not await self._plane.scripts.run("notify_fails", names, [*self._head, target]):
            raise Deposed

    async def sweep(self, known: Collection[str]) -> int:
        """How many alarms were forgotten, because their records are gone. `known`: targets. Raises Deposed."""
        keys, cursor, gone = self._keys, 0, 0
        with translated(self._plane.link):
            fields = list(map(text_of, await self._plane.redis.hkeys(keys.notify_targets())))
        unknown = [field for field in fields if field.rpartition(":")[0] not in known]
        while True:
            with translated(self._plane.link):
                cursor, part = await self._plane.redis.hscan(keys.notify_told(), cursor, count=500)
            ids = list(map(text_of, part))
            names = [keys.notify_told(), keys.notify_timers(), keys.notify_targets(), *map(keys.alarm, ids)]
            args: list[Arg] = [*self._head, len(ids), *ids, *unknown]
            found = int(await self._plane.scripts.run("notify_sweep", [*self._lead(), *names], args))
            if found < 0:
                raise Deposed
            gone, unknown = gone + found, []
            if not cursor:
                return gone

    async def _store(
        self,
        ids: Sequence[bytes],
        jobs: Mapping[str, Job],
        told: Mapping[str, Told | None],
        timers: Mapping[str, int | None],
    ) -> None:
        keys = self._keys
        names = [keys.notify_outbox(), keys.notify_jobs(), keys.notify_due(), keys.notify_told(), keys.notify_timers()]
        args: list[Arg] = [*self._head, len(ids), len(jobs), len(told), len(timers), *ids]
        for job in jobs.values():
            args += (job.id, msgspec.json.encode(job), job.due_ms)
        for alarm_id, record in told.items():
            args += (alarm_id, b"" if record is None else msgspec.json.encode(record))
        for alarm_id, due_ms in timers.items():
            args += (alarm_id, "" if due_ms is None else due_ms)
        if not await self._plane.scripts.run("notify_plan", [*self._lead(), *names], args):
            raise Deposed

    def _lead(self) -> list[str]:
        return [self._keys.notify_leader(), self._keys.notify_epoch()]


def _told(data: bytes) -> Told | None:
    try:
        return msgspec.json.decode(data, type=Told)
    except (msgspec.DecodeError, UnicodeError):  # of another program: as if nobody had been told
        return None
