"""Bulk ingest over HTTP: points per second through a whole API process into Redis.

    .venv/bin/python bench/points/ingest.py [--seconds 5] [--connections 4] [--valkey]

One Redis, one API process as it ships (`tradewind run api`), one client process that sends ready-made requests on
connections that stay open. `cpu` is what the API process, and Redis, spent on a point, which a busy machine does not
change. Takes about half a minute and writes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests import servers
from tests.process import free_port

GOAL = 150_000
#: Points a request, and over how many channels they are spread.
SHAPES = [(1000, 1), (1000, 10), (5000, 1), (5000, 50)]
BODIES = 20


def body(points: int, channels: int, first: int, chance: random.Random) -> bytes:
    each = points // channels
    values = {
        str(first + at): {"m": {str(10_001 + i): round(chance.uniform(-1000, 1000), 3) for i in range(each)}}
        for at in range(channels)
    }
    return json.dumps({"channels": values}, separators=(",", ":")).encode()


async def send(port: int, points: int, channels: int, first: int, until: float) -> int:
    """Requests one after the other on one connection; how many points were accepted."""
    chance = random.Random(first)
    head = f"POST /api/v1/points HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    texts = [body(points, channels, first, chance) for _ in range(BODIES)]
    requests = [f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text for text in texts]
    wanted = b'{"accepted":%d}' % points
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    while time.monotonic() < until:
        writer.write(requests[sent % BODIES])
        answer = await reader.readuntil(b"\r\n\r\n")
        text = await reader.readexactly(len(wanted))
        assert b" 200 " in answer[:20] and text == wanted, answer + text
        sent += 1
    writer.close()
    await writer.wait_closed()
    return sent * points


async def client(port: int, points: int, channels: int, connections: int, seconds: float) -> None:
    began = time.monotonic()
    jobs = [send(port, points, channels, 1000 + at * channels, began + seconds) for at in range(connections)]
    accepted = sum(await asyncio.gather(*jobs))
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


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(port: int, pids: tuple[int, int], points: int, channels: int, options: argparse.Namespace) -> float:
    command = [sys.executable, __file__, "--client", str(port), str(points), str(channels)]
    command += ["--connections", str(options.connections), "--seconds", str(options.seconds)]
    before = [cpu_s(pid) for pid in pids]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    spent = [1e6 * (cpu_s(pid) - was) / found["accepted"] for pid, was in zip(pids, before, strict=True)]
    rate = float(found["accepted"] / found["seconds"])
    print(f"| {points:>6,} | {channels:>8} | {rate:>9,.0f} | {spent[0]:>6.2f} | {spent[1]:>8.2f} |")
    return rate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--valkey", action="store_true", help="the embedded server instead of redis-server")
    parser.add_argument("--client", nargs=3, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(client(*options.client, options.connections, options.seconds))
        return
    with (
        servers.valkey_server() if options.valkey else servers.redis_server() as server,
        api_process(server.url) as (port, pid),
    ):
        pids = (pid, server.pid)
        print(f"{options.connections} connections, {options.seconds:g} s each\n")
        print("| points | channels |  points/s | API µs | Redis µs |\n|---:|---:|---:|---:|---:|")
        rates = [measure(port, pids, points, channels, options) for points, channels in SHAPES]
        worst = min(rates)
        word = "REACHED" if worst >= GOAL else "NOT REACHED"
        print(f"\n{word}: the slowest shape takes {worst:,.0f} points/s, the goal is {GOAL:,}")


if __name__ == "__main__":
    main()
