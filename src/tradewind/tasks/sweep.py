"""Index repair of the task room: queues, delays, deadlines, what workers hold and offer, schedules, the way to SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord
from tradewind.redis.index_sweep import BATCH, Entry, IndexFault, IndexSweep, Mode, index, kept, records
from tradewind.redis.scripts import Arg
from tradewind.tasks.periodic import read_schedule
from tradewind.tasks.plane import Plane

_PAGE = 5000


class TaskSweep(IndexSweep):
    script = "task_repair"
    families = (
        records(r"task:(?!(?:token|types|outbox|marked|deadlines)$)([A-Za-z0-9_-]+)"),
        records(r"worker:(?!types$)([^:]+)"),
        index(r"queue:(high|normal)|queue:parked:.+|worker:[^:]+:queue", "list"),
        index(r"queue:parked|task:marked|worker:types|worker:type:[^:]+", "set"),
        index(r"queue:delayed|task:deadlines|workers|worker:[^:]+:inflight|schedule:due", "zset"),
        index(r"task:outbox", "stream"),
        index(r"task:outbox:count", "string"),
        kept(r"queue:paused", "set"),
        kept(r"queue:dead", "zset"),
        kept(r"schedule:config", "hash"),
        kept(r"ratelimit:config", "hash", has_values=True),
    )

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane.link, plane.keys, plane.scripts, plane.keys.queue("normal"))
        self._plane = plane
        self._ttl_ms = int(plane.all_settings.scheduler.heartbeat_ttl_s * 1000)

    def head(self) -> list[Arg]:
        return [*self._plane.head(), self._ttl_ms]

    async def answer(self, mode: Mode, asked: Sequence[tuple[str, str]]) -> list[IndexFault]:
        """Queues and the outbox may be long: they are read here, once, and only what stands in none goes back to the
        script, which looks at the ends of the lists again."""
        again = await self._by_age(await self._lost_of("queued", asked, self._queued_ids))
        again += await self._lost_of("ended", asked, self._outbox_ids)
        again += await self._schedules([name for what, name in asked if what == "schedule"])
        faults: list[IndexFault] = []
        for start in range(0, len(again), BATCH):
            faults += await self.decide(mode, again[start : start + BATCH], [])
        return faults

    async def _lost_of(self, what: str, asked: Sequence[tuple[str, str]], read: Any) -> list[Entry]:
        ids = dict.fromkeys(name for kind, name in asked if kind == what)
        if not ids:
            return []
        known = await read()
        return [(f"<{what}>", name.encode(), b"") for name in ids if hash(name.encode()) not in known]

    async def _by_age(self, lost: list[Entry]) -> list[Entry]:
        """The youngest first: each goes to the head of its queue, so the oldest is the next."""
        with translated(self.link):
            pipe = self._redis.pipeline(transaction=False)
            for _, name, _ in lost:
                pipe.hget(self.keys.task(name.decode()), "at")
            found = await pipe.execute() if lost else []
        ages = {entry: int(at) if at and at.isdigit() else 0 for entry, at in zip(lost, found, strict=True)}
        return sorted(lost, key=lambda entry: ages[entry], reverse=True)

    async def _queued_ids(self) -> set[int]:
        """Hashes of all ids in queues and parking lists: the ids themselves would take several times as much."""
        keys, client = self.keys, self._redis
        with translated(self.link):
            places = await client.smembers(keys.parked())
        names = [
            keys.queue("high"),
            keys.queue("normal"),
            *(f"{keys.p}queue:parked:{p.decode(errors='replace')}" for p in places),
        ]
        found: set[int] = set()
        for name in names:
            start = 0
            while True:
                with translated(self.link):
                    page = await client.lrange(name, start, start + _PAGE - 1)
                found.update(map(hash, page))
                if len(page) < _PAGE:
                    break
                start += _PAGE
        return found

    async def _outbox_ids(self) -> set[int]:
        found: set[int] = set()
        after = "-"
        while True:
            with translated(self.link):
                page = await self._redis.xrange(self.keys.outbox(), min=after, count=_PAGE)
            for _, fields in page:
                found.update(map(hash, fields.get(b"ids", b"").split()))
            if len(page) < _PAGE:
                return found
            after = f"({page[-1][0].decode()}"

    async def _schedules(self, names: Iterable[str]) -> list[Entry]:
        again: list[Entry] = []
        for name in names:
            with translated(self.link):
                text = await self._redis.hget(self.keys.schedules(), name)
            try:
                slot = read_schedule(name.encode(), text or b"").next_after(self._plane.clock.now_ms())
            except SpoiltRecord:  # doctor names it among the records
                continue
            again.append(("<schedule>", name.encode(), b"%d %s" % (slot, text)))
        return again
