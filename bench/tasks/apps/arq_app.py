from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from arq import ArqRedis, create_pool
from arq.connections import RedisSettings
from arq.worker import run_worker
from executions import FINISH, record
from load import CONCURRENCY, GATHER, REDIS_URL, SLEEP_S, chunks

SETTINGS = RedisSettings.from_dsn(REDIS_URL)
pool: ArqRedis


async def noop(ctx: dict[str, Any], i: int) -> None:
    record(i)


async def sleeper(ctx: dict[str, Any], i: int) -> None:
    record(i)
    await asyncio.sleep(SLEEP_S)
    record(i, FINISH)


class WorkerSettings:
    functions = (noop, sleeper)
    redis_settings = SETTINGS
    max_jobs = CONCURRENCY
    keep_result = 0


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    global pool
    pool = await create_pool(SETTINGS)
    yield
    await pool.aclose()


async def enqueue(ids: Sequence[int], kind: str) -> None:
    for chunk in chunks(ids, GATHER):
        await asyncio.gather(*(pool.enqueue_job(kind, i) for i in chunk))


async def submit(i: int) -> None:
    await pool.enqueue_job("noop", i)


if __name__ == "__main__":
    run_worker(WorkerSettings)
