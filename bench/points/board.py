"""What the board costs: writes of 1,000-point batches beside hand-packed bytes and redis-py, reads, memory.

    .venv/bin/python bench/points/board.py [--quick] [--valkey]

Takes about a minute and writes nothing. Every way of writing formats its numbers anew. `points/s` is by the clock, one
batch after the other; `cpu` is what client and server spent together on a point, which a busy machine hardly changes.

redis-py, which stores the values and nothing else, is measured in the three ways that people use it: blocking with
hiredis, on asyncio as the board is, and blocking without hiredis. The goal of twice redis-py is judged for each.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import hiredis
import redis
import redis.asyncio
import uvloop
from redis.connection import PythonRespSerializer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests import servers

from tradewind.points.board import Batch, Board
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings

POINTS = 1000
KEY, TIMES, FEED = "comsrv:1:m", "comsrv:1:m:ts", "points:feed"
IDS = [str(10_001 + i) for i in range(POINTS)]
Values = dict[str, float]


def samples(count: int) -> list[Values]:
    chance = random.Random(1)
    return [{name: chance.uniform(-1000, 1000) for name in IDS} for _ in range(count)]


def server_cpu_s(client: redis.Redis) -> float:
    info: Any = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


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
        self.send(hiredis.pack_command(("HSET", KEY, *flat)), 1)

    def pieces(self, values: Values) -> bytes:
        """The same bytes as the board stores: values, times and the feed entry."""
        self._ms += 1
        ms = str(self._ms)
        text = (":%.6f,".join(values) + ":%.6f") % tuple(values.values())
        flat = text.replace(":", ",").split(",")
        times = [ms] * len(flat)
        times[::2] = flat[::2]
        entry = ("XADD", FEED, "*", "k", KEY, "t", ms, "d", text)
        return b"".join(map(hiredis.pack_command, [("HSET", KEY, *flat), ("HSET", TIMES, *times), entry]))

    def everything(self, values: Values) -> None:
        self.send(self.pieces(values), 3)


Write = Callable[[Values], Awaitable[Any]]


def awaited(write: Callable[[Values], Any]) -> Write:
    async def call(values: Values) -> None:
        write(values)

    return call


class Row:
    def __init__(self) -> None:
        self.rates: list[float] = []
        self.client_ns: list[float] = []
        self.server_ns: list[float] = []

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def cpu_ns(self) -> float:
        return statistics.median(map(sum, zip(self.client_ns, self.server_ns, strict=True)))


async def measure(write: Write, client: redis.Redis, batches: int, row: Row) -> None:
    data = samples(16)
    client.delete(FEED)
    for values in data[:4]:
        await write(values)
    server_s, client_s, began = server_cpu_s(client), time.process_time(), time.perf_counter()
    for number in range(batches):
        await write(data[number % 16])
    wall_s, used_s = time.perf_counter() - began, time.process_time() - client_s
    points = batches * POINTS
    row.rates.append(points / wall_s)
    row.client_ns.append(used_s / points * 1e9)
    row.server_ns.append((server_cpu_s(client) - server_s) / points * 1e9)


def verdict(name: str, ratio: float, goal: float, text: str) -> None:
    print(f"  {'REACHED' if ratio >= goal else 'NOT REACHED':12} {name}: {text}")


def ratio(mine: Row, other: Row) -> float:
    """By the clock, pass by pass: a slow spell of the machine hits both."""
    return statistics.median(a / b for a, b in zip(mine.rates, other.rates, strict=True))


def ratios(mine: Row, other: Row) -> str:
    return f"{ratio(mine, other):.2f} by the clock, {other.cpu_ns / mine.cpu_ns:.2f} by cpu"


async def writes(board: Board, client: redis.Redis, port: int, passes: int, batches: int) -> None:
    hand = HandPacked(port)
    blocking, on_asyncio = redis.Redis(port=port), redis.asyncio.Redis(port=port)
    without = redis.Redis(port=port, single_connection_client=True)
    without.connection._command_packer = PythonRespSerializer(6000, without.connection.encoder.encode)  # type: ignore[union-attr]
    ready = [(data := hand.pieces(values), data.count(b"HSET") + 1) for values in samples(16)]
    turn = iter(range(10**9))

    def formatted(values: Values) -> dict[str, str]:
        return {name: f"{value:.6f}" for name, value in values.items()}

    async def redis_asyncio(values: Values) -> None:
        await on_asyncio.hset(KEY, mapping=formatted(values))  # type: ignore[misc]

    async def ours(values: Values) -> None:
        await board.write([Batch.of_channel("1", "m", values)])

    ways: dict[str, Write] = {
        "redis-py, blocking": awaited(lambda values: blocking.hset(KEY, mapping=formatted(values))),
        "redis-py, asyncio": redis_asyncio,
        "redis-py, without hiredis": awaited(lambda values: without.hset(KEY, mapping=formatted(values))),
        "hand-packed, values only": awaited(hand.values),
        "hand-packed, the same bytes": awaited(hand.everything),
        "ready-made, the same bytes": awaited(lambda _: hand.send(*ready[next(turn) % 16])),
        "Board.write": ours,
    }
    rows = {name: Row() for name in ways}
    for _ in range(passes):
        for name, write in ways.items():
            await measure(write, client, batches, rows[name])
    print(f"{'1,000-point batches':30} {'points/s':>10} {'client':>9} {'server':>9} {'cpu':>9}   (ns a point)")
    for name, row in rows.items():
        parts = statistics.median(row.client_ns), statistics.median(row.server_ns), row.cpu_ns
        print(f"{name:30} {row.rate:10,.0f} {parts[0]:9.0f} {parts[1]:9.0f} {parts[2]:9.0f}")
    mine = rows["Board.write"]
    goals = {name: 2.0 for name in rows if name.startswith("redis-py")} | {"hand-packed, the same bytes": 0.7}
    for name, goal in goals.items():
        verdict(f"Board.write / {name}", ratio(mine, rows[name]), goal, f"{ratios(mine, rows[name])} (goal {goal:g})")
    for name in ("hand-packed, values only", "ready-made, the same bytes"):
        print(f"  {'':12} Board.write / {name}: {ratios(mine, rows[name])}")
    await on_asyncio.aclose()


async def reads(board: Board, client: redis.Redis, count: int) -> None:
    await board.write([Batch.of_channel("1", "m", samples(1)[0])])
    took = []
    used_s = time.process_time() + server_cpu_s(client)
    for _ in range(count):
        began = time.perf_counter()
        assert len(await board.read_channel("1", ["m"])) == POINTS
        took.append((time.perf_counter() - began) * 1000)
    cpu_ms = (time.process_time() + server_cpu_s(client) - used_s) / count * 1000
    took.sort()
    p50, p99 = statistics.median(took), took[int(count * 0.99)]
    verdict(
        "read of a 1,000-point channel",
        2 / p50,
        1,
        f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, cpu {cpu_ms:.2f} ms (goal p50 2 ms)",
    )


async def memory(board: Board, client: redis.Redis, channels: int) -> None:
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
    text = f"values {values * scale:.1f} MB (goal 80), timestamps {(all_of_it - values) * scale:.1f} MB more"
    verdict("memory of 1,000,000 points", 80 / (values * scale), 1, text)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--valkey", action="store_true", help="the embedded server instead of redis-server")
    options = parser.parse_args()
    with servers.valkey_server() if options.valkey else servers.redis_server() as server:
        client = redis.Redis(port=server.port)
        link = await open_link(RedisSettings(url=server.url))
        board = Board(PointPlane(link, Settings()))
        info: Any = client.info("server")
        print(f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}")
        passes, batches = (3, 60) if options.quick else (9, 200)
        await writes(board, client, server.port, passes, batches)
        await reads(board, client, 100 if options.quick else 1000)
        await memory(board, client, 100 if options.quick else 1000)
        await link.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
