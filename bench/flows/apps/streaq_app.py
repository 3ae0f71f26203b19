"""streaq pipelines on Redis. It has no join that takes its parents' results, so its fan is order only.

The clock ends when the result keys are there: `task.result()` would add a subscription per call.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from streaq import Worker

worker: Any = Worker(redis_url=os.environ["BENCH_REDIS_URL"])
loop = asyncio.new_event_loop()
_is_open = False


@worker.task
async def noop(x: int) -> int:
    return x + 1


@worker.task
async def joined(n: int) -> int:
    return n


def prepare(kind: str, n: int) -> None:
    """Opens the client's side at first use: the workers import this module, too."""
    global _is_open
    if not _is_open:
        loop.run_until_complete(worker.__aenter__())
        _is_open = True


def _timed(make: Callable[[], Awaitable[list[Any]]], wanted: int) -> dict[str, float]:
    async def go() -> float:
        began = time.perf_counter()
        asked = await make()
        keys = [worker.results_key + task.id for task in asked]
        while await worker.redis.exists(keys) < len(keys):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.002)
        seconds = time.perf_counter() - began
        for task in asked[-3:]:
            assert (await task.result(30)).result == wanted
        return seconds

    return {"seconds": loop.run_until_complete(asyncio.wait_for(go(), 120))}


def chain(n: int) -> dict[str, float]:
    async def make() -> list[Any]:
        task = noop.enqueue(0)
        for _ in range(n - 1):
            task = task | noop
        return [await task]

    return _timed(make, n)


def fan(n: int) -> dict[str, float]:
    async def make() -> list[Any]:
        root = noop.enqueue(0)
        leaves = [noop.enqueue(1).start(after=root.id) for _ in range(n)]
        end = joined.enqueue(n).start(after=[task.id for task in leaves])
        await worker.enqueue_many([root, *leaves, end])
        return [end]

    return _timed(make, n)


def flows(n: int) -> dict[str, float]:
    async def make() -> list[Any]:
        asked = [noop.enqueue(0) for _ in range(n)]
        await worker.enqueue_many(asked)
        return asked

    return _timed(make, 1)
