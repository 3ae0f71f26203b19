"""How fast samples get into InfluxDB: the sink, a bare client with ready-made lines, and the clients that people use.

    .venv/bin/python bench/history/influx.py [--quick]

All write the same samples to the same server, in turns, each time of another hour; a peer, being slower, fewer of them.
The sink and the bare client write plain text, as the sink does on one machine, and compressed. Peers have environments
of their own (setup_peers.sh); one that is not there has no row.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2 as httpx
import uvloop
from common import HERE, REPO, Samples, cpu_s, passes, quiet_logs, servers

from tradewind.clock import now_ms
from tradewind.history.columns import Columns
from tradewind.history.influx import MAX_LINES, InfluxSink
from tradewind.history.influx_line import LineMaker
from tradewind.history.sample import Row
from tradewind.settings import InfluxSettings

SERIES = 1000
DATABASE = "bench"
HOUR_MS = 3_600_000
BODIES = {"plain": False, "gzip": True}
CALLS = (5000, 20_000)
#: So many samples one way writes before it is the next one's turn.
PORTION = 20_000
#: What all passes together may take.
SECONDS = 150
#: Every so many passes the peers take part.
PEER_TURNS = 2
VENVS = REPO / ".bench-venvs"
#: The peer of the target; the others are shown.
PEER = "influxdb-client, batching, ready-made dicts"
#: Program, environment, and what it is given.
PEERS = {
    PEER: ("influxdb_client_app.py", "influxdb-client", "dicts"),
    "influxdb-client, batching, ready-made lines": ("influxdb_client_app.py", "influxdb-client", "lines"),
    "influxdb (1.x client), ready-made dicts": ("influxdb_app.py", "influxdb", "dicts"),
}


@dataclass
class Way:
    """One way of writing; a figure per pass. `body`: plain or gzip."""

    name: str
    body: str = "plain"
    rates: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Samples a second."""
        return statistics.median(self.rates)

    def ratios(self, other: Way) -> list[float]:
        """Pass by pass, of a way that took part in all of them too."""
        return [mine / its for mine, its in zip(self.rates, other.rates, strict=True)]

    def ratio(self, other: Way) -> float:
        return statistics.median(self.ratios(other))

    def note(self, count: int, seconds: float, client_s: float, server_s: float) -> None:
        self.rates.append(count / seconds)
        self.client_us.append(1e6 * client_s / count)
        self.server_us.append(1e6 * server_s / count)


@dataclass(frozen=True, slots=True)
class InfluxFigures:
    server: str
    samples: int
    peer_samples: int
    ways: dict[str, Way]
    #: Peers whose environment is not there.
    missing: list[str]


def bare(body: str) -> str:
    return f"bare client, ready-made lines, {body}"


def ours(rows_a_call: int, body: str) -> str:
    return f"sink, {rows_a_call:,} rows a call, {body}"


#: What the recorder does not do, but others may: not judged.
AS_LIST = f"{ours(CALLS[0], 'plain')}, a list of rows"


class Lane:
    """A way in one pass: its portions are ready, `send` writes a piece of one."""

    def __init__(self, way: Way, hour: int, pieces: list[Any], send: Callable[[Any], Awaitable[object]]) -> None:
        self.way, self.hour = way, hour
        self._pieces, self._send = pieces, send
        self._spent = [0.0, 0.0, 0.0]

    async def go(self, portion: int, portions: int, pid: int) -> None:
        each = len(self._pieces) // portions
        before = time.perf_counter(), time.process_time(), cpu_s(pid)
        for piece in self._pieces[portion * each : (portion + 1) * each]:
            await self._send(piece)
        after = time.perf_counter(), time.process_time(), cpu_s(pid)
        self._spent = [spent + b - a for spent, a, b in zip(self._spent, before, after, strict=True)]

    def end(self, count: int) -> None:
        self.way.note(count, *self._spent)


class Run:
    def __init__(self, server: servers.Server, count: int, peer_count: int) -> None:
        self._server = server
        self._count, self._peer_count = count, peer_count
        self._step_ms = min(1000, HOUR_MS // (count // SERIES))
        self._hour = now_ms() // HOUR_MS - 500
        self.ways: dict[str, Way] = {}

    async def one_pass(self, turn: int) -> None:
        """Portion by portion, every way in its turn: what else the machine does meets them all alike."""
        async with AsyncExitStack() as stack:
            lanes = []
            for body, is_gzip in BODIES.items():
                lanes.append(await self._bare(stack, body, is_gzip))
                lanes += [await self._ours(stack, ours(each, body), body, each) for each in CALLS]
            lanes.append(await self._ours(stack, AS_LIST, "plain", CALLS[0], is_list=True))
            gc.collect()
            gc.freeze()  # what is ready-made is not the work of any of them
            portions = self._count // PORTION
            for portion in range(portions):
                first = (turn + portion) % len(lanes)
                for lane in lanes[first:] + lanes[:first]:
                    await lane.go(portion, portions, self._server.pid)
            gc.unfreeze()
        for lane in lanes:
            self._check(lane.way.name, lane.hour, self._count)
            lane.end(self._count)

    def peers_pass(self, names: list[str]) -> None:
        for name in names:
            program, venv, kind = PEERS[name]
            way, hour = self._next(name)
            argv = [
                str(VENVS / venv / "bin" / "python"),
                str(HERE / "apps" / program),
                self._server.url,
                DATABASE,
                kind,
            ]
            argv += map(str, (SERIES, self._peer_count // SERIES, hour * HOUR_MS, self._step_ms, MAX_LINES))
            before = cpu_s(self._server.pid)
            done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
            found = json.loads(done.stdout)
            self._check(name, hour, self._peer_count)
            way.note(self._peer_count, found["seconds"], found["cpu_s"], cpu_s(self._server.pid) - before)

    def _next(self, name: str, body: str = "plain") -> tuple[Way, int]:
        self._hour += 1
        return self.ways.setdefault(name, Way(name, body)), self._hour

    def _rows(self, hour: int) -> list[Row]:
        return Samples(SERIES, hour * HOUR_MS, self._step_ms).rows(0, self._count // SERIES)

    async def _bare(self, stack: AsyncExitStack, body: str, is_gzip: bool) -> Lane:
        way, hour = self._next(bare(body), body)
        rows = self._rows(hour)
        pieces = [LineMaker().make(rows[at : at + MAX_LINES]).lines for at in range(0, len(rows), MAX_LINES)]
        params = {"db": DATABASE, "precision": "ms"}
        headers = {"Content-Encoding": "gzip"} if is_gzip else {}
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=self._server.url, trust_env=False, timeout=60)
        )
        (await client.get("/ping")).raise_for_status()  # connects

        async def send(lines: list[str]) -> None:
            text = "\n".join(lines).encode()
            content = gzip.compress(text, 1, mtime=0) if is_gzip else text
            response = await client.post("/write", params=params, content=content, headers=headers)
            response.raise_for_status()

        return Lane(way, hour, pieces, send)

    async def _ours(self, stack: AsyncExitStack, name: str, body: str, each: int, *, is_list: bool = False) -> Lane:
        way, hour = self._next(name, body)
        made = self._rows(hour)
        rows = made if is_list else Columns(made)  # as the recorder has them
        pieces = [rows[at : at + each] for at in range(0, len(rows), each)]
        word: Literal["always", "never"] = "always" if BODIES[body] else "never"
        settings = InfluxSettings(url=self._server.url, database=DATABASE, gzip=word)
        sink = await stack.enter_async_context(InfluxSink(settings))
        await sink.write(made[:1])  # connects; the first write asks which series have marks of quality
        return Lane(way, hour, pieces, sink.write)

    def _check(self, name: str, hour: int, count: int) -> None:
        start = hour * HOUR_MS
        text = f"SELECT count(value) FROM telemetry WHERE time >= {start}ms AND time < {start + HOUR_MS}ms"
        answer = httpx.get(
            f"{self._server.url}/query", params={"db": DATABASE, "q": text}, timeout=60, trust_env=False
        ).json()
        stored = answer["results"][0]["series"][0]["values"][0][1]
        if stored != count:
            raise RuntimeError(f"{name}: {stored} samples in the server, {count} were written")


def measure(*, is_quick: bool = False) -> InfluxFigures:
    quiet_logs()
    most, count, peer_count = (2, 100_000, 50_000) if is_quick else (7, 300_000, 100_000)
    peers = [name for name, (_, venv, _) in PEERS.items() if (VENVS / venv / ".ready").exists()]
    with servers.influx_server() as server:
        ping = httpx.get(f"{server.url}/ping", trust_env=False)
        httpx.post(f"{server.url}/query", params={"q": f"CREATE DATABASE {DATABASE}"}, trust_env=False)
        run = Run(server, count, peer_count)
        uvloop.run(run.one_pass(0))  # a warm-up: series are made, files grow
        run.ways.clear()
        for turn in passes(most, SECONDS):
            uvloop.run(run.one_pass(turn))
            run.peers_pass(peers if turn % PEER_TURNS == 0 else [])
        name = f"InfluxDB {ping.headers.get('x-influxdb-version', '')}"
        return InfluxFigures(name, count, peer_count, run.ways, [name for name in PEERS if name not in peers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    options = parser.parse_args()
    import goals
    import report

    import parts

    found = measure(is_quick=options.quick)
    print(f"{parts.verdict_table(goals.of_influx(found))}\n\n{report.influx_text(found)}")


if __name__ == "__main__":
    main()
