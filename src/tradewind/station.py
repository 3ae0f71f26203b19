"""The composition root: opens what the chosen roles need, wires it, runs it, closes it. No domain logic."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from redis.exceptions import RedisError

import tradewind
from tradewind.errors import Invalid, TradewindError, Unavailable, error_text
from tradewind.fence import Fence, first_of
from tradewind.flows.alarm_watch import AlarmWatch
from tradewind.flows.broker import BrokerKeeper
from tradewind.flows.control import FlowControl
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.node_registry import discover, node_types
from tradewind.flows.plane import HOOK, FlowPlane
from tradewind.flows.remote import RemoteNodes
from tradewind.flows.scheduler import FlowScheduler
from tradewind.flows.start_task import use_flows
from tradewind.flows.store import FlowStore
from tradewind.flows.sweep import FlowSweep
from tradewind.flows.terminate_watch import TerminateWatch
from tradewind.flows.trigger_watch import TriggerWatch
from tradewind.nodes import http_request, python_node  # its package registers the built-in nodes
from tradewind.nodes.points import use_points
from tradewind.points.sweep import PointSweep
from tradewind.private_files import make_data_dir, tighten
from tradewind.recovery.service import Recovery
from tradewind.redis.connection import Link, ServerFacts, open_link, server_facts
from tradewind.redis.index_sweep import SWEEP_S, sweep_for_ever
from tradewind.settings import Settings
from tradewind.signals.exchange import Exchange
from tradewind.signals.memory import MemoryExchange
from tradewind.station_health import Look, StationHealth
from tradewind.station_history import HistoryRoom
from tradewind.station_points import PointRoom
from tradewind.station_rules import RuleRoom
from tradewind.station_workers import WorkerRoom
from tradewind.tasks import builtin as builtin  # registers echo, sleep, fail
from tradewind.tasks.control import TaskControl
from tradewind.tasks.listing import TaskListing
from tradewind.tasks.periodic import ScheduleStore
from tradewind.tasks.plane import Plane
from tradewind.tasks.store import TaskStore
from tradewind.tasks.worker import Worker

if TYPE_CHECKING:
    from tradewind.flows.record_query import FlowRecords
    from tradewind.recovery.restorer import Rooms
    from tradewind.sql import Sql
    from tradewind.tasks.archive_table import TaskArchive
    from tradewind.tasks.leader_store import LeaderStore
    from tradewind.tasks.scheduler import Scheduler

log = structlog.get_logger(__name__)
ROLES = ("scheduler", "worker", "comsrv", "modsrv", "rulesrv", "alarmsrv", "hissrv", "api")


class Station:
    """One process of a station: the parts that its roles share. Made by `open_station`."""

    version = tradewind.__version__

    def __init__(
        self,
        settings: Settings,
        roles: frozenset[str],
        link: Link,
        facts: ServerFacts,
        sql: Sql | None,
        exchange: Exchange | None = None,
    ) -> None:
        self.settings = settings
        self.roles = roles
        self.link = link
        self.facts = facts
        self.sql = sql
        self.name = settings.worker.name or platform.node()
        self.plane = Plane(link, settings)
        self._record = record = sql if settings.tasks.archive else None
        self.tasks = TaskStore(self.plane, _archive(record) if record is not None else None)
        self.control = TaskControl(self.plane)
        self.listing = TaskListing(self.tasks)
        self.schedules = ScheduleStore(self.plane)
        self.points = PointRoom(link, settings)
        self.history = HistoryRoom(self.points)
        self.rules = RuleRoom(self.points, sql, self.history.sink if settings.history.enabled else None)
        self.flow_store = FlowStore(FlowPlane(self.plane))
        self.flow_types = KnownTypes(self.flow_store.plane, node_types)
        self.flows = FlowControl(self.flow_store, self.flow_types, _records(record) if record is not None else None)
        self.workers: list[Worker] = []
        self.scheduler: Scheduler | None = None
        #: Where signals can be watched: the broker's exchange, or one inside this process.
        self.exchange: Exchange = exchange or MemoryExchange()
        self.recovery = Recovery(self.plane, sql, self.name, self._stores)
        looks: dict[tuple[str, ...], Look] = {
            ("store",): self.recovery.look,
            ("comsrv", "modsrv"): self.points.health,
            ("rulesrv", "alarmsrv", "notify"): self.rules.look,
            ("hissrv",): self.history.look,
        }
        self._health = StationHealth(self.plane, facts, sql, self.control, looks)
        discover()
        python_node.allow(settings.flows.code_nodes)
        http_request.allow(settings.flows.http_allow)
        use_points(self.points)
        use_flows(self.flows)

    async def run(self, stop: asyncio.Event, api: Callable[[asyncio.Event], Awaitable[None]] | None = None) -> None:
        """Serve the roles until `stop` is set, then end them in stages: API, workers, scheduler.

        `api` serves until the event that it is given is set; it is handed in, since this room does not know the API.
        """
        stops = {role: asyncio.Event() for role in ROLES}
        async with asyncio.TaskGroup() as group:
            running: dict[str, list[asyncio.Task[None]]] = {role: [] for role in ROLES}
            watches: list[asyncio.Task[None]] = []
            ending = asyncio.Event()
            keeping = group.create_task(self.recovery.run(ending), name="recovery")
            if "scheduler" in self.roles:
                from tradewind.tasks.scheduler import Scheduler

                wordings = {HOOK: RemoteNodes(self.flow_store).wording}
                self.scheduler = Scheduler(
                    self.plane, self.tasks, self.settings.scheduler.id, [self._flow_jobs], wordings
                )
                running["scheduler"].append(group.create_task(self.scheduler.run(stops["scheduler"]), name="scheduler"))
            if "worker" in self.roles:
                room = WorkerRoom(self.plane, self.flow_store, self.flow_types, self.exchange)
                self.workers = await room.make()
                for worker in self.workers:
                    running["worker"].append(group.create_task(worker.run(stops["worker"]), name=f"worker {worker.id}"))
                watches = [group.create_task(_forever(name, job), name=name) for name, job in room.jobs]
            served: dict[str, Callable[[asyncio.Event], Awaitable[None]]] = {
                "comsrv": lambda stop: self.points.acquisition().run(stop),
                "modsrv": lambda stop: self.points.engine().run(stop),
                "rulesrv": self.rules.judge,
                "alarmsrv": self.rules.keep,
                "hissrv": self.history.record,
            }
            for role, serve in served.items():
                if role in self.roles:
                    kept = _kept_up(role, partial(serve, stops[role]), stops[role])
                    running[role].append(group.create_task(kept, name=role))
            if api is not None:
                running["api"].append(group.create_task(_until_stopped(api, stops["api"]), name="api"))
            await stop.wait()
            log.info("stopping", roles=sorted(self.roles))
            for role in ("api", *served, "worker", "scheduler"):
                stops[role].set()
                await asyncio.gather(*running[role], return_exceptions=True)
            ending.set()
            await asyncio.gather(keeping, return_exceptions=True)
            for watch in watches:
                watch.cancel()

    def _stores(self) -> Rooms:
        """What recovery puts things back with."""
        from tradewind.recovery.restorer import Rooms

        return Rooms(
            board=self.points.board,
            channels=self.points.channels,
            models=self.points.models,
            rules=self.rules.rules,
            alarms=self.rules.alarms,
            notify=self.rules.notify,
            history=self.history.store,
            schedules=self.schedules,
            control=self.control,
            flows=self.flows,
        )

    async def health(self) -> dict[str, Any]:
        """Each part with its state; `down` when Redis is away, `degraded` when anything else is."""
        return await self._health.look()

    def _flow_jobs(self, term: LeaderStore) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What the leader does for flows."""
        keeper = BrokerKeeper(self.flow_store, self.exchange) if self.settings.signals.transport == "amqp" else None
        news = keeper.news if keeper is not None else None
        jobs: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "flows": FlowScheduler(self.flow_store, term.id, term.epoch, news).run,
            "terminate flags": TerminateWatch(self.flow_store).run,
            "flow sweep": lambda: sweep_for_ever([FlowSweep(self.flow_store)], "flows", SWEEP_S),
            "point sweep": lambda: sweep_for_ever([PointSweep(self.points.plane)], "points", SWEEP_S),
        }
        if keeper is not None:
            jobs["broker"] = keeper.run
        jobs["flow triggers"] = TriggerWatch(self.flows, self.points.plane).run
        jobs["alarm triggers"] = AlarmWatch(self.flows, self.points.plane).run
        jobs["points"] = self.points.look_after
        if self._record is not None:
            from tradewind.flows.recorder import FlowRecorder

            jobs["flow records"] = FlowRecorder(self.plane, self._record).run
        return jobs


@contextlib.asynccontextmanager
async def open_station(settings: Settings, roles: frozenset[str]) -> AsyncIterator[Station]:
    """Open Redis (the embedded one when no URL is set) and SQL for the block. Raises Unavailable, Conflict."""
    async with contextlib.AsyncExitStack() as stack:
        if changed := await asyncio.to_thread(tighten, settings.data_dir):
            log.warning("data_files_tightened", count=len(changed), first=str(changed[0]))
        link = await open_link(settings.redis, data_dir=settings.data_dir)
        stack.push_async_callback(link.close)
        await link.wait_ready(30)
        facts = await server_facts(link.client)
        for warning in facts.warnings:
            log.warning("redis", warning=warning)
        sql = None
        if "alarmsrv" in roles or (settings.tasks.archive and roles & {"scheduler", "api"}):
            if not settings.sql.url:
                make_data_dir(settings.data_dir)
            from tradewind.sql import open_sql  # heavy, and not every role needs it

            sql = await open_sql(settings.sql.url, settings.data_dir)
            stack.push_async_callback(sql.close)
        exchange = await _open_exchange(settings) if roles & {"scheduler", "worker"} else None
        if exchange is not None:
            stack.push_async_callback(exchange.close)
        station = Station(settings, roles, link, facts, sql, exchange)
        stack.push_async_callback(station.history.close)
        await station.recovery.check_in()
        yield station


async def _open_exchange(settings: Settings) -> Exchange:
    """The broker, waited for as Redis is; one for observers when signals stay local. Raises Invalid, Unavailable."""
    if settings.signals.transport != "amqp":
        local = MemoryExchange()
        await local.open()
        return local
    if not settings.amqp.url:
        raise Invalid(
            "signals.transport is amqp but amqp.url is empty", hint="set amqp.url, or signals.transport = local"
        )
    from tradewind.signals.amqp import AmqpExchange

    exchange = AmqpExchange(settings.amqp.url)
    deadline = time.monotonic() + 30
    while True:
        try:
            await exchange.open()
            return exchange
        except Unavailable as error:
            if time.monotonic() > deadline:
                raise
            log.warning("waits for the broker", error=error.message)
            await asyncio.sleep(1)


async def _kept_up(name: str, serve: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    """Serve a role until `stop` is set; an error ends neither it nor the others of this process."""
    fence = Fence(role=name)
    while not stop.is_set():
        try:
            await serve()
        except* (TradewindError, RedisError) as errors:
            log.error("a role met an error and begins anew", role=name, error=error_text(first_of(errors)))
        except* Exception as errors:  # noqa: BLE001 - the other roles go on
            fence.met(errors)
        if not stop.is_set():
            await asyncio.sleep(1)


async def _forever(name: str, job: Callable[[], Awaitable[None]]) -> None:
    """Run a job of a worker for as long as it lives; what it meets is logged, and it begins anew."""
    fence = Fence(job=name)
    while True:
        try:
            await job()
        except (TradewindError, RedisError) as error:
            log.error("a job met an error and begins anew", job=name, error=error_text(error))
            await asyncio.sleep(1)
        except Exception as error:  # noqa: BLE001 - it would end the worker and all roles beside it
            fence.met(error)
            await asyncio.sleep(1)


async def _until_stopped(serve: Callable[[asyncio.Event], Awaitable[None]], stop: asyncio.Event) -> None:
    await serve(stop)


def _archive(sql: Sql) -> TaskArchive:
    from tradewind.tasks.archive_table import TaskArchive

    return TaskArchive(sql)


def _records(sql: Sql) -> FlowRecords:
    from tradewind.flows.record_query import FlowRecords

    return FlowRecords(sql)
