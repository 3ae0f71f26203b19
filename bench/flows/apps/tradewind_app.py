"""Tradewind: registers before the clock, starts cycles through the flow service, and waits from a process of its own.

The end is seen by one ZCARD of `flows:deadlines` a millisecond: the set holds the cycles that run. That is one command
of a few microseconds; a subscription would make the scripts publish an event for each node.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from contextlib import AsyncExitStack
from typing import Any

import redis
import uvloop

from tradewind.flows.starting import cycle_outputs
from tradewind.settings import load_settings
from tradewind.station import open_station

URL = os.environ["BENCH_STATION_URL"]
LIMIT_S = 60.0
settings = load_settings(None, {"redis.url": URL})
loop = uvloop.new_event_loop()
stack = AsyncExitStack()  # open until the process ends
station = loop.run_until_complete(stack.enter_async_context(open_station(settings, frozenset())))
keys = station.plane.keys
watch: Any = redis.Redis.from_url(URL)
_registered: set[str] = set()


def wait_for(is_true: Any, what: str, every_s: float = 0.001) -> None:
    limit = time.monotonic() + LIMIT_S
    while not is_true():
        if time.monotonic() > limit:
            raise TimeoutError(f"{what} did not happen within {LIMIT_S:g} s")
        time.sleep(every_s)


def is_up() -> bool:
    workers = watch.scard(keys.worker_type("noop")) >= int(os.environ["BENCH_WORKERS"])
    return bool(workers and watch.exists(keys.leader()))


def flow(flow_id: str, nodes: list[dict[str, Any]], edges: list[tuple[str, str, str]]) -> dict[str, Any]:
    wires = [{"source": a, "source_handle": "result", "target": b, "target_handle": handle} for a, b, handle in edges]
    return {"id": flow_id, "schedule": {"manual": True}, "nodes": nodes, "edges": wires}


def noop(name: str, **inputs: int) -> dict[str, Any]:
    return {"id": name, "type": "noop", "inputs": inputs}


def documents(kind: str, n: int) -> list[dict[str, Any]]:
    if kind == "flows":
        return [flow(f"single-{k}", [noop("end", x=0)], []) for k in range(n)]
    if kind == "chain":
        names = [*(f"n{k}" for k in range(n - 1)), "end"]
        edges = [(a, b, "x") for a, b in itertools.pairwise(names)]
        return [flow(f"chain-{n}", [noop(names[0], x=0), *map(noop, names[1:])], edges)]
    leaves = [f"leaf{k}" for k in range(n)]
    edges = [("root", leaf, "x") for leaf in leaves] + [(leaf, "end", "xs") for leaf in leaves]
    return [flow(f"fan-{n}", [noop("root", x=0), *map(noop, leaves), {"id": "end", "type": "total"}], edges)]


def prepare(kind: str, n: int) -> None:
    async def register() -> None:
        for document in documents(kind, n):
            if document["id"] not in _registered:
                await station.flows.register(document)
                _registered.add(document["id"])

    loop.run_until_complete(register())


async def start(flow_ids: list[str]) -> list[int]:
    return await asyncio.gather(*(station.flows.run(flow_id) for flow_id in flow_ids))


async def check(flow_id: str, cycle: int, nodes: int, end: int) -> None:
    found = watch.hmget(keys.cycle(flow_id, cycle), "status", "completed", "total")
    assert found == [b"completed", b"%d" % nodes, b"%d" % nodes], f"cycle {cycle} of {flow_id}: {found}"
    value = (await cycle_outputs(station.flow_store, flow_id, cycle))["end"]
    assert value == {"result": end}, f"cycle {cycle} of {flow_id} ended with {value}, not {end}"


def is_recorded() -> bool:
    return not watch.xlen(keys.outbox()) and not watch.xlen(keys.flow_outbox())


def run(flow_ids: list[str], nodes: int, end: int) -> dict[str, float]:
    began = time.perf_counter()
    cycles = loop.run_until_complete(start(flow_ids))
    wait_for(lambda: not watch.zcard(keys.flows_deadlines()), "the end of all cycles")
    ended = time.perf_counter()
    for flow_id, cycle in zip(flow_ids, cycles, strict=True):
        loop.run_until_complete(check(flow_id, cycle, nodes, end))
    told = {"seconds": ended - began}
    if settings.tasks.archive:
        wait_for(is_recorded, "the record of all cycles", 0.005)
        told["behind"] = time.perf_counter() - ended
    return told


def chain(n: int) -> dict[str, float]:
    return run([f"chain-{n}"], n, n)


def fan(n: int) -> dict[str, float]:
    return run([f"fan-{n}"], n + 2, 2 * n)


def flows(n: int) -> dict[str, float]:
    return run([f"single-{k}" for k in range(n)], 1, 1)


wait_for(is_up, "the start of the station", 0.02)
