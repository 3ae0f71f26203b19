"""What the board costs: writes of 1,000-point batches beside hand-packed bytes and redis-py, reads, memory.

    .venv/bin/python bench/points/board.py [--quick] [--valkey]

Takes about a minute and writes nothing. Every way of writing formats its numbers anew. `points/s` is by the clock, one
batch after the other; `cpu` is what client and server spent together on a point, which a busy machine hardly changes.

redis-py, which stores the values and nothing else, is measured in the three ways that people use it: blocking with
hiredis, on asyncio as the board is, and blocking without hiredis. The goal of twice redis-py is judged for each.
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import hiredis
import redis
import redis.asyncio
import uvloop
from redis.connection import PythonRespSerializer
from shared import percentile, quiet_logs, server_cpu_s, server_of

from tradewind.points.board import Batch, Board
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings

POINTS = 1000
KEY, TIMES, FEED = "comsrv:1:m", "comsrv:1:m:ts", "points:feed"
IDS = [str(10_001 + i) for i in range(POINTS)]
OURS, SAME_BYTES = "Board.write", "hand-packed, the same bytes"
Values = dict[str, float]
pack: Callable[[Any], bytes] = hiredis.pack_command


@dataclass
class Way:
    """One way of writing; a figure per pass."""

    name: str
    rates: list[float] = field(default_factory=list)
    client_ns: list[float] = field(default_factory=list)
    server_ns: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Points a second."""
        return statistics.median(self.rates)

    @property
    def cpu_ns(self) -> float:
        return statistics.median(map(sum, zip(self.client_ns, self.server_ns, strict=True)))

    def ratio(self, other: Way) -> float:
        """By the clock, pass by pass: a slow spell of the machine hits both."""
        return statistics.median(a / b for a, b in zip(self.rates, other.rates, strict=True))


@dataclass(frozen=True, slots=True)
class BoardFigures:
    server: str
    ways: dict[str, Way]
    read_p50_ms: float
    read_p99_ms: float
    read_cpu_ms: float
    #: Of one million points.
    values_mb: float
    times_mb: float


def samples(count: int) -> list[Values]:
    chance = random.Random(1)
    return [{name: chance.uniform(-1000, 1000) for name in IDS} for _ in range(count)]


class HandPacked:
    """A bare socket: what a program gets that does nothing but format, pack and send."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._ms = 1_700_000_000_000

    def send(self, data: bytes, replies: int) -> None:
        self._socket.sendall(data)
        while replies:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(65536))
            elif isinstance(reply, Exception):
                raise reply
            else:
                replies -= 1

    def values(self, values: Values) -> None:
        flat = [part for name, value in values.items() for part in (name, f"{value:.6f}")]
        self.send(pack(("HSET", KEY, *flat)), 1)

    def pieces(self, values: Values) -> bytes:
        """The same bytes as the board stores: values, times and the feed entry."""
        self._ms += 1
        ms = str(self._ms)
        text = (":%.6f,".join(values) + ":%.6f") % tuple(values.values())
        flat = text.replace(":", ",").split(",")
        times = [ms] * len(flat)
        times[::2] = flat[::2]
        entry = ("XADD", FEED, "*", "k", KEY, "t", ms, "d", text)
        return b"".join(map(pack, [("HSET", KEY, *flat), ("HSET", TIMES, *times), entry]))

    def everything(self, values: Values) -> None:
        self.send(self.pieces(values), 3)

    def close(self) -> None:
        self._socket.close()


Write = Callable[[Values], Awaitable[Any]]


def awaited(write: Callable[[Values], Any]) -> Write:
    async def call(values: Values) -> None:
        write(values)

    return call


async def one_pass(write: Write, client: redis.Redis, batches: int, way: Way) -> None:
    data = samples(16)
    client.delete(FEED)
    for values in data[:4]:
        await write(values)
    server_s, client_s, began = server_cpu_s(client), time.process_time(), time.perf_counter()
    for at in range(batches):
        await write(data[at % 16])
    wall_s, used_s = time.perf_counter() - began, time.process_time() - client_s
    points = batches * POINTS
    way.rates.append(points / wall_s)
    way.client_ns.append(used_s / points * 1e9)
    way.server_ns.append((server_cpu_s(client) - server_s) / points * 1e9)


async def writes(board: Board, client: redis.Redis, port: int, passes: int, batches: int) -> dict[str, Way]:
    hand = HandPacked(port)
    blocking, on_asyncio = redis.Redis(port=port), redis.asyncio.Redis(port=port)
    without = redis.Redis(port=port, single_connection_client=True)
    without.connection._command_packer = PythonRespSerializer(6000, without.connection.encoder.encode)  # type: ignore[union-attr]
    ready = [(data := hand.pieces(values), data.count(b"HSET") + 1) for values in samples(16)]
    turn = iter(range(10**9))

    def formatted(values: Values) -> Any:
        return {name: f"{value:.6f}" for name, value in values.items()}

    async def redis_asyncio(values: Values) -> None:
        await on_asyncio.hset(KEY, mapping=formatted(values))

    async def ours(values: Values) -> None:
        await board.write([Batch.of_channel("1", "m", values)])

    kinds: dict[str, Write] = {
        "redis-py, blocking, hiredis": awaited(lambda values: blocking.hset(KEY, mapping=formatted(values))),
        "redis-py, asyncio, hiredis": redis_asyncio,
        "redis-py, blocking, without hiredis": awaited(lambda values: without.hset(KEY, mapping=formatted(values))),
        "hand-packed, values only": awaited(hand.values),
        SAME_BYTES: awaited(hand.everything),
        "ready-made, the same bytes": awaited(lambda _: hand.send(*ready[next(turn) % 16])),
        OURS: ours,
    }
    ways = {name: Way(name) for name in kinds}
    for _ in range(passes):
        for name, write in kinds.items():
            await one_pass(write, client, batches, ways[name])
    await on_asyncio.aclose()
    for closed in (hand, blocking, without):
        closed.close()
    return ways


async def reads(board: Board, client: redis.Redis, count: int) -> tuple[float, float, float]:
    """Milliseconds of reading the whole channel: p50, p99, cpu of client and server."""
    await board.write([Batch.of_channel("1", "m", samples(1)[0])])
    took = []
    used_s = time.process_time() + server_cpu_s(client)
    for _ in range(count):
        began = time.perf_counter()
        assert len(await board.read_channel("1", ["m"])) == POINTS
        took.append((time.perf_counter() - began) * 1000)
    cpu_ms = (time.process_time() + server_cpu_s(client) - used_s) / count * 1000
    return percentile(took, 0.5), percentile(took, 0.99), cpu_ms


async def memory(board: Board, client: redis.Redis, channels: int) -> tuple[float, float]:
    """Megabytes that a million points take: the values, and what their times add."""
    client.flushall()
    data = samples(4)

    def used() -> int:
        info: Any = client.info("memory")
        return int(info["used_memory"])

    empty = used()
    for channel in range(channels):
        await board.write([Batch.of_channel(str(channel), "m", data[channel % 4])])
        if channel % 50 == 49:
            client.delete(FEED)
    client.delete(FEED)
    all_of_it = used() - empty
    for channel in range(channels):
        client.delete(f"comsrv:{channel}:m:ts", f"comsrv:{channel}:m:mark")
    values = used() - empty
    scale = 1000 / channels / 1e6
    return values * scale, (all_of_it - values) * scale


async def _measure(url: str, port: int, name: str, is_quick: bool) -> BoardFigures:
    client = redis.Redis(port=port)
    link = await open_link(RedisSettings(url=url))
    board = Board(PointPlane(link, Settings()))
    passes, batches = (2, 20) if is_quick else (9, 200)
    try:
        ways = await writes(board, client, port, passes, batches)
        read = await reads(board, client, 50 if is_quick else 1000)
        return BoardFigures(name, ways, *read, *await memory(board, client, 50 if is_quick else 1000))
    finally:
        await link.close()
        client.close()


def measure(*, is_valkey: bool = False, is_quick: bool = False) -> BoardFigures:
    quiet_logs()
    with server_of(is_valkey=is_valkey) as server:
        return uvloop.run(_measure(server.url, server.port, server.name, is_quick))


def main() -> None:
    import goals
    import report

    import parts

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument("--valkey", action="store_true", help="the embedded server instead of redis-server")
    options = parser.parse_args()
    found = measure(is_valkey=options.valkey, is_quick=options.quick)
    print(f"{parts.verdict_table(goals.of_board(found))}\n\n{report.board_text(found)}")


if __name__ == "__main__":
    main()
