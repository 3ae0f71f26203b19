"""Odd answers between the recorder and a real InfluxDB, random damage to the spool: nothing is lost uncounted."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import servers
from tests.history.history_room import HistoryRoom, until
from tradewind.clock import now_ms
from tradewind.history import delivery
from tradewind.history.influx import InfluxSink
from tradewind.history.sample import Row
from tradewind.history.spool import Spool
from tradewind.redis.connection import open_link
from tradewind.settings import InfluxSettings, RedisSettings

FAULTS = {
    "500": b"HTTP/1.1 500 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "429": b"HTTP/1.1 429 X\r\nConnection: close\r\nRetry-After: 0.2\r\nContent-Length: 0\r\n\r\n",
    "page": b"HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 6\r\n\r\n<html>",
    "odd": b"HTTP/1.1 400 X\r\nConnection: close\r\nContent-Length: 8\r\n\r\nno, no! ",
    "no database": b'HTTP/1.1 404 X\r\nConnection: close\r\nContent-Length: 32\r\n\r\n{"error":"database not found: x"',
}


class OddProxy:
    """Every second write meets a fault, some before and some after the server has it."""

    def __init__(self, port: int) -> None:
        self.is_odd = True
        self.met: Counter[str] = Counter()
        self._target = port
        self._random = random.Random(7)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            size = next(int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length"))
            body = await reader.readexactly(size)
            fault = ""
            if self.is_odd and b"/write" in lines[0] and self._random.random() < 0.5:
                fault = self._random.choice([*FAULTS, "slow", "cut", "cut after"])
                self.met[fault] += 1
            if fault == "slow":
                await asyncio.sleep(0.7)
            is_lost = fault == "cut" or (fault in FAULTS and self._random.random() < 0.5)
            answer = b"" if is_lost else await self._forward(lines, body)
            if fault in ("", "slow"):
                writer.write(answer)
            elif fault in FAULTS:
                writer.write(FAULTS[fault])
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        writer.close()

    async def _forward(self, lines: list[bytes], body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        names = (b"connection", b"content-length")
        kept = [line for line in lines if line and line.split(b":")[0].lower() not in names]
        writer.write(b"\r\n".join([*kept, b"Connection: close", b"Content-Length: %d" % len(body), b"", body]))
        answer = await reader.read()
        writer.close()
        return answer


@contextlib.asynccontextmanager
async def odd_proxy(port: int) -> AsyncIterator[tuple[OddProxy, str]]:
    proxy = OddProxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        yield proxy, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_whatever_stands_between_costs_no_sample(
    redis_7: servers.Server, key_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SLOW_S", 0.3)
    monkeypatch.setattr(delivery, "MAX_PAUSE_S", 0.2)
    steps, points, start = 300, 20, now_ms() - 3_600_000
    link = await open_link(RedisSettings(url=redis_7.url))
    room = HistoryRoom(link, key_prefix, tmp_path)
    await room.store.put_policy({"batch_config": {"size": 60, "timeout_ms": 50}})
    with servers.influx_server() as influx:
        async with InfluxSink(InfluxSettings(url=influx.url)) as sink:
            await sink.write([Row("comsrv:1:m:1", start, 0.0)])  # makes the database
        async with odd_proxy(influx.port) as (proxy, url):
            async with room.recorder(InfluxSink(InfluxSettings(url=url))) as recorder:
                for step in range(steps):
                    await room.write(start + step, {str(point): float(step) for point in range(points)})
                    await asyncio.sleep(0.01)
                proxy.is_odd = False
                await until(lambda: recorder.figures.entries == steps and recorder._spool.is_empty)
                figures = recorder.figures
                assert (figures.dropped, figures.refused, figures.missed) == (0, 0, 0)
            assert proxy.met.total() > 5
        async with InfluxSink(InfluxSettings(url=influx.url)) as sink:
            names = [f"comsrv:1001:m:{point}" for point in range(points)]
            found = await sink.read(names, 0, start + steps, steps + 1)
    expected = [(start + step, float(step), 0) for step in range(steps)]
    assert all(found[name] == expected for name in names)
    await room.plane.close()
    await link.close()


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_to_the_spool_is_counted_to_the_row(seed: int, tmp_path: Path) -> None:
    """In a segment that is not the last: what follows an end that is torn off nobody can know."""
    chance, rows = random.Random(seed), 0
    spool = Spool(tmp_path, 400_000, 1e9)
    spool._segment_bytes = 3000
    spool.open()
    for _ in range(20):
        count = chance.randint(1, 60)
        spool.append([Row(f"comsrv:1:m:{n % 5}", rows + n, chance.random()) for n in range(count)], 1000)
        rows += count
    spool.close()
    *segments, _ = sorted(tmp_path.glob("*.seg"))
    for path in chance.sample(segments, 2):
        raw, at = bytearray(path.read_bytes()), chance.randrange(path.stat().st_size)
        match chance.choice(["flip", "cut", "zeros", "garbage", "gone"]):
            case "flip":
                raw[at] ^= 1 << chance.randrange(8)
            case "cut":
                del raw[at:]
            case "zeros":
                raw[at : at + 50] = bytes(len(raw[at : at + 50]))
            case "garbage":
                raw += chance.randbytes(100)
            case "gone":
                path.unlink()
                continue
        path.write_bytes(raw)
    spool.open()
    found = list[int]()
    while (portion := spool.peek(1000)) is not None:
        found += [row.ts_ms for row in portion.rows]
        spool.ack(portion.upto)
    assert found == sorted(set(found)) and len(found) + spool.dropped.corrupt == rows
    spool.append([Row("comsrv:1:m:1", 10**6, 1.0)], 1000)
    portion = spool.peek(9)
    assert portion is not None and [row.ts_ms for row in portion.rows] == [10**6]
    spool.close()
