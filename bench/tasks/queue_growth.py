"""What a long queue costs: Redis memory per queued task, and whether assignment slows down as the queue grows.

Memory: used_memory after filling, less before, per task, less the stored request line; target at most 400 bytes.
Assignment: time of one `task_assign` of a fixed number of tasks to a registered worker, with a short and with a long
queue, in turns on two servers; target: at most 1.2 times as long. No scheduler and no worker process runs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from typing import Any

import redis
from server import private_redis, url_of, used_memory

import tradewind
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import source

BATCH = 1000
ASSIGN = 500
MOST_BYTES = 400
MOST_RATIO = 1.2
LEADER, WORKER = "bench-scheduler", "bench-worker"
HOUR_MS = 3_600_000


@tradewind.task
async def noop(i: int) -> None:
    """Only queued, never run."""


async def fill(url: str, count: int) -> None:
    async with tradewind.connect(url) as tw:
        for first in range(0, count, BATCH):
            await tw.submit_many([("noop", (i,)) for i in range(first, min(first + BATCH, count))])


def payload_bytes(client: redis.Redis, keys: Keys) -> float:
    """Mean length of the stored request line, over the newest thousand queued tasks."""
    ids: Any = client.lrange(keys.queue("normal"), 0, 999)
    return statistics.mean(int(client.strlen(keys.body(task_id.decode()))) for task_id in ids)


class Assigner:
    """Leads, and stands in for one worker with room for everything, so that only the script is measured."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._script = client.register_script(source("tradewind.tasks", "task_assign"))

    def prepare(self) -> None:
        """After the filling: a submit finds an idle worker and would assign to it directly."""
        keys, client = self._keys, self._client
        client.set(keys.leader(), LEADER)
        client.set(keys.epoch(), 1)
        client.hset(keys.worker(WORKER), mapping={"capacity": 10**9, "window": 0, "status": "active", "gen": "1"})
        client.sadd(keys.worker_type("noop"), WORKER)
        client.zadd(keys.workers(), {WORKER: time.time() * 1000 + HOUR_MS})

    def assign(self, count: int) -> float:
        """Seconds that the script took; the assigned ones are then taken away from the worker."""
        keys = self._keys
        names = [keys.leader(), keys.epoch(), keys.queue("high"), keys.queue("normal")]
        names += [keys.workers(), keys.paused(), keys.rate_config(), keys.parked()]
        began = time.perf_counter()
        reply: Any = self._script(keys=names, args=[keys.p, "", keys.events(), "1", 300_000, LEADER, 1, count, 4, 0])
        seconds = time.perf_counter() - began
        if reply[0] != count:
            raise RuntimeError(f"task_assign answered {reply} instead of assigning {count}")
        self._client.delete(keys.worker_queue(WORKER))
        return seconds


def verdict(is_reached: bool) -> str:
    return "REACHED" if is_reached else "NOT REACHED"


def grow(client: redis.Redis, keys: Keys, count: int) -> float:
    """Fill; bytes per queued task beyond its payload."""
    before = used_memory(client)
    asyncio.run(fill(url_of(client), count))
    queued = int(client.llen(keys.queue("normal")))
    if queued != count:
        raise RuntimeError(f"{queued} tasks are queued instead of {count}")
    return (used_memory(client) - before) / count - payload_bytes(client, keys)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", type=int, default=1_000)
    parser.add_argument("--long", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    keys = Keys()
    times: dict[int, list[float]] = {options.short: [], options.long: []}
    with private_redis() as short, private_redis() as long:
        pairs = {options.short: short, options.long: long}
        print(f"filling {options.long:,} tasks", file=sys.stderr, flush=True)
        grow(short, keys, options.short)
        began = time.monotonic()
        extra = grow(long, keys, options.long)
        rate = options.long / (time.monotonic() - began)
        assigners = {count: Assigner(client, keys) for count, client in pairs.items()}
        for assigner in assigners.values():
            assigner.prepare()
        for _ in range(options.rounds):
            for count, client in pairs.items():
                times[count].append(assigners[count].assign(ASSIGN))
                asyncio.run(fill(url_of(client), ASSIGN))
    fast, slow = (ASSIGN / statistics.median(times[count]) for count in (options.short, options.long))
    print(f"filled {options.long:,} tasks at {rate:,.0f}/s")
    print(
        f"memory per queued task beyond its payload: {extra:.0f} bytes "
        f"(at most {MOST_BYTES}): {verdict(extra <= MOST_BYTES)}"
    )
    print(
        f"assignment: {fast:,.0f}/s with {options.short:,} queued, {slow:,.0f}/s with {options.long:,}; ratio "
        f"{fast / slow:.2f} (at most {MOST_RATIO}): {verdict(fast / slow <= MOST_RATIO)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
