"""How fast samples get into InfluxDB: the sink, a bare client with ready-made lines, and the clients that people use.

    .venv/bin/python bench/history/influx.py [--quick]

All write the same samples to the same server, in turns, each time of another hour. Peers have environments of their own
(setup_peers.sh); one that is not there has no row.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx2 as httpx
import uvloop
from common import HERE, REPO, Samples, cpu_s, quiet_logs, servers

from tradewind.clock import now_ms
from tradewind.history.influx import MAX_LINES, InfluxSink
from tradewind.history.influx_line import LineMaker
from tradewind.history.sample import Row
from tradewind.settings import InfluxSettings

SERIES = 1000
DATABASE = "bench"
HOUR_MS = 3_600_000
BARE = "bare client, ready-made lines"
CALLS = (5000, 20_000)
VENVS = REPO / ".bench-venvs"
#: Program, environment, and what it is given.
PEERS = {
    "influxdb-client, batching, ready-made dicts": ("influxdb_client_app.py", "influxdb-client", "dicts"),
    "influxdb-client, batching, ready-made lines": ("influxdb_client_app.py", "influxdb-client", "lines"),
    "influxdb (1.x client), ready-made dicts": ("influxdb_app.py", "influxdb", "dicts"),
}


@dataclass
class Way:
    """One way of writing; a figure per pass."""

    name: str
    rates: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Samples a second."""
        return statistics.median(self.rates)

    def ratio(self, other: Way) -> float:
        """Pass by pass; of a way with fewer passes, its median."""
        if len(self.rates) != len(other.rates):
            return self.rate / other.rate
        return statistics.median(a / b for a, b in zip(self.rates, other.rates, strict=True))


@dataclass(frozen=True, slots=True)
class InfluxFigures:
    server: str
    samples: int
    ways: dict[str, Way]
    #: Peers whose environment is not there.
    missing: list[str]


def ours(rows_a_call: int) -> str:
    return f"sink, {rows_a_call:,} rows a call"


class Run:
    def __init__(self, server: servers.Server, count: int) -> None:
        self._server, self._count = server, count
        self._steps = count // SERIES
        self._step_ms = min(1000, HOUR_MS // self._steps)
        self._hour = now_ms() // HOUR_MS - 500
        self.ways: dict[str, Way] = {}

    async def one_pass(self, turn: int, peers: list[str]) -> None:
        """The order changes: what comes first finds another server than what comes last."""
        works: list[tuple[str, Callable[[str], Awaitable[None]]]] = [(BARE, self._bare)]
        works += [(ours(each), self._ours(each)) for each in CALLS]
        works += [(name, self._peer) for name in peers]
        for name, work in works[turn % len(works) :] + works[: turn % len(works)]:
            self.ways.setdefault(name, Way(name))
            self._hour += 1
            await work(name)
            self._check(name)

    def _samples(self) -> Samples:
        return Samples(SERIES, self._hour * HOUR_MS, self._step_ms)

    async def _bare(self, name: str) -> None:
        rows = self._samples().rows(0, self._steps)
        lines = [LineMaker().make(rows[at : at + MAX_LINES]).lines for at in range(0, len(rows), MAX_LINES)]
        params, headers = {"db": DATABASE, "precision": "ms"}, {"Content-Encoding": "gzip"}
        async with httpx.AsyncClient(base_url=self._server.url, trust_env=False, timeout=60) as client:
            with self._timed(name):
                for some in lines:
                    body = gzip.compress("\n".join(some).encode(), 1)
                    response = await client.post("/write", params=params, content=body, headers=headers)
                    response.raise_for_status()

    def _ours(self, each: int) -> Callable[[str], Awaitable[None]]:
        async def work(name: str) -> None:
            rows = self._samples().rows(0, self._steps)
            parts: list[list[Row]] = [rows[at : at + each] for at in range(0, len(rows), each)]
            async with InfluxSink(InfluxSettings(url=self._server.url, database=DATABASE)) as sink:
                await sink.write(rows[:1])  # connects; the first write asks which series have marks of quality
                with self._timed(name):
                    for part in parts:
                        await sink.write(part)

        return work

    async def _peer(self, name: str) -> None:
        program, venv, kind = PEERS[name]
        argv = [str(VENVS / venv / "bin" / "python"), str(HERE / "apps" / program), self._server.url, DATABASE, kind]
        argv += map(str, (SERIES, self._steps, self._hour * HOUR_MS, self._step_ms, MAX_LINES))
        before = cpu_s(self._server.pid)
        done = subprocess.run(  # noqa: ASYNC221 - nothing else runs
            argv, stdout=subprocess.PIPE, text=True, check=True, timeout=600
        )
        found = json.loads(done.stdout)
        self._note(name, found["seconds"], found["cpu_s"], cpu_s(self._server.pid) - before)

    def _timed(self, name: str) -> Timed:
        return Timed(self._server.pid, lambda *figures: self._note(name, *figures))

    def _note(self, name: str, seconds: float, client_s: float, server_s: float) -> None:
        way = self.ways[name]
        way.rates.append(self._count / seconds)
        way.client_us.append(1e6 * client_s / self._count)
        way.server_us.append(1e6 * server_s / self._count)

    def _check(self, name: str) -> None:
        start = self._hour * HOUR_MS
        text = f"SELECT count(value) FROM telemetry WHERE time >= {start}ms AND time < {start + HOUR_MS}ms"
        answer = httpx.get(
            f"{self._server.url}/query", params={"db": DATABASE, "q": text}, timeout=60, trust_env=False
        ).json()
        stored = answer["results"][0]["series"][0]["values"][0][1]
        if stored != self._count:
            raise RuntimeError(f"{name}: {stored} samples in the server, {self._count} were written")


class Timed:
    """Clock, CPU of this process, CPU of the server."""

    def __init__(self, pid: int, note: Callable[[float, float, float], None]) -> None:
        self._pid, self._note = pid, note

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time(), cpu_s(self._pid)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            clock, mine, server = self._began
            self._note(time.perf_counter() - clock, time.process_time() - mine, cpu_s(self._pid) - server)


def measure(*, is_quick: bool = False) -> InfluxFigures:
    quiet_logs()
    passes, count = (2, 100_000) if is_quick else (7, 500_000)
    peers = [name for name, (_, venv, _) in PEERS.items() if (VENVS / venv / ".ready").exists()]
    with servers.influx_server() as server:
        ping = httpx.get(f"{server.url}/ping", trust_env=False)
        httpx.post(f"{server.url}/query", params={"q": f"CREATE DATABASE {DATABASE}"}, trust_env=False)
        run = Run(server, count)
        uvloop.run(run.one_pass(0, []))  # a warm-up: series are made, files grow
        run.ways.clear()
        for turn in range(passes):
            uvloop.run(run.one_pass(turn, peers if turn % 3 == 0 else []))
        name = f"InfluxDB {ping.headers.get('x-influxdb-version', '')}"
        return InfluxFigures(name, count, run.ways, [name for name in PEERS if name not in peers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    options = parser.parse_args()
    import goals
    import report

    found = measure(is_quick=options.quick)
    print(f"{report.verdict_table(goals.of_influx(found))}\n\n{report.influx_text(found)}")


if __name__ == "__main__":
    main()
