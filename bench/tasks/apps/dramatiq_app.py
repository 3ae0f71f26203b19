from __future__ import annotations

import time
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from executions import FINISH, record
from load import REDIS_URL, SLEEP_S

broker = RedisBroker(url=REDIS_URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(i: int) -> None:
    record(i)


@dramatiq.actor
def sleeper(i: int) -> None:
    record(i)
    time.sleep(SLEEP_S)
    record(i, FINISH)


TASKS = {"noop": noop, "sleeper": sleeper}


def enqueue(ids: Sequence[int], kind: str) -> None:
    for i in ids:
        TASKS[kind].send(i)


def submit(i: int) -> None:
    noop.send(i)
