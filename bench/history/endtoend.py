"""From a write to the board to the sink: a paced writer, Redis, the recording role (`tradewind run hissrv`).

    .venv/bin/python bench/history/endtoend.py [--quick] [--influx] [--rate N] [--seconds N]

100 channels of 1,000 points change in turn, a channel with each write. All processes share the machine. The lag is the
age of the oldest entry of the feed that is not stored yet, twice a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import redis
import uvloop
from common import cpu_s, percentile, quiet_logs, server_of, servers

from tradewind.history.sqlite import SqliteSink
from tradewind.history.status import feed_lag
from tradewind.history.store import CONSUMER, HistoryStore
from tradewind.points.board import Batch, Board
from tradewind.points.feed_trim import trim_feed
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.station_history import folder_of

POINTS, CHANNELS = 1000, 100
#: A little more than the goal: at exactly the goal nobody could reach it.
RATE = 106_000
SECONDS = 40.0
LOOK_S = 0.5
#: The lag "at 10 s" and "at the end" are medians over so long.
WINDOW_S = 10.0
SETTLE_S = 60.0


@dataclass(frozen=True, slots=True)
class EndFigures:
    """`rate`: points a second, from the first write until the last one is stored. `late_s`: how far the writer was
    behind its plan at the end. CPU as shares of a core."""

    server: str
    sink: str
    points: int
    seconds: float
    rate: float
    late_s: float
    early_ms: float
    end_ms: float
    p50_ms: float
    p99_ms: float
    most_ms: float
    drain_s: float
    spooled: int
    batches: int
    cpu_us: dict[str, float]
    shares: dict[str, float]


async def write(url: str, rate: float, seconds: float) -> None:
    """The writer, a process of its own. Points a second are kept by a plan: who is late catches up."""
    chance = random.Random(1)
    names = [str(10_001 + at) for at in range(POINTS)]
    sets = [{name: round(chance.uniform(-1000, 1000), 2) for name in names} for _ in range(16)]
    link = await open_link(RedisSettings(url=url))
    board = Board(PointPlane(link, Settings()))
    count = int(rate * seconds / POINTS)
    print("ready", flush=True)
    sys.stdin.readline()
    began, wall_ms = time.monotonic(), time.time_ns() // 1_000_000
    for at in range(count):
        due = at * POINTS / rate
        wait = began + due - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        ts_ms = wall_ms + round(due * 1000)
        await board.write([Batch.of_channel(str(1001 + at % CHANNELS), "m", sets[at % 16], ts_ms)])
    took = time.monotonic() - began
    print(json.dumps({"points": count * POINTS, "late_s": max(0.0, took - count * POINTS / rate)}), flush=True)
    await link.close()
    sys.stdin.readline()  # stays until its CPU time is read


@contextlib.contextmanager
def recording(redis_url: str, influx_url: str, folder: Path) -> Iterator[int]:
    """The role as a station starts it; yields its pid."""
    env = {**os.environ, "TRADEWIND_REDIS_URL": redis_url, "TRADEWIND_INFLUX_URL": influx_url}
    argv = [sys.executable, "-m", "tradewind.cli", "run", "hissrv", "--data-dir", str(folder)]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([*argv, "--log-level", "WARNING"], env=env, stdout=log, stderr=log)
    try:
        with redis.Redis.from_url(redis_url) as client:
            servers.wait_for(
                lambda: process.poll() is not None or bool(client.exists("history:status")), "the role", 30
            )
        if process.poll() is not None:
            raise RuntimeError(f"the role ended: {(folder / 'log').read_text()[-2000:]}")
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


class Measuring:
    def __init__(self, plane: PointPlane) -> None:
        self._plane = plane
        self._spool = folder_of(plane.all_settings) / "spool"
        self.lags: list[tuple[float, float]] = []

    async def look(self, began: float) -> None:
        """Every half second; and trims the feed as the leader of a station does."""
        at = 0
        while True:
            self.lags.append((time.monotonic() - began, await self._lag_ms()))
            at += 1
            if at % 2 == 0:
                await trim_feed(self._plane)
            await asyncio.sleep(LOOK_S)

    async def until_stored(self) -> None:
        """In the sink; what went to the disk of the recorder is not there yet."""
        async with asyncio.timeout(SETTLE_S):
            while (await feed_lag(self._plane, CONSUMER, 0))[0] or any(self._spool.glob("*.seg")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def around(self, start_s: float, end_s: float) -> float:
        return statistics.median(lag for at, lag in self.lags if start_s <= at < end_s)

    async def _lag_ms(self) -> float:
        seconds, micros = await self._plane.redis.time()
        return (await feed_lag(self._plane, CONSUMER, seconds * 1000 + micros // 1000))[1]


async def count_of(settings: Settings) -> int:
    """Samples in the sink."""
    if not settings.influx.url:
        async with SqliteSink(folder_of(settings)) as sink:
            await sink.keep_up()  # until then rows that came twice are counted twice
            return (await sink.stats()).rows
    params = {"db": settings.influx.database, "q": "SELECT count(value) FROM telemetry"}
    async with httpx.AsyncClient(trust_env=False, timeout=SETTLE_S) as client:
        answer = (await client.get(f"{settings.influx.url}/query", params=params)).json()
    return int(answer["results"][0]["series"][0]["values"][0][1])


async def run(url: str, pids: dict[str, int], settings: Settings, rate: float, seconds: float) -> dict[str, Any]:
    link = await open_link(RedisSettings(url=url))
    plane = PointPlane(link, settings)
    measuring = Measuring(plane)
    argv = [sys.executable, __file__, "--writer", url, "--rate", str(rate), "--seconds", str(seconds)]
    writer = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdin is not None and writer.stdout is not None
    await writer.stdout.readline()
    pids = {**pids, "writer": writer.pid}
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    writer.stdin.write(b"\n")
    began = time.monotonic()
    looking = asyncio.create_task(measuring.look(began))
    told = json.loads(await writer.stdout.readline())
    wrote_s = time.monotonic() - began
    looking.cancel()
    await measuring.until_stored()
    stored_s = time.monotonic() - began
    cpu = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
    writer.stdin.close()
    await writer.wait()
    await asyncio.sleep(1.5)  # the status is written once a second
    status = await HistoryStore(link, plane.keys).status()
    await link.close()
    lags = [lag for at, lag in measuring.lags if at >= 2]
    window = min(WINDOW_S, seconds / 3)
    return {
        "points": told["points"],
        "seconds": seconds,
        "rate": told["points"] / stored_s,
        "late_s": told["late_s"],
        "early_ms": measuring.around(
            10 - window / 2 if seconds >= 20 else 1, 10 + window / 2 if seconds >= 20 else window
        ),
        "end_ms": measuring.around(wrote_s - window, wrote_s),
        "p50_ms": percentile(lags, 0.5),
        "p99_ms": percentile(lags, 0.99),
        "most_ms": max(lags),
        "drain_s": stored_s - wrote_s,
        "spooled": int(status["spooled"]),
        "batches": int(status["batches"]),
        "cpu_us": {name: 1e6 * spent / told["points"] for name, spent in cpu.items()},
        "shares": {name: spent / stored_s for name, spent in cpu.items()},
    }


def measure(
    *, is_influx: bool = False, is_quick: bool = False, rate: float = RATE, seconds: float = SECONDS
) -> EndFigures:
    quiet_logs()
    seconds = min(seconds, 15) if is_quick else seconds
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(server_of(is_valkey=False))
        influx = stack.enter_context(servers.influx_server()) if is_influx else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-bench-")))
        groups = {"influx": {"url": influx.url if influx else ""}, "data_dir": str(folder)}
        settings = Settings.model_validate(groups)
        pid = stack.enter_context(recording(place.url, influx.url if influx else "", folder))
        pids = {"recorder": pid, "Redis": place.pid} | ({"InfluxDB": influx.pid} if influx else {})
        found = uvloop.run(run(place.url, pids, settings, rate, seconds))
        stored = uvloop.run(count_of(settings))
        if stored != found["points"]:
            raise RuntimeError(f"{stored} samples in the sink, {found['points']} were written")
        return EndFigures(place.name, "InfluxDB" if influx else "embedded", **found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument("--influx", action="store_true", help="into InfluxDB instead of the embedded sink")
    parser.add_argument("--rate", type=float, default=RATE, help="points a second")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.writer:
        uvloop.run(write(options.writer, options.rate, options.seconds))
        return
    import goals
    import report

    import parts

    found = measure(is_influx=options.influx, is_quick=options.quick, rate=options.rate, seconds=options.seconds)
    print(f"{parts.verdict_table(goals.of_end(found))}\n\n{report.end_text(found)}")


if __name__ == "__main__":
    main()
