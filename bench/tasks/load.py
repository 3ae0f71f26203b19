"""What every app shares: where Redis is, how long a sleeper sleeps, how much goes into one call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

REDIS_URL = os.environ.get("BENCH_REDIS_URL", "")
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "50"))  # of the asyncio workers that let one choose
SLEEP_S = float(os.environ.get("BENCH_SLEEP", "0.2"))
GATHER = 100  # concurrent enqueues, for asyncio libraries without a batch call
BATCH = 1000  # tasks in one call, for libraries that have a batch call


def chunks(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for at in range(0, len(ids), size):
        yield ids[at : at + size]
