"""What only the leader may do to Redis. Every call carries scheduler id and epoch; a deposed leader gets `Deposed`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tradewind.errors import Conflict
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg, Call
from tradewind.tasks.plane import Plane

#: How long past its end an attempt may stay with a live worker before the leader ends it.
OVERDUE_GRACE_MS = 5000
#: How long a type without a worker is remembered.
TYPE_KEEP_MS = 7 * 86_400_000
EVICT_BATCH = 500
PROMOTE_BATCH = 500
EXPIRE_BATCH = 500


class Deposed(Conflict):
    def __init__(self, scheduler_id: str, epoch: int) -> None:
        super().__init__(f"scheduler {scheduler_id!r} does not lead any more (term {epoch})", code="deposed")


class Assigned:
    """What one round did; `next_ms` is when a limit or a delay lets the next task pass, 0 when nothing waits so."""

    __slots__ = ("assigned", "is_more", "next_ms", "promoted")

    def __init__(self, assigned: int, promoted: int, is_more: bool, next_ms: int) -> None:
        self.assigned, self.promoted, self.is_more, self.next_ms = assigned, promoted, is_more, next_ms


class LeaderStore:
    def __init__(self, plane: Plane, scheduler_id: str, epoch: int) -> None:
        self.plane = plane
        self.id = scheduler_id
        self.epoch = epoch
        self._turn = 0
        keys = plane.keys
        self._fence = [keys.leader(), keys.epoch()]
        self._promote_keys = [*self._fence, keys.delayed(), keys.queue("high"), keys.queue("normal")]
        self._assign_keys = [
            *self._fence, keys.queue("high"), keys.queue("normal"), keys.workers(), keys.paused(), keys.rate_config(),
            keys.parked(),
        ]  # fmt: skip

    def _head(self) -> list[Arg]:
        return [*self.plane.head(), self.id, self.epoch]

    def _checked(self, reply: Any) -> list[Any]:
        if reply[0] == -1:
            raise Deposed(self.id, self.epoch)
        return list(reply)

    async def assign(self, limit: int, *, wait_s: float = 0, client: Any = None) -> Assigned:
        """Move due tasks to their queues and queued ones to workers; `wait_s`: wait for news first, same round trip."""
        calls: list[Call] = [
            ("task_promote", self._promote_keys, [*self._head(), PROMOTE_BATCH]),
            ("task_assign", self._assign_keys, [*self._head(), limit, self.plane.settings.high_share, self._turn]),
        ]
        first = ("BLPOP", self.plane.keys.wake(), wait_s) if wait_s else None
        promote, assign = await self.plane.scripts.run_all(calls, first=first, client=client)
        self._checked(promote)
        self._checked(assign)
        self._turn = assign[1]
        dates = [d for d in (int(promote[1]), int(assign[3])) if d]
        is_more = assign[2] == b"1" or promote[0] == PROMOTE_BATCH
        return Assigned(assign[0], promote[0], is_more, min(dates, default=0))

    async def now_ms(self) -> int:
        """The clock that leases are measured by."""
        fixed = self.plane.clock.now_arg()
        if fixed:
            return int(fixed)
        with translated():
            seconds, micros = await self.plane.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    async def expired_workers(self) -> list[str]:
        """Workers whose lease has ended, and ones registered by hand whose record is gone."""
        keys, client = self.plane.keys, self.plane.redis
        now = await self.now_ms()
        with translated():
            leases = await client.zrange(keys.workers(), 0, -1, withscores=True)
            types = _ids(await client.smembers(keys.worker_types()))
            members = await client.sunion([keys.worker_type(t) for t in types]) if types else set()
            gone = _ids(w for w, until in leases if until <= now)
            for worker in _ids(members - {w for w, _ in leases}):
                if not await client.exists(keys.worker(worker)):
                    gone.append(worker)
        return gone

    async def live_workers(self) -> list[str]:
        with translated():
            found = _ids(await self.plane.redis.zrange(self.plane.keys.workers(), 0, -1))
        return found

    async def evict(self, worker_id: str) -> int:
        """Take everything back from a lost worker and forget it; how many tasks. 0 when it came back to life."""
        keys = self.plane.keys
        names = [*self._fence, keys.workers(), keys.worker(worker_id), keys.worker_types()]
        args = [*self._head(), worker_id, EVICT_BATCH, self.plane.settings.max_stalls]
        total: int = 0
        while True:
            reply = self._checked(await self.plane.scripts.run("worker_evict", names, args))
            if reply[0] == -2:
                return total
            total += reply[0]
            if reply[1] == b"1":
                return total

    async def reap(self, worker_id: str) -> int:
        """End attempts of a live worker that ran past their time."""
        keys = self.plane.keys
        names = [*self._fence, keys.worker_inflight(worker_id), keys.delayed()]
        timeout_ms = int(self.plane.settings.default_timeout_s * 1000)
        args = [*self._head(), worker_id, OVERDUE_GRACE_MS, EVICT_BATCH, timeout_ms]
        ended: int = self._checked(await self.plane.scripts.run("task_reap", names, args))[0]
        return ended

    async def expire(self) -> int:
        """End tasks that have not started by their deadline, whether or not a worker could take them."""
        keys = self.plane.keys
        names, args = [*self._fence, keys.deadlines(), keys.delayed()], [*self._head(), EXPIRE_BATCH]
        total: int = 0
        while True:
            looked_at, ended = self._checked(await self.plane.scripts.run("task_expire", names, args))
            total += ended
            if looked_at < EXPIRE_BATCH:
                return total

    async def write_metrics(self) -> None:
        """The seed's `metrics:queue:length` and `metrics:worker:count`."""
        keys = self.plane.keys
        reply = await self.plane.scripts.run(
            "metrics_write",
            [*self._fence, keys.metric_queue_length(), keys.metric_worker_count(), keys.queue("high"),
             keys.queue("normal"), keys.delayed(), keys.dead(), keys.workers(), keys.parked()],
            self._head(),
        )  # fmt: skip
        self._checked(reply)

    async def sweep(self) -> None:
        """Hourly: bound the dead letters, forget types whose last worker left 7 days ago."""
        keys = self.plane.keys
        await self.plane.scripts.run(
            "task_sweep",
            [*self._fence, keys.dead(), keys.types(), keys.worker_types()],
            [*self._head(), self.plane.settings.dead_keep, TYPE_KEEP_MS],
        )


def _ids(members: Iterable[bytes]) -> list[str]:
    """Those that are text: what others have put in is left to the sweep."""
    found = [member.decode(errors="replace") for member in members]
    return [name for name in found if "\ufffd" not in name]
