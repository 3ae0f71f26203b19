"""Floor: bare redis-py lists. The work is done by two processes of redis_hop.py; this is the one who asks."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

import redis

client: Any = redis.Redis.from_url(os.environ["BENCH_REDIS_URL"], decode_responses=True)


def ask(kind: str, n: int, many: int) -> list[int]:
    run = uuid.uuid4().hex
    messages = [json.dumps({"kind": kind, "run": run, "n": n, "k": k, "x": 0}) for k in range(many)]
    client.rpush("hop:queue", *messages)
    found = []
    for _ in range(many):
        reply = client.blpop([f"hop:{run}:end"], 60)
        assert reply is not None, "no answer within 60 s"
        found.append(int(reply[1]))
    return found


def chain(n: int) -> None:
    assert ask("chain", n, 1) == [n]


def fan(n: int) -> None:
    assert ask("root", n, 1) == [2 * n]


def flows(n: int) -> None:
    assert ask("single", n, n) == [1] * n
