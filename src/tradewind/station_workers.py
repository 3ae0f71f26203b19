"""The workers of a process: what they serve, how they are made, and what runs beside them for flows."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import structlog

from tradewind import clock
from tradewind.errors import Conflict
from tradewind.flows.courier import BrokerCourier, ObserverCourier
from tradewind.flows.host import Courier, FlowHost, NodeExecutor
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.node_registry import node_types
from tradewind.flows.plane import HOOK
from tradewind.flows.signal_host import SignalHost
from tradewind.flows.store import FlowStore
from tradewind.ids import short_random
from tradewind.settings import Settings
from tradewind.signals.exchange import Exchange
from tradewind.signals.memory import MemoryExchange
from tradewind.tasks.client import Client, use
from tradewind.tasks.cpu_pool import CpuExecutor
from tradewind.tasks.executor import Executor, LocalExecutor, RoutedExecutor
from tradewind.tasks.function import Parameter, Signature, registry
from tradewind.tasks.gate import RedisGate
from tradewind.tasks.periodic import Schedule, ScheduleStore, parse_every
from tradewind.tasks.plane import Plane
from tradewind.tasks.worker import Worker

log = structlog.get_logger(__name__)
#: How often a worker looks whether Redis still has what it announced.
ANNOUNCED_S = 2.0
#: What a task of a node type is given; only a flow submits one.
NODE_SIGNATURE = Signature(
    params=[
        Parameter("flow_id", ["str"]),
        Parameter("cycle", ["int"]),
        Parameter("node_id", ["str"]),
        Parameter("component_id", ["int"]),
    ],
    doc="a node type: runs inside a flow",
)


class WorkerRoom:
    """`jobs`, by name: what must run for as long as the workers do; filled by `make`."""

    def __init__(self, plane: Plane, flows: FlowStore, types: KnownTypes, exchange: Exchange) -> None:
        self.jobs: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._plane = plane
        self._flows = flows
        self._types = types
        self._exchange = exchange

    @property
    def _settings(self) -> Settings:
        return self._plane.all_settings

    async def make(self) -> list[Worker]:
        """One worker for functions on the loop and in threads, one more for CPU-bound ones if there are any."""
        settings = self._settings.worker
        worker_id = settings.id or f"{platform.node()[:40] or 'worker'}-{short_random()}"
        worker_id = "".join(c if c.isalnum() or c in "_-" else "-" for c in worker_id)
        use(Client(gate := RedisGate(self._settings, self._plane)))
        await gate.open()
        threads, cpu = (
            LocalExecutor(registry, settings.concurrency),
            CpuExecutor(self._settings.imports, settings.processes),
        )
        functions = list(registry.all())
        nodes = NodeExecutor(self._flows, node_types, worker_id, settings.concurrency)
        is_amqp = self._settings.signals.transport == "amqp"
        couriers: list[Courier] = []
        if isinstance(self._exchange, MemoryExchange):
            couriers.append(ObserverCourier(self._exchange))
        elif is_amqp:
            couriers.append(courier := BrokerCourier(self._exchange, self._flows))
            self.jobs.append(("signal courier", courier.run))
        host = FlowHost(self._flows, nodes, couriers)
        self.jobs.append(("flow host", host.watch))
        names = [f.name for f in functions if not f.is_cpu]
        routed = RoutedExecutor(threads, {HOOK: nodes})
        workers = [self._make_one(worker_id, routed, settings.concurrency, names, host)]
        if is_amqp:
            worker = workers[0]
            signals = SignalHost(
                self._exchange, self._flows, lambda: (worker.store, worker.capacity), worker.start, node_types
            )
            worker.listeners.append(lambda verb: signals.news.set() if verb == "host" else None)
            self.jobs.append(("signal host", signals.run))
        heavy = [f.name for f in functions if f.is_cpu]
        if heavy:
            workers.append(self._make_one(f"{worker_id[:60]}-cpu", cpu, settings.processes, heavy))
        await self._announce()
        self.jobs.append(("announcements", self._keep_announced))
        return workers

    async def _announce(self) -> None:
        """Tell what lives in code and no worker record says: node types, and periodic tasks."""
        await self._types.announce()
        for function in registry.all():
            if function.schedule is not None:
                await ScheduleStore(self._plane).set(_schedule_of(function.name, function.schedule))

    async def _keep_announced(self) -> None:
        """Announce again when Redis has lost it. A periodic task that somebody removed is not brought back by this:
        node types, which nobody removes, tell a loss."""
        while True:
            await asyncio.sleep(ANNOUNCED_S)
            if not await self._types.is_announced():
                log.warning("announces_again", reason="Redis has lost the node types of this worker")
                await self._announce()

    def _make_one(
        self, worker_id: str, executor: Executor, capacity: int, types: Sequence[str], host: FlowHost | None = None
    ) -> Worker:
        settings = self._settings.worker
        kinds = sorted(node_types.describe()) if host is not None else []
        names = sorted({*types, *kinds})
        offered = msgspec.json.encode(names)
        fields = {
            "id": worker_id,
            "name": settings.name or worker_id,
            "address": settings.address,
            "api_url": settings.address,
            "supported_types": offered,
            "supported_nodes": offered,
            "current_load": 0,
            "labels": ",".join(settings.labels),
            "signals": int(host is not None and self._settings.signals.transport == "amqp"),
            "host": platform.node(),
            "pid": os.getpid(),
            "started_ms": clock.now_ms(),
        }
        signatures = {}
        for name in names:
            function = registry.get(name)
            if function is not None and name in kinds:
                raise Conflict(f"{name!r} is a task type and a node type", code="type_taken", hint="rename one of them")
            signature = function.signature if function is not None else NODE_SIGNATURE
            signatures[name] = msgspec.json.encode(msgspec.structs.replace(signature, seen_ms=clock.now_ms()))
        described = {name: msgspec.json.encode(kind) for name, kind in node_types.describe().items() if name in kinds}
        rooms = {HOOK: host} if host is not None else {}
        return Worker(
            self._plane, worker_id, executor, capacity=capacity, fields=fields, types=signatures, nodes=described,
            rooms=rooms,
        )  # fmt: skip


def _schedule_of(name: str, options: dict[str, Any]) -> Schedule:
    every = options["every"]
    return Schedule(
        name=name, type=name, every_ms=parse_every(every) if every is not None else 0, cron=options["cron"] or ""
    )
