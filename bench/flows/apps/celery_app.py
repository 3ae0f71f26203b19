"""Celery canvas: a chain, and a chain whose head feeds a chord. Broker and results on Redis."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, chord
from celery import chain as canvas_chain

URL = os.environ["BENCH_REDIS_URL"]
app = Celery("celery_app", broker=URL, backend=URL)
app.conf.update(broker_connection_retry_on_startup=True)


@app.task
def noop(x: int) -> int:
    return x + 1


@app.task
def total(xs: list[int]) -> int:
    return sum(xs)


def chain(n: int) -> None:
    asked: Any = canvas_chain(noop.s(0), *[noop.s() for _ in range(n - 1)]).apply_async()
    assert asked.get(timeout=120) == n


def fan(n: int) -> None:
    asked: Any = (noop.s(0) | chord([noop.s() for _ in range(n)], total.s())).apply_async()
    assert asked.get(timeout=240) == 2 * n


def flows(n: int) -> None:
    asked = [noop.delay(0) for _ in range(n)]
    assert [result.get(timeout=120) for result in asked] == [1] * n
