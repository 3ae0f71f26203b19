from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from executions import FINISH, record
from load import BATCH, CONCURRENCY, REDIS_URL, SLEEP_S, chunks
from streaq import Worker

worker = Worker(redis_url=REDIS_URL, concurrency=CONCURRENCY)


@worker.task(ttl=0)
async def noop(i: int) -> None:
    record(i)


@worker.task(ttl=0)
async def sleeper(i: int) -> None:
    record(i)
    await asyncio.sleep(SLEEP_S)
    record(i, FINISH)


TASKS = {"noop": noop, "sleeper": sleeper}


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    async with worker:
        yield


async def enqueue(ids: Sequence[int], kind: str) -> None:
    task = TASKS[kind]
    for chunk in chunks(ids, BATCH):
        await worker.enqueue_many([task.enqueue(i) for i in chunk])


async def submit(i: int) -> None:
    await noop.enqueue(i)


if __name__ == "__main__":
    from streaq_app import worker as imported  # so that task names match the producer's

    imported.run_sync()
