from __future__ import annotations

import time
from collections.abc import Sequence

from executions import FINISH, record
from huey import RedisHuey
from load import REDIS_URL, SLEEP_S

huey = RedisHuey("bench", url=REDIS_URL, results=False)


@huey.task()
def noop(i: int) -> None:
    record(i)


@huey.task()
def sleeper(i: int) -> None:
    record(i)
    time.sleep(SLEEP_S)
    record(i, FINISH)


TASKS = {"noop": noop, "sleeper": sleeper}


def enqueue(ids: Sequence[int], kind: str) -> None:
    for i in ids:
        TASKS[kind](i)


def submit(i: int) -> None:
    noop(i)
