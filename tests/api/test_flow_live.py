"""The live feed of a flow and flows in the live picture, on a real server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from tests.api.conftest import Eventually
from tests.api.flow_station import DOUBLING, PRICE, Flows, edge, flow
from tests.process import free_port
from tradewind.api import create_app, live_events, make_server
from tradewind.api import flow_feed as feed_module
from tradewind.api.flow_feed import Watcher
from tradewind.api.server import GRACE_S, ApiServer
from tradewind.station import Station

SAYING = flow(
    "f1", PRICE, {"id": "say", "type": "log", "config": {"message": "got {value}"}},
    edges=[edge("price", "say", "value")],
)  # fmt: skip


class Live:
    def __init__(self, app: FastAPI, server: ApiServer, port: int, client: AsyncClient) -> None:
        self.app, self.server, self.port, self.flows = app, server, port, Flows(client)


@pytest.fixture
async def live(flow_station: Station) -> AsyncIterator[Live]:
    port, app = free_port(), create_app(flow_station)
    server = make_server(app, flow_station.settings.api.model_copy(update={"port": port}))
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        yield Live(app, server, port, client)
    server.should_exit = True
    await running


class Stream:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def line(self, start: bytes) -> bytes:
        async with asyncio.timeout(10):
            while not (line := await self._reader.readline()).startswith(start):
                assert line, "the stream ended"
            return line[len(start) :].strip()

    async def event(self) -> tuple[str, dict[str, Any]]:
        name = await self.line(b"event: ")
        data: dict[str, Any] = json.loads(await self.line(b"data: "))
        return name.decode(), data

    async def until(self, name: str, **wanted: Any) -> list[tuple[str, dict[str, Any]]]:
        """All events up to one with these fields."""
        found = []
        while True:
            found.append(await self.event())
            if found[-1][0] == name and wanted.items() <= found[-1][1].items():
                return found

    async def rest(self) -> bytes:
        async with asyncio.timeout(GRACE_S):
            return await self._reader.read()


@asynccontextmanager
async def watching(live: Live, path: str, first: bytes = b": listening") -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    try:
        head = f"GET /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        stream = Stream(reader)
        await stream.line(b"HTTP/1.1 200")
        await stream.line(first)
        yield stream
    finally:
        writer.close()


async def test_a_watcher_sees_logs_signals_nodes_and_cycles_of_its_flow_alone(live: Live) -> None:
    await live.flows.post("/flows", SAYING, 201)
    await live.flows.post("/flows", {**DOUBLING, "id": "f2"}, 201)
    async with watching(live, "/flows/f1/logs/live") as stream:
        await live.flows.run("f2")
        cycle = await live.flows.run("f1")
        found = await stream.until("cycle", status="completed")
        # The channel and the outbox are read apart, so the last line of the log may come after the end of the cycle.
        while "Cycle 0 completed" not in {data.get("message") for _, data in found}:
            found.append(await stream.event())
    assert {data["flow_id"] for _, data in found} == {"f1"}
    assert {data["cycle"] for _, data in found} == {cycle}
    logs = [data for name, data in found if name == "log"]
    (said,) = [line for line in logs if line["message"] == "got 42"]
    assert said.keys() == {
        "flow_id", "cycle", "node_id", "log_level", "log_source", "message", "log_metadata", "created_at",
    }  # fmt: skip
    assert (said["node_id"], said["log_source"], said["log_level"]) == ("say", "node", "INFO")
    (signal,) = [data for name, data in found if name == "signal" and data["source_node"] == "price"]
    assert signal["payload"] == 42 and signal["targets"] == [{"node": "say", "handle": "value"}]
    assert {(data["node_id"], data["status"]) for name, data in found if name == "node"} >= {
        ("price", "completed"), ("say", "completed"),
    }  # fmt: skip


async def test_filters_of_the_live_feed(live: Live) -> None:
    await live.flows.post("/flows", SAYING, 201)
    async with (
        watching(live, "/flows/f1/logs/live?node=say&level=INFO") as of_node,
        watching(live, "/flows/f1/logs/live?cycle=1&source=scheduler") as of_cycle,
    ):
        await live.flows.run("f1")
        await live.flows.run("f1")
        first, second = await of_node.event(), await of_node.event()
        assert [first[1]["cycle"], second[1]["cycle"]] == [0, 1]
        assert {(name, data["message"]) for name, data in (first, second)} == {("log", "got 42")}
        assert [data["message"] for _, data in (await of_cycle.event(), await of_cycle.event())] == [
            "Starting cycle 1", "Cycle 1 completed",
        ]  # fmt: skip


async def test_the_feed_is_open_only_while_somebody_watches(live: Live, eventually: Eventually) -> None:
    await live.flows.post("/flows", SAYING, 201)
    feed = live.app.state.flow_feed
    assert not feed.is_open
    async with watching(live, "/flows/f1/logs/live"), watching(live, "/flows/f1/logs/live"):
        assert feed.is_open
    await eventually(lambda: not feed.is_open)
    await live.flows.run("f1")  # a wait opens it, too, and closes it again
    assert not feed.is_open
    async with watching(live, "/flows/f1/logs/live") as stream:
        await live.flows.run("f1")
        await stream.until("cycle", status="completed")


async def test_the_stream_of_a_deleted_flow_ends(live: Live) -> None:
    await live.flows.post("/flows", SAYING, 201)
    async with watching(live, "/flows/f1/logs/live") as stream:
        await live.flows.ask("DELETE", "/flows/f1", 204)
        assert (await stream.until("gone"))[-1][1] == {"flow_id": "f1"}
        assert (await stream.rest()).endswith(b"0\r\n\r\n")  # a proper end, not a broken connection


async def test_a_stop_of_the_server_ends_feeds_and_waits_at_once(live: Live) -> None:
    await live.flows.post("/flows", flow("f1", {"id": "later", "type": "delay", "config": {"seconds": 600}}), 201)
    async with watching(live, "/flows/f1/logs/live") as stream:
        waiting = asyncio.create_task(live.flows.post("/flows/f1/cycles?wait=60", None, 201))
        await stream.until("cycle", event="cycle_started")
        began = time.monotonic()
        live.server.should_exit = True
        assert (await stream.rest()).endswith(b"0\r\n\r\n")  # a proper end, not a broken connection
        assert (await waiting)["status"] == "running"
    assert time.monotonic() - began < GRACE_S


async def test_too_many_watchers_are_told_to_come_back(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.flows.post("/flows", SAYING, 201)
    monkeypatch.setattr(feed_module, "MAX_WATCHERS", 0)
    assert await live.flows.error("GET", "/flows/f1/logs/live", 429) == "too_many_watchers"


async def test_a_slow_watcher_loses_the_oldest_and_is_told() -> None:
    watcher = Watcher("f1", lambda _name, data: data["n"] >= 0)
    for n in range(-1, live_events.MAX_BEHIND + 5):
        watcher.push("log", {"n": n})
    assert await watcher.next() == ("lost", {"count": 5})
    assert await watcher.next() == ("log", {"n": 5})
    watcher.close()
    assert await watcher.next() is None


async def test_a_snapshot_tells_of_flows(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.flows.post("/flows", SAYING, 201)
    await live.flows.post("/flows", {**SAYING, "id": "f2"}, 201)
    await live.flows.run("f1")
    async with watching(live, "/events", b"") as stream:
        _, found = await stream.event()
        first, second = found["flows"]["data"]
        assert found["flows"]["total"] == 2
        assert (first["id"], first["status"], first["last_cycle"], first["cycle_status"], first["running_cycles"]) == (
            "f1", "registered", 0, "completed", 0,
        )  # fmt: skip
        assert first["counts"]["completed"] == 2 and first["next_execution"] == 0
        assert (second["last_cycle"], second["cycle_status"], second["start_time"]) == (-1, None, None)
        monkeypatch.setattr("tradewind.api.snapshots.MAX_FLOWS", 1)
        while len(found["flows"]["data"]) > 1:
            _, found = await stream.event()
        assert [item["id"] for item in found["flows"]["data"]] == ["f1"] and found["flows"]["total"] == 2
