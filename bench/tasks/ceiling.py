"""What Redis and redis-py can do without a task queue: the ceilings that the rates are seen against."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time

import redis
import redis.asyncio
from server import port_of, url_of

PAYLOAD = b"x" * 300


def redis_benchmark(port: int, depth: int, n: int) -> dict[str, float]:
    """Requests per second of SET, LPUSH and RPOP with 50 connections and pipelines of `depth`."""
    tests = ("SET", "LPUSH", "RPOP")
    command = ["redis-benchmark", "-p", str(port), "-n", str(n), "-c", "50", "-P", str(depth)]
    command += ["-t", ",".join(tests).lower(), "--csv"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.replace('"', "").split(",") for line in out.splitlines()]
    return {row[0]: float(row[1]) for row in rows if row[0] in tests}


async def redis_py(url: str, batch: int, n: int) -> tuple[float, float]:
    """Rates of LPUSH and BRPOP through redis-py asyncio, `batch` commands a round trip on one connection."""
    client = redis.asyncio.Redis.from_url(url)
    await client.delete("ceiling")
    marks = [time.monotonic()]
    for word in ("lpush", "brpop"):
        for _ in range(0, n, batch):
            pipe = client.pipeline(transaction=False)
            for _ in range(batch):
                if word == "lpush":
                    pipe.lpush("ceiling", PAYLOAD)
                else:
                    pipe.brpop(["ceiling"], timeout=1)
            await pipe.execute()
        marks.append(time.monotonic())
    await client.aclose()
    return n / (marks[1] - marks[0]), n / (marks[2] - marks[1])


def measure(client: redis.Redis, repeats: int, is_quick: bool) -> list[tuple[str, float]]:
    """(what, per second), medians of `repeats`."""
    rows = []
    for depth in (1, 16):
        n = 20_000 if is_quick else 200_000
        samples = [redis_benchmark(port_of(client), depth, n) for _ in range(repeats)]
        for test in samples[0]:
            rows.append((f"redis-benchmark {test} -c 50 -P {depth}", statistics.median(s[test] for s in samples)))
    for batch, words in ((100, "100 a pipeline"), (1, "1 a round trip")):
        n = 1_000 if is_quick else 5_000
        pairs = [asyncio.run(redis_py(url_of(client), batch, n)) for _ in range(repeats)]
        rows.append((f"redis-py asyncio LPUSH, {words}", statistics.median(p[0] for p in pairs)))
        rows.append((f"redis-py asyncio BRPOP, {words}", statistics.median(p[1] for p in pairs)))
    client.flushall()
    return rows
