"""One worker of the Redis floor: BLPOP a node, run it, one pipeline of HSET and RPUSH. No retries, leases or states.

Redis serves the client that has waited longest, so each hop of a chain goes to the other process.
"""

from __future__ import annotations

import json
import os
from typing import Any

import redis

client: Any = redis.Redis.from_url(os.environ["BENCH_REDIS_URL"], decode_responses=True, socket_timeout=None)


def step(message: dict[str, Any]) -> None:
    kind, run, n, k, x = (message[name] for name in ("kind", "run", "n", "k", "x"))
    end, x = f"hop:{run}:end", x + 1
    pipe = client.pipeline(transaction=False)
    pipe.hset(f"hop:{run}", str(k), x)
    if kind == "chain" and k + 1 < n:
        pipe.rpush("hop:queue", json.dumps({**message, "k": k + 1, "x": x}))
    elif kind == "root":
        pipe.rpush("hop:queue", *[json.dumps({**message, "kind": "leaf", "k": i + 1, "x": x}) for i in range(n)])
    elif kind == "leaf":
        pipe.incr(f"hop:{run}:count")
    else:
        pipe.rpush(end, x)
    replies = pipe.execute()
    if kind == "leaf" and replies[-1] == n:
        client.rpush(end, sum(int(v) for name, v in client.hgetall(f"hop:{run}").items() if name != "0"))


if __name__ == "__main__":
    client.incr("hop:ready")
    while True:
        step(json.loads(client.blpop(["hop:queue"])[1]))
