from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from executions import FINISH, record
from load import REDIS_URL, SLEEP_S

import tradewind

tw: tradewind.Client


@tradewind.task
async def noop(i: int) -> None:
    record(i)


@tradewind.task
async def sleeper(i: int) -> None:
    record(i)
    await asyncio.sleep(SLEEP_S)
    record(i, FINISH)


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    global tw
    async with tradewind.connect(REDIS_URL) as tw:
        yield


async def enqueue(ids: Sequence[int], kind: str) -> None:
    await tw.submit_many([(kind, (i,)) for i in ids])  # it sends batches of 1000


async def submit(i: int) -> None:
    await tw.submit("noop", i)
