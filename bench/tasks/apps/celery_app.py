from __future__ import annotations

import os
import time
from collections.abc import Sequence

from celery import Celery
from executions import FINISH, record
from load import REDIS_URL, SLEEP_S

app = Celery("bench", broker=REDIS_URL)
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    task_acks_late=os.environ.get("BENCH_ACKS_LATE") == "1",
)


@app.task
def noop(i: int) -> None:
    record(i)


@app.task
def sleeper(i: int) -> None:
    record(i)
    time.sleep(SLEEP_S)
    record(i, FINISH)


TASKS = {"noop": noop, "sleeper": sleeper}


def enqueue(ids: Sequence[int], kind: str) -> None:
    for i in ids:
        TASKS[kind].delay(i)


def submit(i: int) -> None:
    noop.delay(i)
