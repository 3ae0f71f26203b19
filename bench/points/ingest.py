"""Bulk ingest over HTTP: points per second through a whole API process into Redis.

    .venv/bin/python bench/points/ingest.py [--quick] [--connections 4] [--valkey]

One Redis, one API process as it ships (`tradewind run api`), one client process that sends ready-made requests on
connections that stay open. `cpu` is what the API process, and Redis, spent on a point, which a busy machine does not
change. Takes about a minute and writes nothing.
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
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import uvloop
from shared import cpu_s, free_port, quiet_logs, server_of, servers

#: Points a request, and over how many channels they are spread.
SHAPES = [(1000, 1), (1000, 10), (5000, 1), (5000, 50)]
BODIES = 20


@dataclass
class Shape:
    """Requests of one shape; a figure per pass. `api_us` and `redis_us` are CPU a point."""

    points: int
    channels: int
    rates: list[float] = field(default_factory=list)
    #: Points a second of decoding the JSON of such a request and nothing else.
    decode_rate: float = 0.0
    api_us: list[float] = field(default_factory=list)
    redis_us: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.points:,} points over {self.channels} channel{'s' if self.channels > 1 else ''}"

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


@dataclass(frozen=True, slots=True)
class IngestFigures:
    server: str
    connections: int
    seconds: float
    shapes: list[Shape]


def body(points: int, channels: int, first: int, chance: random.Random) -> bytes:
    each = points // channels
    values = {
        str(first + at): {"m": {str(10_001 + i): round(chance.uniform(-1000, 1000), 3) for i in range(each)}}
        for at in range(channels)
    }
    return json.dumps({"channels": values}, separators=(",", ":")).encode()


def requests_of(port: int, points: int, channels: int, first: int) -> list[bytes]:
    chance = random.Random(first)
    head = f"POST /api/v1/points HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    texts = [body(points, channels, first, chance) for _ in range(BODIES)]
    return [f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text for text in texts]


async def send(port: int, points: int, requests: list[bytes], until: float) -> int:
    """Requests one after the other on one connection; how many points were accepted."""
    wanted = b'{"accepted":%d}' % points
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    while time.monotonic() < until:
        writer.write(requests[sent % len(requests)])
        answer = await reader.readuntil(b"\r\n\r\n")
        text = await reader.readexactly(len(wanted))
        assert b" 200 " in answer[:20] and text == wanted, answer + text
        sent += 1
    writer.close()
    await writer.wait_closed()
    return sent * points


async def client(port: int, points: int, channels: int, connections: int, seconds: float) -> None:
    ready = [requests_of(port, points, channels, 1000 + at * channels) for at in range(connections)]
    before = sum([await send(port, points, requests[:2], time.monotonic() + 0.1) for requests in ready])  # warm-up
    print(json.dumps({"warm": before}), flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    accepted = sum(await asyncio.gather(*(send(port, points, requests, began + seconds) for requests in ready)))
    print(json.dumps({"accepted": accepted, "seconds": time.monotonic() - began}))


@contextlib.contextmanager
def api_process(redis_url: str) -> Iterator[tuple[int, int]]:
    """Port and pid."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        env = {**os.environ, "TRADEWIND_REDIS_URL": redis_url}
        command = [sys.executable, "-m", "tradewind.cli", "run", "api", "--port", str(port), "--data-dir", folder]
        with open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen([*command, "--log-level", "WARNING"], env=env, stdout=log, stderr=log)
        try:
            servers.wait_for(lambda: process.poll() is not None or _answers(port), "the API", 30)
            if process.poll() is not None:
                raise RuntimeError(f"the API ended: {(Path(folder) / 'log').read_text()[-2000:]}")
            yield port, process.pid
        finally:
            process.terminate()
            process.wait(20)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return True
    except OSError:
        return False


def one_pass(port: int, pids: tuple[int, int], shape: Shape, connections: int, seconds: float) -> None:
    command = [sys.executable, __file__, "--client", str(port), str(shape.points), str(shape.channels)]
    command += ["--connections", str(connections), "--seconds", str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()  # its requests are ready, and the API knows the channels
        before = [cpu_s(pid) for pid in pids]
        process.stdin.write("\n")
        process.stdin.close()
        found = json.loads(process.stdout.readline())
    spent = [1e6 * (cpu_s(pid) - was) / found["accepted"] for pid, was in zip(pids, before, strict=True)]
    shape.rates.append(found["accepted"] / found["seconds"])
    shape.api_us.append(spent[0])
    shape.redis_us.append(spent[1])


def decode_rate(shape: Shape, seconds: float) -> float:
    text = body(shape.points, shape.channels, 1000, random.Random(1))
    decode = msgspec.json.Decoder(dict[str, dict[str, dict[str, dict[str, float]]]]).decode
    began, done = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        decode(text)
        done += shape.points
    return done / took


def measure(*, is_valkey: bool = False, is_quick: bool = False, connections: int = 4) -> IngestFigures:
    quiet_logs()
    passes, seconds = (1, 0.5) if is_quick else (3, 4.0)
    shapes = [Shape(points, channels) for points, channels in SHAPES]
    with server_of(is_valkey=is_valkey) as server, api_process(server.url) as (port, pid):
        for _ in range(passes):
            for shape in shapes:
                one_pass(port, (pid, server.pid), shape, connections, seconds)
        for shape in shapes:
            shape.decode_rate = decode_rate(shape, seconds / 4)
        return IngestFigures(server.name, connections, seconds, shapes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--valkey", action="store_true", help="the embedded server instead of redis-server")
    parser.add_argument("--client", nargs=3, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        port, points, channels = options.client
        uvloop.run(client(port, points, channels, options.connections, options.seconds))
        return
    import goals
    import report

    import parts

    found = measure(is_valkey=options.valkey, is_quick=options.quick, connections=options.connections)
    print(f"{parts.verdict_table(goals.of_ingest(found))}\n\n{report.ingest_text(found)}")


if __name__ == "__main__":
    main()
