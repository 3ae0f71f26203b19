from __future__ import annotations

import time
from collections.abc import Sequence

from executions import FINISH, record
from load import BATCH, REDIS_URL, SLEEP_S, chunks
from redis import Redis
from rq import Queue

queue = Queue("bench", connection=Redis.from_url(REDIS_URL))


def noop(i: int) -> None:
    record(i)


def sleeper(i: int) -> None:
    record(i)
    time.sleep(SLEEP_S)
    record(i, FINISH)


def enqueue(ids: Sequence[int], kind: str) -> None:
    name = f"rq_app.{kind}"
    for chunk in chunks(ids, BATCH):
        queue.enqueue_many([Queue.prepare_data(name, (i,), result_ttl=0) for i in chunk])


def submit(i: int) -> None:
    queue.enqueue("rq_app.noop", i, result_ttl=0)
