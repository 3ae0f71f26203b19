"""Prefect: its own temporary server with SQLite. Tasks of the chain are called directly, which is its cheapest way;
the fan is `map` on the default thread pool; flows are async ones in one gather."""

from __future__ import annotations

import asyncio
from typing import Any

from prefect import flow, task


@task
def noop(x: int) -> int:
    return x + 1


@task
async def noop_async(x: int) -> int:
    return x + 1


@task
def total(xs: list[int]) -> int:
    return sum(xs)


@flow
def chained(n: int) -> int:
    x = 0
    for _ in range(n):
        x = noop(x)
    return x


@flow
def fanned(n: int) -> Any:
    root = noop(0)
    return total(noop.map([root] * n))


@flow
async def single() -> int:
    return await noop_async(0)


async def _singles(n: int) -> list[int]:
    return await asyncio.gather(*[single() for _ in range(n)])


def chain(n: int) -> None:
    assert chained(n) == n


def fan(n: int) -> None:
    assert fanned(n) == 2 * n


def flows(n: int) -> None:
    assert asyncio.run(_singles(n)) == [1] * n
