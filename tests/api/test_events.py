"""The event stream on a real server: shared, never piling up, and gone when the server stops."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests import servers
from tests.api.conftest import Eventually, SmallStation, small_station
from tests.process import free_port
from tradewind.alarms.record import NewAlarm
from tradewind.api import create_app, make_server
from tradewind.api.server import GRACE_S, ApiServer
from tradewind.points.batch import Batch
from tradewind.tasks.check import check_tasks
from tradewind.tasks.record import Status


class Live:
    def __init__(self, app: FastAPI, server: ApiServer, port: int) -> None:
        self.app, self.server, self.port = app, server, port

    @property
    def is_polling(self) -> bool:
        return bool(self.app.state.snapshots.is_polling)

    async def get(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
        return reader, writer


@asynccontextmanager
async def serving(station: SmallStation) -> AsyncIterator[Live]:
    port = free_port()
    app = create_app(station)
    server = make_server(app, station.settings.api.model_copy(update={"port": port}))
    running = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(10):
            while not server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield Live(app, server, port)
    finally:
        server.should_exit = True
        await running


@pytest.fixture
async def live(station: SmallStation) -> AsyncIterator[Live]:
    async with serving(station) as live:
        yield live


async def snapshot(reader: asyncio.StreamReader) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while not (line := await reader.readline()).startswith(b"data: "):
            assert line, "the stream ended"
        text = line
        while text.endswith(b"\r\n"):  # a long event comes in several chunks, each with its size before it
            await reader.readline()
            text = text[:-2] + await reader.readline()
        data: dict[str, Any] = json.loads(text[6:])
        return data


async def leave(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        await writer.wait_closed()


async def test_a_snapshot_tells_of_the_whole_station(live: Live, station: SmallStation) -> None:
    worker = await station.offer(capacity=9, worker_id="free")
    await station.tasks.plane.link.client.sadd(station.plane.keys.paused(), "high")
    for number in range(25):
        await submit(station, f"t{number:02}")
    reader, writer = await live.get("/api/v1/events")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"200 OK" in head and b"text/event-stream" in head and b"no-store" in head
    found = await snapshot(reader)
    await leave(writer)
    assert found.keys() == {
        "at", "station", "health", "queues", "counts", "workers", "tasks", "flows", "channels", "models", "commands",
        "alarms", "substitutions",
    }  # fmt: skip
    parts = [part for name, part in found.items() if name not in ("at", "station", "health")]
    assert {part["state"] for part in parts} == {"current"} and all(part["at"] <= found["at"] for part in parts)
    assert found["station"] == {"name": "small", "version": "1.2.3"}
    assert found["health"]["status"] == "ok"
    assert {"name": "high", "length": 0, "paused": True} in found["queues"]["data"]
    assert found["counts"]["data"]["submitted"] == 25 and found["counts"]["data"]["SUCCESS"] == 0
    assert [w["id"] for w in found["workers"]["data"]] == ["by-hand", worker.id]
    assert [task["id"] for task in found["tasks"]["data"]] == [f"t{number:02}" for number in range(24, 4, -1)]


async def submit(station: SmallStation, task_id: str, value: Any = None) -> None:
    raw = {"type": "echo", "id": task_id, "args": [value]}
    types = await station.control.types()
    await station.tasks.submit(check_tasks([raw], types, now_ms=station.plane.clock.now_ms(), max_payload=10**6))


async def test_long_values_are_left_out_of_the_picture(live: Live, station: SmallStation) -> None:
    worker = await station.offer(capacity=9, worker_id="free")
    await submit(station, "long", "x" * 100_000)
    error = json.dumps({"error": {"type": "E", "message": "m" * 5000, "traceback": "t" * 5000}}).encode()
    await station.finish(worker, Status.DEAD, error)
    reader, writer = await live.get("/api/v1/events")
    (task,) = (await snapshot(reader))["tasks"]["data"]
    await leave(writer)
    assert task["args"] is None and task["error"] == {"type": "E", "message": "m" * 500, "traceback": ""}


async def test_all_clients_share_one_poller_that_ends_with_the_last(
    live: Live, station: SmallStation, eventually: Eventually
) -> None:
    assert not live.is_polling
    clients = [await live.get("/api/v1/events") for _ in range(5)]
    numbers = [await snapshot(reader) for reader, _ in clients]
    calls = station.health_calls
    assert len({found["at"] for found in numbers}) <= 2
    await asyncio.gather(*(snapshot(reader) for reader, _ in clients))
    assert station.health_calls - calls <= 2
    await leave(*(writer for _, writer in clients[:4]))
    await snapshot(clients[4][0])
    assert live.is_polling
    await leave(clients[4][1])
    await eventually(lambda: not live.is_polling)
    calls = station.health_calls
    reader, writer = await live.get("/api/v1/events")
    await snapshot(reader)  # and it starts again
    assert station.health_calls > calls
    await leave(writer)


async def test_a_client_that_does_not_read_gets_the_newest_snapshot_and_holds_up_nobody(
    live: Live, station: SmallStation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Big and quick snapshots fill the socket's buffers in a moment.
    monkeypatch.setattr("tradewind.api.snapshots.EVERY_S", 0.0)
    monkeypatch.setattr(SmallStation, "version", "v" * 1_000_000)
    with closing(socket.socket()) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", live.port))
        slow.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost:{live.port}\r\n\r\n".encode())
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port, limit=2**22)
        writer.write(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost:{live.port}\r\n\r\n".encode())
        for _ in range(25):
            await snapshot(reader)
        reached = live.app.state.snapshots._number
        got: list[int] = []

        def drain() -> None:
            text = b""
            slow.settimeout(10)
            while len(got) < 40 and (not got or got[-1] < reached):
                text += slow.recv(2**20)
                *lines, text = text.split(b"\n")
                got.extend(int(line[4:]) for line in lines if line.startswith(b"id: "))

        await asyncio.to_thread(drain)
        await leave(writer)
    assert got == sorted(set(got)) and got[-1] >= reached
    assert len(got) < reached - 10, "it was sent snapshots that were old already"


async def test_without_redis_the_stream_goes_on_and_says_down(key_prefix: str, tmp_path: Path) -> None:
    with servers.redis_server() as redis:
        async with small_station(redis.url, key_prefix, tmp_path) as station, serving(station) as live:
            await station.offer()
            reader, writer = await live.get("/api/v1/events")
            before = await snapshot(reader)
            assert before["health"]["status"] == "ok"
            redis.kill()
            found = [await snapshot(reader) for _ in range(3)]
            assert found[-1]["health"]["status"] == "down"
            assert found[-1]["at"] > before["at"]
            assert found[-1]["queues"] == {**before["queues"], "at": found[-1]["queues"]["at"], "state": "stale"}
            redis.start()
            async with asyncio.timeout(20):
                while (await snapshot(reader))["health"]["status"] != "ok":
                    pass
            await leave(writer)


async def test_what_a_frozen_store_cannot_tell_is_unknown_or_old_never_none(key_prefix: str, tmp_path: Path) -> None:
    with servers.redis_server() as redis:
        async with small_station(redis.url, key_prefix, tmp_path) as station:
            await station.rules.alarms.raise_(
                NewAlarm(rule_id="r", source="comsrv:1:m:1", level="Critical", title="hot")
            )
            async with serving(station) as live:
                reader, writer = await live.get("/api/v1/events")
                seen = (await snapshot(reader))["alarms"]
                assert (seen["state"], seen["total"], len(seen["data"])) == ("current", 1, 1)
                redis.pause()
                try:
                    async with asyncio.timeout(20):
                        while (found := await snapshot(reader))["alarms"]["state"] == "current":
                            pass
                    assert found["alarms"] == {**seen, "at": found["alarms"]["at"], "state": "stale"}
                    assert found["alarms"]["at"] < found["at"] and found["health"]["status"] == "down"
                    await leave(writer)
                    async with serving(station) as other:  # an API that has never had an answer
                        reader, writer = await other.get("/api/v1/events")
                        found = await snapshot(reader)
                        await leave(writer)
                    unknown = {"data": None, "at": None, "state": "unknown"}
                    for name in ("alarms", "flows", "channels", "models"):
                        assert found[name] == {**unknown, "total": None}, name
                    for name in ("queues", "counts", "workers", "tasks", "commands"):
                        assert found[name] == unknown, name
                finally:
                    redis.resume()
                reader, writer = await live.get("/api/v1/events")
                async with asyncio.timeout(20):
                    while (await snapshot(reader))["alarms"]["state"] != "current":
                        pass
                await leave(writer)


async def test_who_follows_values_is_told_when_nobody_can_read_them(
    key_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.api.point_feed.PATIENCE_S", 0.5)
    with servers.redis_server() as redis:
        async with small_station(redis.url, key_prefix, tmp_path) as station, serving(station) as live:
            await station.points.board.write([Batch.of_channel("1", "m", {"1": 5.0})])
            reader, writer = await live.get("/api/v1/points/live?channel=1")
            assert (await snapshot(reader))["items"][0]["value"] == 5.0
            redis.pause()
            try:
                assert "since" in await snapshot(reader)
            finally:
                redis.resume()
            assert (await snapshot(reader)) == {"items": []}, "they can be read again, and stand as they stood"
            await leave(writer)


async def test_who_follows_alarms_is_told_that_some_may_be_missing(key_prefix: str, tmp_path: Path) -> None:
    with servers.redis_server() as redis:
        async with small_station(redis.url, key_prefix, tmp_path) as station, serving(station) as live:
            reader, writer = await live.get("/api/v1/alarms/live")
            async with asyncio.timeout(10):
                while b": " not in await reader.readline():  # the comment that says that it listens
                    pass
            await live.app.state.alarm_feed.ready()
            redis.kill()
            redis.start()
            assert await snapshot(reader) == {"count": None}
            await station.rules.alarms.raise_(NewAlarm(rule_id="r", source="comsrv:1:m:1", title="hot"))
            assert (await snapshot(reader))["alarm"]["title"] == "hot"
            await leave(writer)


async def test_a_stop_ends_streams_and_long_polls_at_once(station: SmallStation) -> None:
    await submit(station, "never")
    async with serving(station) as live:
        reader, writer = await live.get("/api/v1/events")
        await snapshot(reader)
        polling, poll_writer = await live.get("/api/v1/tasks/never?wait=60")
        with closing(socket.socket()) as stuck:
            stuck.connect(("127.0.0.1", live.port))
            stuck.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost:{live.port}\r\n\r\n".encode())
            await snapshot(reader)
            began = time.monotonic()
            live.server.should_exit = True
            async with asyncio.timeout(GRACE_S):
                assert b'"QUEUED"' in await polling.read()
                assert (await reader.read()).endswith(b"0\r\n\r\n")  # a proper end, not a broken connection
        await leave(writer, poll_writer)
    assert time.monotonic() - began < GRACE_S


async def test_silence_is_filled_with_comments(
    live: Live, station: SmallStation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.api.events.HEARTBEAT_S", 0.2)
    reader, writer = await live.get("/api/v1/events")
    async with asyncio.timeout(10):
        while not (await reader.readline()).startswith(b": "):
            pass
    await leave(writer)


@pytest.mark.parametrize("headers", ["Content-Length: 10485787", "Transfer-Encoding: chunked"])
async def test_ten_megabytes_are_refused_while_they_come_in(live: Live, station: SmallStation, headers: str) -> None:
    empty = await station.stored_keys()
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n\r\n"
    writer.write(head.encode())
    part = b'{"type":"echo","args":["' + b"x" * 65536
    async with asyncio.timeout(20):
        if "chunked" in headers:
            for _ in range(60):  # of 160; the answer comes before the end of the body
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
        assert b"413" in (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
        assert b"body_too_large" in await reader.readuntil(b"}}")
    await leave(writer)
    assert await station.stored_keys() == empty


async def test_too_many_watchers_are_told_to_come_back(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.api.snapshots.MAX_WATCHERS", 0)
    reader, writer = await live.get("/api/v1/events")
    assert b"429" in await reader.readline()
    assert b"too_many_watchers" in await reader.readuntil(b"}}")
    await leave(writer)
