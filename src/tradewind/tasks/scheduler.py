"""The scheduler: leads or waits; while it leads it assigns, promotes, reaps, fires periodic tasks and archives.

All of it lives in one task group per term; the end of the term ends the group. Nothing is kept in memory that the
next leader would miss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog
from redis.exceptions import RedisError, ResponseError

from tradewind.errors import TradewindError, Unavailable, error_text
from tradewind.fence import Fence
from tradewind.ids import short_random
from tradewind.redis.faults import WrongType
from tradewind.redis.index_sweep import SWEEP_S, sweep_for_ever
from tradewind.tasks.archive import Archiver
from tradewind.tasks.http_worker import HttpDispatch, Wording
from tradewind.tasks.leader import Leadership, either
from tradewind.tasks.leader_store import Deposed, LeaderStore
from tradewind.tasks.periodic import Periodic
from tradewind.tasks.plane import Plane
from tradewind.tasks.store import TaskStore
from tradewind.tasks.sweep import TaskSweep

log = structlog.get_logger(__name__)
#: Longest wait for news; a delayed task or a rate limit shortens it.
IDLE_S = 5.0
TICK_S = 1.0


#: What another room does in the leader: given the term, it returns its jobs by name.
Room = Callable[[LeaderStore], Mapping[str, Callable[[], Coroutine[Any, Any, None]]]]


class Scheduler:
    """`rooms`: what other rooms do in the leader; `wordings`: hook → how their tasks are told to HTTP workers."""

    def __init__(
        self,
        plane: Plane,
        store: TaskStore,
        scheduler_id: str = "",
        rooms: Sequence[Room] = (),
        wordings: Mapping[str, Wording] | None = None,
    ) -> None:
        self.plane = plane
        self.store = store
        self._rooms = tuple(rooms)
        self._wordings = dict(wordings or {})
        self.id = scheduler_id or f"scheduler-{short_random()}"
        self.leadership: Leadership | None = None

    @property
    def leads(self) -> bool:
        return self.leadership is not None and self.leadership.epoch > 0

    async def run(self, stop: asyncio.Event) -> None:
        """Stand for election until `stop` is set; gives the lead up on the way out."""
        keys = self.plane.keys
        lead = self.leadership = Leadership(self.plane, self.id, keys.leader(), keys.epoch())
        await lead.serve(stop, lambda epoch: self._term(lead, epoch, stop), self._trouble)

    def _trouble(self, error: Unavailable) -> None:
        log.warning("the scheduler waits for a server", job="", error=error.message)

    async def _term(self, lead: Leadership, epoch: int, stop: asyncio.Event) -> None:
        """One term, until it is lost or `stop` is set."""
        store = LeaderStore(self.plane, self.id, epoch)
        jobs: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
            ("assign", lambda: self._assign(store)),
            ("tick", lambda: self._tick(store)),
            ("sweep", lambda: self._sweep(store)),
            ("index sweep", lambda: sweep_for_ever([TaskSweep(self.plane)], "tasks", SWEEP_S)),
            ("periodic", Periodic(self.plane, self.store).run),
            ("http workers", HttpDispatch(self.plane, self._wordings).run),
        ]
        if self.store.archive is not None and self.plane.settings.archive:
            jobs.append(("archive", Archiver(self.plane, self.store.archive).run))
        for room in self._rooms:
            jobs += room(store).items()
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(_restarted(name, job, lead, epoch), name=f"{self.id} {name}") for name, job in jobs
            ]
            while lead.epoch == epoch and not stop.is_set():
                await either(stop, lead.changed)
                lead.changed.clear()
            for task in running:
                task.cancel()

    async def _assign(self, store: LeaderStore) -> None:
        """Assign until there is nothing to do, then wait for news on the server."""
        limit = self.plane.all_settings.scheduler.assign_batch
        client = self.plane.link.new_client(IDLE_S)
        wait_s = 0.0
        try:
            while True:
                done = await store.assign(limit, wait_s=wait_s, client=client)
                if done.is_more:
                    wait_s = 0.0
                elif done.next_ms:
                    wait_s = min(IDLE_S, max(0.005, (done.next_ms - await store.now_ms()) / 1000))
                else:
                    wait_s = IDLE_S
        finally:
            await client.aclose()

    async def _tick(self, store: LeaderStore) -> None:
        """Every second: lost workers, overdue attempts, deadlines that have passed, the seed's figures."""
        fence = Fence(job="tick")
        while True:
            for worker in await store.expired_workers():
                if (back := await _of_one(fence, store.evict(worker))) is not None:
                    log.warning("worker lost; its tasks went back", worker=worker, tasks=back)
            for worker in await store.live_workers():
                ended = await _of_one(fence, store.reap(worker))
                if ended:
                    log.warning("attempts ended that ran past their time", worker=worker, tasks=ended)
            await store.expire()
            await store.write_metrics()
            await asyncio.sleep(TICK_S)

    async def _sweep(self, store: LeaderStore) -> None:
        while True:
            await store.sweep()
            await asyncio.sleep(SWEEP_S)


async def _of_one(fence: Fence, work: Awaitable[int]) -> int | None:
    """None: a key of that worker is spoilt; it must not hold up what is done for all others."""
    try:
        return await work
    except (WrongType, ResponseError) as error:
        fence.met(error)
        return None


async def _restarted(name: str, job: Callable[[], Coroutine[Any, Any, None]], lead: Leadership, epoch: int) -> None:
    """Run a job for as long as we lead; whatever it meets is logged, told to health, and tried again."""
    fence = Fence(job=name)
    while True:
        try:
            # Sweeps sleep for an hour by themselves.
            await (lead.progress.watch(name, job()) if not name.endswith("sweep") else job())
        except Deposed:
            lead.step_down(epoch)
            return
        except Unavailable as error:
            log.warning("the scheduler waits for a server", job=name, error=error.message)
            lead.progress.met(name, error.message)
            await asyncio.sleep(0.5)
        except TradewindError as error:
            log.error("the scheduler met an error and goes on", job=name, error=error.message, code=error.code)
            lead.progress.met(name, error.message)
            await asyncio.sleep(1)
        except RedisError as error:  # a script met something in Redis that it cannot digest
            log.error("the scheduler met an error and goes on", job=name, error=error_text(error), code="redis_error")
            lead.progress.met(name, str(error))
            await asyncio.sleep(1)
        except Exception as error:  # noqa: BLE001 - it would end this process, and then each next leader's
            lead.progress.met(name, fence.met(error))
            await asyncio.sleep(1)
