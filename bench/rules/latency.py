"""How long from a change of a point to its alarm, stored and announced, while 10,000 points change each second.

    .venv/bin/python bench/rules/latency.py [--quick]

Four processes: Redis, a writer, the rule engine with 10,000 rules, and this one, which listens to `alarm:events`. The
clock starts before the writer writes the batch and stops when the announcement is here; the alarm is stored by the same
script that announces it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import redis
import uvloop
from shared import (
    A_CHANNEL,
    HERE,
    LIMIT,
    RULES,
    address,
    cpu_s,
    one_each,
    percentile,
    quiet_logs,
    server_cpu_s,
    server_of,
)  # fmt: skip

from tradewind.points.board import Batch, Board
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.rules.engine import RuleEngine
from tradewind.rules.store import RuleStore
from tradewind.settings import RedisSettings, Settings

#: Points in a batch, and batches a second; each batch turns one rule over.
BATCH, BATCHES = 100, 100


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    server: str
    rules: int
    seconds: float
    changes: int
    raised: int
    lost: int
    p50_ms: float
    p99_ms: float
    most_ms: float
    #: From the write's answer at the writer, and by how much the writer was late with its batches.
    write_p50_ms: float
    late_p99_ms: float
    engine_share: float
    server_share: float
    writer_share: float


async def write(url: str, rules: int, seconds: float) -> None:
    """Prints a line of JSON: when which point was made to cross its limit."""
    link = await open_link(RedisSettings(url=url))
    board = Board(PointPlane(link, Settings()))
    channels = rules * 10 // A_CHANNEL
    high: set[int] = set()
    crossed: list[tuple[str, int]] = []
    late: list[float] = []
    took: list[float] = []
    changes = 0
    began = time.perf_counter()
    for turn in range(int(seconds * BATCHES)):
        due = began + turn / BATCHES
        pause = due - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        late.append(max(0.0, time.perf_counter() - due) * 1000)
        channel, part = turn % channels, turn // channels % (A_CHANNEL // BATCH)
        first = channel * A_CHANNEL + part * BATCH
        values = {
            str((first + i) % A_CHANNEL + 10_001): LIMIT + 5 if first + i in high else (turn + i) % 70
            for i in range(BATCH)
        }
        point = first + turn // channels * 10 % BATCH  # one that a rule reads
        name = str(point % A_CHANNEL + 10_001)
        if point in high:
            high.remove(point)
            values[name] = 1.0
        else:
            high.add(point)
            values[name] = LIMIT + 5
            crossed.append((address(point), time.time_ns()))
        sent = time.perf_counter()
        await board.write([Batch.of_channel(str(channel + 1), "m", values)])
        took.append((time.perf_counter() - sent) * 1000)
        changes += BATCH
    found = {"crossed": crossed, "changes": changes, "seconds": time.perf_counter() - began}
    print(json.dumps(found | {"late": percentile(late, 0.99), "took": percentile(took, 0.5)}), flush=True)
    await link.close()


async def judge(url: str) -> None:
    """The engine as the role runs it; a line says that it judges. Ends when its input does."""
    link = await open_link(RedisSettings(url=url))
    settings = Settings()
    plane = PointPlane(link, settings)
    engine = RuleEngine(plane, RuleStore(link, plane.keys, settings))
    stop = asyncio.Event()
    running = asyncio.create_task(engine.run(stop))
    while not engine.is_leading:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.05)
    print("judging", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    stop.set()
    await running
    await link.close()


async def prepare(url: str, rules: int) -> None:
    """The rules, and a first value of every point, so that none starts high."""
    link = await open_link(RedisSettings(url=url))
    settings = Settings()
    plane = PointPlane(link, settings)
    documents = one_each(rules)
    store = RuleStore(link, plane.keys, settings)
    for at in range(0, len(documents), 1000):
        await store.apply(documents[at : at + 1000])
    values = {str(10_001 + i): 1.0 for i in range(A_CHANNEL)}
    for channel in range(rules * 10 // A_CHANNEL):
        await Board(plane).write([Batch.of_channel(str(channel + 1), "m", values)])
    await link.close()


def child(*words: str, output: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "latency.py"), *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, text=True)


def measure(*, is_quick: bool = False) -> LatencyFigures:
    quiet_logs()
    rules, seconds = (500, 3.0) if is_quick else (RULES, 30.0)
    # What the writer tells is more than a pipe holds.
    with server_of(is_valkey=False) as server, tempfile.TemporaryFile("w+") as output:
        uvloop.run(prepare(server.url, rules))
        engine = child("--judge", server.url)
        assert engine.stdout is not None and engine.stdin is not None
        engine.stdout.readline()
        client = redis.Redis(port=server.port)
        listening = client.pubsub(ignore_subscribe_messages=True)
        listening.subscribe("alarm:events")
        listening.get_message(timeout=1)
        before = cpu_s(engine.pid), server_cpu_s(client)
        writer = child("--write", server.url, str(rules), str(seconds), output=output)
        heard: dict[str, deque[int]] = {}
        writer_s, quiet_since = 0.0, 0.0
        while not quiet_since or time.monotonic() < quiet_since + 2:
            message: Any = listening.get_message(timeout=0.2)
            now = time.time_ns()
            if message is not None:
                event = json.loads(message["data"])
                if event["event"] == "raised":
                    heard.setdefault(event["source"], deque()).append(now)
            if not quiet_since and writer.poll() is not None:
                quiet_since = time.monotonic()
            elif not quiet_since:
                writer_s = cpu_s(writer.pid)
        used = cpu_s(engine.pid) - before[0], server_cpu_s(client) - before[1]
        output.seek(0)
        told = json.loads(output.read())
        engine.communicate("")
        listening.close()
        client.close()
    took, lost = [], 0
    for source, at in told["crossed"]:
        if heard.get(source):
            took.append((heard[source].popleft() - at) / 1e6)
        else:
            lost += 1
    shares = [part / told["seconds"] for part in (*used, writer_s)]
    return LatencyFigures(
        server.name, rules, told["seconds"], told["changes"], len(took), lost, percentile(took, 0.5),
        percentile(took, 0.99), max(took, default=float("nan")), told["took"], told["late"], *shares,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument("--judge", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=3, metavar=("URL", "RULES", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    quiet_logs()
    if options.judge:
        uvloop.run(judge(options.judge))
    elif options.write:
        url, rules, seconds = options.write
        uvloop.run(write(url, int(rules), float(seconds)))
    else:
        import goals
        import report

        import parts

        found = measure(is_quick=options.quick)
        print(f"{parts.verdict_table(goals.of_latency(found))}\n\n{report.latency_text(found)}")


if __name__ == "__main__":
    main()
