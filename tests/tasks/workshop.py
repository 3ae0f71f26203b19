"""A scheduler, workers and a client in this process on a real Redis: the whole way of a task, with short leases."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tests.tasks import worker_tasks
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.tasks.client import Client, use
from tradewind.tasks.cpu_pool import CpuExecutor
from tradewind.tasks.executor import Executor, LocalExecutor
from tradewind.tasks.function import registry
from tradewind.tasks.gate import RedisGate
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import Task
from tradewind.tasks.scheduler import Scheduler
from tradewind.tasks.store import TaskStore
from tradewind.tasks.worker import Finisher, Worker

WAIT_S = 15.0
#: Long enough for a busy machine, short enough for a test that waits for a lease to end.
SCHEDULER = {"leader_ttl_s": 4, "renew_s": 0.3, "lease_s": 4}


async def eventually(is_true: Callable[[], Awaitable[Any] | Any], what: str = "it", timeout_s: float = WAIT_S) -> Any:
    """Wait until the condition holds; what it returned. Raises TimeoutError."""
    end = asyncio.get_running_loop().time() + timeout_s
    while True:
        answer = is_true()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        if asyncio.get_running_loop().time() > end:
            raise TimeoutError(f"{what} did not happen within {timeout_s:g} s")
        await asyncio.sleep(0.01)


class Workshop:
    def __init__(self, plane: Plane) -> None:
        self.plane, self.keys, self.redis = plane, plane.keys, plane.redis
        self.store = TaskStore(plane)
        self.client = Client(RedisGate(plane.all_settings, plane))
        self.schedulers: list[Scheduler] = []
        self._stops: dict[object, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    async def open(self) -> None:
        await self.client._gate.open()

    def start_scheduler(self, name: str = "s1") -> Scheduler:
        scheduler = Scheduler(self.plane, self.store, name)
        self.schedulers.append(scheduler)
        self._start(scheduler, scheduler.run)
        return scheduler

    def new_worker(
        self,
        worker_id: str = "w1",
        types: Iterable[str] = worker_tasks.TYPES,
        *,
        capacity: int = 20,
        labels: Sequence[str] = (),
        executor: Executor | None = None,
        rooms: Mapping[str, Finisher] | None = None,
    ) -> Worker:
        offered = {name: msgspec.json.encode(worker_tasks.signature(name)) for name in types}
        fields = {"id": worker_id, "labels": ",".join(labels)}
        executor = executor or LocalExecutor(registry, capacity)
        return Worker(self.plane, worker_id, executor, capacity=capacity, fields=fields, types=offered, rooms=rooms)

    async def start_worker(
        self, worker_id: str = "w1", types: Iterable[str] = worker_tasks.TYPES, **how: Any
    ) -> Worker:
        worker = self.new_worker(worker_id, types, **how)
        self._start(worker, worker.run)
        await eventually(lambda: worker.is_registered, "registration")
        return worker

    async def start_cpu_worker(self, worker_id: str = "c1", processes: int = 2) -> Worker:
        executor = CpuExecutor(["tests.tasks.worker_tasks"], processes)
        return await self.start_worker(worker_id, worker_tasks.CPU_TYPES, capacity=processes, executor=executor)

    def _start(self, part: object, run: Callable[[asyncio.Event], Any]) -> None:
        stop, context = asyncio.Event(), contextvars.copy_context()
        context.run(use, self.client)  # as a station does: `function.submit` inside tasks goes through it
        self._stops[part] = stop, asyncio.create_task(run(stop), context=context)

    async def stop(self, part: object) -> None:
        """Drain a worker, or let a scheduler give the lead up; raises what it raised."""
        stop, task = self._stops.pop(part)
        stop.set()
        async with asyncio.timeout(WAIT_S):
            await task

    async def crash(self, part: object) -> None:
        """End it without a farewell, as far as one process can: nothing is given back."""
        _, task = self._stops.pop(part)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        try:
            for part in sorted(self._stops, key=lambda p: isinstance(p, Scheduler)):
                await self.stop(part)
        finally:
            await self.client.close()

    async def task(self, task_id: str) -> Task:
        return await self.store.get(task_id)

    async def status(self, task_id: str) -> str:
        return str((await self.task(task_id)).status)

    async def until(self, task_id: str, *statuses: str) -> Task:
        await eventually(lambda: self._is(task_id, statuses), f"{task_id} {' or '.join(statuses)}")
        return await self.task(task_id)

    async def _is(self, task_id: str, statuses: Sequence[str]) -> bool:
        return await self.status(task_id) in statuses


@contextlib.asynccontextmanager
async def workshop(url: str, prefix: str, *, scheduler: bool = True, **groups: Any) -> AsyncIterator[Workshop]:
    """Open a workshop with a scheduler. `groups` are settings: `worker={"grace_s": 0}`; without an archive."""
    tasks = {"archive": False, **groups.pop("tasks", {})}
    worker = {"grace_s": 5, **groups.pop("worker", {})}
    settings = Settings(
        key_prefix=prefix,
        redis=RedisSettings(url=url, **groups.pop("redis", {})),
        tasks=tasks,
        worker=worker,
        scheduler={**SCHEDULER, **groups.pop("scheduler_", {})},
        **groups,
    )
    link = await open_link(settings.redis)
    shop = Workshop(Plane(link, settings))
    try:
        await shop.open()
        if scheduler:
            shop.start_scheduler()
        yield shop
    finally:
        try:
            await shop.close()
        finally:
            await link.close()
