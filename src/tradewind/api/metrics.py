"""`GET /metrics`: figures of this process's HTTP door and of the whole station, in a registry of the app's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.flows import STATUSES
from tradewind.api.routing import Endpoint
from tradewind.errors import TradewindError
from tradewind.flows.control import FlowControl
from tradewind.flows.overview import figures
from tradewind.redis.connection import translated
from tradewind.tasks.control import TaskControl

#: How long a scrape waits for Redis before it reports `tradewind_redis_up 0`.
TIMEOUT_S = 5.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class HttpFigures:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route")
        self._requests = Counter(
            "tradewind_http_requests", "Requests answered.", (*labels, "status"), registry=registry
        )
        self._seconds = Histogram(
            "tradewind_http_request_seconds",
            "Seconds until an answer began; long polls are left out.",
            labels,
            registry=registry,
            buckets=_BUCKETS,
        )

    def note(self, scope: Mapping[str, Any], route: str | None, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        name = route or "other"
        self._requests.labels(method, name, str(status)).inc()
        if b"wait=" not in scope["query_string"]:
            self._seconds.labels(method, name).observe(seconds)


class RoomFigures(Protocol):
    async def collect(self) -> list[Metric]:
        """Raises Unavailable."""
        ...


class StationFigures(Collector):
    """What the last `refresh` found; nothing but `tradewind_redis_up 0` when it found no Redis."""

    def __init__(self, control: TaskControl, flows: FlowControl, *rooms: RoomFigures) -> None:
        self._control = control
        self._flows = flows
        self._rooms = rooms
        self._found: list[Metric] = []
        self._is_up = False

    async def refresh(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = [*await self._task_figures(), *await self._flow_figures()]
                for room in self._rooms:
                    found += await room.collect()
                self._found = [*found, *await self._redis_figures()]
                self._is_up = True
        except (TradewindError, TimeoutError):
            self._found, self._is_up = [], False

    def collect(self) -> Iterator[Metric]:
        yield _gauge("tradewind_redis_up", "1 when Redis answers.", int(self._is_up))
        yield from self._found

    async def _task_figures(self) -> list[Metric]:
        control = self._control
        queues, workers, counts = await control.queues(), await control.workers(), await control.counts()
        lengths = GaugeMetricFamily("tradewind_queue_length", "Tasks that wait, parked ones too.", labels=["queue"])
        parked = GaugeMetricFamily("tradewind_queue_parked", "Tasks whose type cannot run now.", labels=["queue"])
        paused = GaugeMetricFamily("tradewind_queue_paused", "1 while paused.", labels=["queue"])
        for queue in queues:
            lengths.add_metric([queue.name], queue.length)
            parked.add_metric([queue.name], queue.parked)
            paused.add_metric([queue.name], int(queue.is_paused))
        totals = CounterMetricFamily("tradewind_tasks", "Tasks by what happened to them.", labels=["status"])
        for status, count in counts.items():
            totals.add_metric([status.lower()], count)
        return [
            lengths,
            parked,
            paused,
            totals,
            _gauge("tradewind_workers", "Live workers.", len(workers)),
            _gauge(
                "tradewind_worker_capacity", "Tasks that all workers may run at once.", sum(w.capacity for w in workers)
            ),
            _gauge("tradewind_worker_load", "Tasks that workers hold.", sum(w.load for w in workers)),
            _gauge("tradewind_leader_present", "1 while a scheduler leads.", int(await control.leader() is not None)),
        ]

    async def _flow_figures(self) -> list[Metric]:
        by_status, ended, single = await figures(self._flows.store)
        flows = GaugeMetricFamily("tradewind_flows", "Flows by their state.", labels=["status"])
        for status in dict.fromkeys((*STATUSES, *by_status)):
            flows.add_metric([status], by_status.get(status, 0))
        cycles = CounterMetricFamily("tradewind_flow_cycles", "Cycles that ended, by how.", labels=["status"])
        for status in ("completed", "failed", "stopped", "timeout"):
            cycles.add_metric([status], ended.get(status, 0))
        return [
            flows,
            cycles,
            CounterMetricFamily("tradewind_flow_cycle_seconds", "Time that ended cycles took.", single["cycles_s"]),
            _gauge("tradewind_flow_cycles_running", "Cycles that run.", single["cycles_running"]),
            _gauge("tradewind_flow_lag_seconds", "How long the next cycle is overdue; 0 if not.", single["lag_s"]),
            _gauge("tradewind_flow_slots_missed", "Slots that present flows missed.", single["missed"]),
            _gauge("tradewind_flow_slots_skipped", "Slots that met a running cycle.", single["skipped"]),
            _gauge("tradewind_flow_outbox_waiting", "Entries of flows that SQL does not have yet.", single["outbox"]),
            _gauge("tradewind_flow_unsent_cycles", "Cycles with signals on their way to the broker.", single["unsent"]),
            CounterMetricFamily(
                "tradewind_flow_signals_refused", "Messages of the broker that were refused.", single["signals_refused"]
            ),
        ]

    async def _redis_figures(self) -> list[Metric]:
        plane = self._control.plane
        with translated(plane.link):
            waiting = int(await plane.link.client.get(plane.keys.outbox_count()) or 0)
            info: dict[str, Any] = await plane.link.client.info()
            commands: dict[str, Any] = await plane.link.client.info("commandstats")
        hits, misses = info.get("keyspace_hits", 0), info.get("keyspace_misses", 0)
        figures = [
            ("tradewind_outbox_waiting", "Finished tasks that SQL does not have yet.", waiting),
            ("tradewind_redis_memory_bytes", "Memory that Redis uses.", info.get("used_memory", 0)),
            ("tradewind_redis_memory_limit_bytes", "Its bound; 0 for none.", info.get("maxmemory", 0)),
            ("tradewind_redis_clients", "Connections to Redis.", info.get("connected_clients", 0)),
            ("tradewind_redis_operations_per_second", "As Redis counts.", info.get("instantaneous_ops_per_sec", 0)),
            ("tradewind_redis_hit_ratio", "Reads that found a key.", hits / (hits + misses) if hits + misses else 1.0),
            (
                "tradewind_redis_evicted_keys",
                "Keys dropped for lack of memory: must stay 0.",
                info.get("evicted_keys", 0),
            ),
        ]
        calls = CounterMetricFamily("tradewind_redis_command_calls", "Calls of each Redis command.", labels=["command"])
        seconds = CounterMetricFamily("tradewind_redis_command_seconds", "Time spent in each.", labels=["command"])
        for name, stats in commands.items():
            command = name.removeprefix("cmdstat_")
            calls.add_metric([command], stats["calls"])
            seconds.add_metric([command], stats["usec"] / 1e6)
        return [*(_gauge(*figure) for figure in figures), calls, seconds]


def metrics_endpoint(
    registry: CollectorRegistry, control: TaskControl, flows: FlowControl, *rooms: RoomFigures
) -> Endpoint:
    for kind in (ProcessCollector, PlatformCollector, GCCollector):
        kind(registry=registry)
    station = StationFigures(control, flows, *rooms)
    registry.register(station)

    async def run(request: Request) -> Response:
        await station.refresh()
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), media_type=None, headers={"Content-Type": media_type})

    answers = {200: ("Prometheus text", None)}
    return Endpoint(
        "GET",
        "/metrics",
        run,
        "Figures for Prometheus",
        answers,
        tag="station",
        media_type="text/plain",
        any_query=True,
    )


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)
