from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from executions import FINISH, record
from load import GATHER, REDIS_URL, SLEEP_S, chunks
from taskiq_redis import ListQueueBroker, RedisStreamBroker

BROKERS = {"list": ListQueueBroker, "stream": RedisStreamBroker}
broker = BROKERS[os.environ.get("BENCH_TASKIQ", "list")](REDIS_URL)


@broker.task
async def noop(i: int) -> None:
    record(i)


@broker.task
async def sleeper(i: int) -> None:
    record(i)
    await asyncio.sleep(SLEEP_S)
    record(i, FINISH)


TASKS = {"noop": noop, "sleeper": sleeper}


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    await broker.startup()  # the stream broker makes its consumer group here, at "$"
    yield
    await broker.shutdown()


async def enqueue(ids: Sequence[int], kind: str) -> None:
    task = TASKS[kind]
    for chunk in chunks(ids, GATHER):
        await asyncio.gather(*(task.kiq(i) for i in chunk))


async def submit(i: int) -> None:
    await noop.kiq(i)
