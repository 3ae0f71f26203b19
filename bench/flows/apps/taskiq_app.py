"""taskiq with taskiq-pipelines on Redis. Waits look every 2 ms."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from taskiq_pipelines import Pipeline, PipelineMiddleware
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

URL = os.environ["BENCH_REDIS_URL"]
LOOK_S = 0.002
results: Any = RedisAsyncResultBackend(URL, result_ex_time=600)
broker = ListQueueBroker(URL).with_result_backend(results).with_middlewares(PipelineMiddleware())
loop = asyncio.new_event_loop()
_is_open = False


@broker.task
async def noop(x: int) -> int:
    return x + 1


@broker.task
async def spread(x: int, n: int) -> list[int]:
    return [x + 1] * n


@broker.task
async def total(xs: list[int]) -> int:
    return sum(xs)


def prepare(kind: str, n: int) -> None:
    """Opens the client's side at first use: the workers import this module, too."""
    global _is_open
    if not _is_open:
        loop.run_until_complete(broker.startup())
        _is_open = True


async def _value(asked: Any) -> Any:
    result = await asked.wait_result(check_interval=LOOK_S, timeout=240)
    assert not result.is_err, result.error
    return result.return_value


async def _chain(n: int) -> None:
    pipeline: Any = Pipeline(broker, noop)
    for _ in range(n - 1):
        pipeline = pipeline.call_next(noop)
    assert await _value(await pipeline.kiq(0)) == n


async def _fan(n: int) -> None:
    pipeline: Any = Pipeline(broker, spread).map(noop, check_interval=LOOK_S).call_next(total)
    assert await _value(await pipeline.kiq(0, n)) == 2 * n


async def _flows(n: int) -> None:
    asked = [await noop.kiq(0) for _ in range(n)]
    assert await asyncio.gather(*map(_value, asked)) == [1] * n


def chain(n: int) -> None:
    loop.run_until_complete(_chain(n))


def fan(n: int) -> None:
    loop.run_until_complete(_fan(n))


def flows(n: int) -> None:
    loop.run_until_complete(_flows(n))
