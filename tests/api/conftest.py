"""A small real station for the API: task room on a real Redis, archive on SQLite, a worker moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient

from tests import servers
from tests.api.flow_station import Flows, running_station
from tradewind.api import create_app
from tradewind.errors import TradewindError
from tradewind.flows.control import FlowControl
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.node_registry import node_types
from tradewind.flows.plane import FlowPlane
from tradewind.flows.store import FlowStore
from tradewind.recovery.restorer import Rooms
from tradewind.recovery.service import Recovery
from tradewind.redis.connection import open_link, translated
from tradewind.settings import (
    ApiSettings,
    HistorySettings,
    InfluxSettings,
    NotifySettings,
    PointSettings,
    RedisSettings,
    Settings,
)
from tradewind.sql import Sql, open_sql
from tradewind.station import Station
from tradewind.station_history import HistoryRoom
from tradewind.station_points import PointRoom
from tradewind.station_rules import RuleRoom
from tradewind.tasks.archive_table import TaskArchive
from tradewind.tasks.control import TaskControl
from tradewind.tasks.function import Parameter, Signature
from tradewind.tasks.listing import TaskListing
from tradewind.tasks.periodic import ScheduleStore
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import Status
from tradewind.tasks.store import TaskStore
from tradewind.tasks.worker_store import Ending, WorkerStore

Eventually = Callable[[Callable[[], Awaitable[bool] | bool]], Awaitable[None]]

TYPES = {
    "echo": Signature(params=[Parameter("value", required=False)], doc="Return what it is given."),
    "send_email": Signature(
        params=[Parameter("to", types=["str"]), Parameter("subject", types=["str"])], max_attempts=3
    ),
}


class SmallStation:
    name = "small"
    version = "1.2.3"

    def __init__(self, plane: Plane, sql: Sql) -> None:
        self.settings = plane.all_settings
        self.plane = plane
        self.archive = TaskArchive(sql)
        self.tasks = TaskStore(plane, self.archive)
        self.control = TaskControl(plane)
        self.listing = TaskListing(self.tasks)
        self.schedules = ScheduleStore(plane)
        flows = FlowStore(FlowPlane(plane))
        self.flows = FlowControl(flows, KnownTypes(flows.plane, node_types), None)
        self.points = PointRoom(plane.link, plane.all_settings)
        self.history = HistoryRoom(self.points)
        self.rules = RuleRoom(self.points, sql, self.history.sink)
        self.recovery = Recovery(plane, sql, self.name, self._stores)
        self.reported = ""
        self.health_calls = 0

    def _stores(self) -> Rooms:
        return Rooms(
            self.points.board, self.points.channels, self.points.models, self.rules.rules, self.rules.alarms,
            self.rules.notify, self.history.store, self.schedules, self.control, self.flows,
        )  # fmt: skip

    async def health(self) -> dict[str, Any]:
        self.health_calls += 1
        status, detail = self.reported or "ok", "answers"
        try:
            async with asyncio.timeout(1):
                with translated():
                    await self.plane.link.client.ping()
        except (TradewindError, TimeoutError) as error:
            status, detail = "down", str(error)
        return {"status": status, "version": self.version, "parts": {"redis": {"status": status, "detail": detail}}}

    async def offer(self, capacity: int = 0, worker_id: str = "by-hand") -> WorkerStore:
        """Register a worker. With no capacity it only makes the types known, so that tasks stay QUEUED."""
        worker = WorkerStore(self.plane, worker_id, "g1")
        fields = {"capacity": capacity, "status": "active", "pull": "1", "name": worker_id}
        await worker.register(fields, {name: msgspec.json.encode(known) for name, known in TYPES.items()})
        return worker

    async def finish(
        self, worker: WorkerStore, status: Status = Status.SUCCESS, outcome: bytes = b'{"result":7}'
    ) -> str:
        """Take one task that was assigned and end it."""
        (taken,) = await worker.take(1)
        assert await worker.finish([Ending(taken.id, taken.token, taken.type, status, taken.request, outcome)]) == [1]
        return taken.id

    async def stored_keys(self) -> set[bytes]:
        """Every key of this station but those of its workers and types."""
        own = [key async for key in self.plane.link.client.scan_iter(match=f"{self.plane.keys.p}*", count=1000)]
        prefix = self.plane.keys.p.encode()
        return {
            key for key in own if not key.removeprefix(prefix).startswith((b"worker", b"task:types", b"scheduler:"))
        }


@asynccontextmanager
async def small_station(
    url: str,
    prefix: str,
    folder: Path,
    points: PointSettings | None = None,
    notify: NotifySettings | None = None,
    influx: InfluxSettings | None = None,
    history: HistorySettings | None = None,
    **api: Any,
) -> AsyncIterator[SmallStation]:
    settings = Settings(
        data_dir=folder,
        key_prefix=prefix,
        redis=RedisSettings(url=url, dial_timeout_s=1),
        api=ApiSettings(**api),
        points=points or PointSettings(),
        notify=notify or NotifySettings(),
        influx=influx or InfluxSettings(),
        history=history or HistorySettings(),
    )
    link = await open_link(settings.redis)
    sql = await open_sql("", folder)
    try:
        station = SmallStation(Plane(link, settings), sql)
        try:
            yield station
        finally:
            await station.history.close()
    finally:
        await sql.close()
        await link.close()


def ask(app: FastAPI, *, raise_app_exceptions: bool = True) -> AsyncClient:
    transport = ASGITransport(app=app, raise_app_exceptions=raise_app_exceptions)
    return AsyncClient(transport=transport, base_url="http://127.0.0.1:8400")


@pytest.fixture
async def station(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[SmallStation]:
    async with small_station(redis_7.url, key_prefix, tmp_path) as station:
        await station.offer()
        yield station


@pytest.fixture
async def client(station: SmallStation) -> AsyncIterator[AsyncClient]:
    async with ask(create_app(station)) as client:
        yield client


@pytest.fixture
def api(client: AsyncClient) -> Flows:
    return Flows(client)


@pytest.fixture
async def comsrv(station: SmallStation) -> AsyncIterator[None]:
    """Polls the channels of the station and carries out its commands."""
    stop = asyncio.Event()
    running = asyncio.create_task(station.points.acquisition().run(stop))
    yield
    stop.set()
    await asyncio.wait_for(running, 20)


@pytest.fixture
async def flow_station(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[Station]:
    async with running_station(redis_7.url, key_prefix, tmp_path) as station:
        yield station


@pytest.fixture
async def flows(flow_station: Station) -> AsyncIterator[Flows]:
    async with ask(create_app(flow_station)) as client:
        yield Flows(client)


@pytest.fixture
def eventually() -> Eventually:
    async def wait(is_true: Callable[[], Awaitable[bool] | bool]) -> None:
        async with asyncio.timeout(15):
            while True:
                answer = is_true()
                if answer if isinstance(answer, bool) else await answer:
                    return
                await asyncio.sleep(0.02)

    return wait
