"""The application: every route on one FastAPI shell, one door in front of it. Wiring only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from tradewind.api.alarm_actions import AlarmActionRoutes
from tradewind.api.alarm_feed import AlarmFeed
from tradewind.api.alarms import AlarmRoutes
from tradewind.api.channel_book import ChannelBook
from tradewind.api.channel_users import ChannelUsers
from tradewind.api.channels import ChannelRoutes
from tradewind.api.commands import CommandRoutes
from tradewind.api.connection_limits import ConnectionLimits
from tradewind.api.docs import docs_routes
from tradewind.api.door import Door, served_hosts
from tradewind.api.errors import install_handlers
from tradewind.api.events import events_endpoint
from tradewind.api.flow_cycles import CycleRoutes
from tradewind.api.flow_feed import FlowFeed
from tradewind.api.flow_records import FlowRecordRoutes
from tradewind.api.flows import FlowRoutes
from tradewind.api.health import health_endpoint
from tradewind.api.history import HistoryRoutes
from tradewind.api.history_files import HistoryFileRoutes
from tradewind.api.history_metrics import HistoryFigures
from tradewind.api.history_room import HistoryServices
from tradewind.api.limits import LimitRoutes
from tradewind.api.metrics import HttpFigures, metrics_endpoint
from tradewind.api.models import ModelRoutes
from tradewind.api.node_types import node_types_endpoint
from tradewind.api.notifications import NotificationRoutes
from tradewind.api.openapi import describe
from tradewind.api.page import page_routes
from tradewind.api.point_feed import PointFeed
from tradewind.api.point_metrics import PointFigures
from tradewind.api.point_room import PointServices
from tradewind.api.points import PointRoutes
from tradewind.api.points_ingest import Ingest
from tradewind.api.queues import QueueRoutes
from tradewind.api.recovery import RecoveryRoutes, RecoveryService
from tradewind.api.releases import ReleaseOwner, ReleaseRoutes
from tradewind.api.routing import Endpoint
from tradewind.api.rule_backtest import BacktestRoutes
from tradewind.api.rule_groups import RuleGroupRoutes
from tradewind.api.rule_metrics import RuleFiguresMetrics
from tradewind.api.rule_room import RuleServices
from tradewind.api.rules import RuleRoutes
from tradewind.api.schedules import ScheduleRoutes
from tradewind.api.snapshots import Snapshots
from tradewind.api.substitutions import SubstitutionRoutes
from tradewind.api.tasks import TaskRoutes
from tradewind.api.waiting import Endings
from tradewind.api.workers import WorkerRoutes
from tradewind.flows.control import FlowControl
from tradewind.points.driver_registry import DriverRegistry
from tradewind.settings import Settings
from tradewind.tasks.control import TaskControl
from tradewind.tasks.listing import TaskListing
from tradewind.tasks.periodic import ScheduleStore
from tradewind.tasks.store import TaskStore


class RecoveryServices(RecoveryService, ReleaseOwner, Protocol):
    """Recovery, and the journal of releases."""


class ApiStation(Protocol):
    """What the API needs of a station."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def tasks(self) -> TaskStore: ...
    @property
    def control(self) -> TaskControl: ...
    @property
    def listing(self) -> TaskListing: ...
    @property
    def schedules(self) -> ScheduleStore: ...
    @property
    def flows(self) -> FlowControl: ...
    @property
    def points(self) -> PointServices: ...
    @property
    def rules(self) -> RuleServices: ...
    @property
    def history(self) -> HistoryServices: ...
    @property
    def recovery(self) -> RecoveryServices: ...

    async def health(self) -> dict[str, Any]:
        """`{"status": "ok|degraded|down", "version": …, "parts": {name: {"status": …, "detail": …}}}`"""
        ...


def create_app(station: ApiStation) -> FastAPI:
    """Works before Redis does. `app.state.end_streams()` must be called before the server waits for its connections."""
    settings, control, flows, room = station.settings, station.control, station.flows, station.points
    max_body = settings.api.max_body_bytes
    book = ChannelBook(room.board, room.channels)
    endings, snapshots, registry = Endings(station.tasks), Snapshots(station, book), CollectorRegistry()
    feed, point_feed = FlowFeed(flows.store.plane), PointFeed(room)
    ingest = Ingest(room.board, room.channels, max_body)
    rules = station.rules
    users = ChannelUsers(room, rules, flows, station.history)
    alarm_feed = AlarmFeed(rules.plane, rules.alarms)

    def end_streams() -> None:
        endings.close()
        snapshots.close()
        feed.close()
        point_feed.close()
        alarm_feed.close()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        end_streams()

    app = FastAPI(
        title=station.name,
        version=station.version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    limits = ConnectionLimits(settings.api)
    registry.register(limits)
    app.state.connection_limits = limits
    app.state.end_streams = end_streams
    app.state.snapshots = snapshots
    app.state.flow_feed = feed
    app.state.point_feed = point_feed
    app.state.alarm_feed = alarm_feed
    figures = PointFigures(room, book, ingest), RuleFiguresMetrics(rules), HistoryFigures(station.history)
    endpoints: list[Endpoint] = [
        *TaskRoutes(settings, station.tasks, control, station.listing, endings).endpoints(),
        *QueueRoutes(control).endpoints(),
        *WorkerRoutes(control, max_body).endpoints(),
        *LimitRoutes(control, max_body).endpoints(),
        *ScheduleRoutes(settings, station.schedules, control).endpoints(),
        *FlowRoutes(flows, max_body).endpoints(),
        *CycleRoutes(flows, feed, max_body).endpoints(),
        *FlowRecordRoutes(flows, feed).endpoints(),
        *PointRoutes(room, point_feed, ingest).endpoints(),
        *SubstitutionRoutes(room, max_body).endpoints(),
        *ChannelRoutes(room, book, DriverRegistry(), max_body, users).endpoints(),
        *ModelRoutes(room, max_body).endpoints(),
        *CommandRoutes(room, max_body).endpoints(),
        *RuleRoutes(rules, max_body).endpoints(),
        *BacktestRoutes(rules).endpoints(),
        *RuleGroupRoutes(rules, max_body).endpoints(),
        *AlarmRoutes(rules, alarm_feed, max_body).endpoints(),
        *AlarmActionRoutes(rules, max_body).endpoints(),
        *NotificationRoutes(rules, max_body).endpoints(),
        *HistoryRoutes(station.history, max_body).endpoints(),
        *HistoryFileRoutes(station.history, max_body).endpoints(),
        *RecoveryRoutes(station.recovery, max_body).endpoints(),
        *ReleaseRoutes(station.recovery, max_body).endpoints(),
        node_types_endpoint(flows),
        events_endpoint(snapshots),
        health_endpoint(station.health, station.version),
        metrics_endpoint(registry, control, flows, *figures),
    ]
    app.router.routes.extend(endpoint.route() for endpoint in endpoints)
    describe(app, endpoints)
    docs_routes(app)
    page_routes(app)
    install_handlers(app)
    app.add_middleware(Door, hosts=served_hosts(settings.api), figures=HttpFigures(registry))
    return app
