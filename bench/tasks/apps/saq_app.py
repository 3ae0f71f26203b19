from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from executions import FINISH, record
from load import CONCURRENCY, GATHER, REDIS_URL, SLEEP_S, chunks
from saq import Queue

queue = Queue.from_url(REDIS_URL)


async def noop(ctx: dict[str, Any], *, i: int) -> None:
    record(i)


async def sleeper(ctx: dict[str, Any], *, i: int) -> None:
    record(i)
    await asyncio.sleep(SLEEP_S)
    record(i, FINISH)


settings = {"queue": queue, "functions": [noop, sleeper], "concurrency": CONCURRENCY}


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    await queue.connect()
    yield
    await queue.disconnect()


async def enqueue(ids: Sequence[int], kind: str) -> None:
    for chunk in chunks(ids, GATHER):
        await asyncio.gather(*(queue.enqueue(kind, i=i, ttl=-1) for i in chunk))


async def submit(i: int) -> None:
    await queue.enqueue("noop", i=i, ttl=-1)
