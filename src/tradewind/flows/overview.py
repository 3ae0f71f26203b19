"""All flows at a glance, cheap enough to be asked every second: without their definitions, whose JSON may be long."""

from __future__ import annotations

from typing import Any

from tradewind.clock import now_ms
from tradewind.flows.status import COUNTS
from tradewind.flows.store import FlowStore
from tradewind.numerals import read_number, score_ms, stored_whole
from tradewind.redis.connection import translated
from tradewind.redis.faults import other_types

BATCH = 1000
_FLOW = ("status", "last_cycle", "next_execution")
_CYCLE = ("status", "start_time", "end_time", *COUNTS)


async def overview(store: FlowStore, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The first flows in the order of their ids, each with how its last cycle stands; and how many there are."""
    keys, client = store.plane.keys, store.plane.tasks.redis
    ids = await store.ids("", limit)
    with translated():
        pipe = client.pipeline(transaction=False)
        pipe.zcard(keys.flows())
        for flow_id in ids:
            pipe.hmget(keys.flow(flow_id), _FLOW)
            pipe.scard(keys.flow_running(flow_id))
        total, *rows = other_types(await pipe.execute(raise_on_error=False))
        pipe = client.pipeline(transaction=False)
        for i, flow_id in enumerate(ids):
            last = _last(rows[2 * i][1]) if isinstance(rows[2 * i], list) else -1
            pipe.hmget(keys.cycle(flow_id, last), _CYCLE)
        cycles = other_types(await pipe.execute(raise_on_error=False)) if ids else []
    found = []
    for i, flow_id in enumerate(ids):
        if not (isinstance(rows[2 * i], list) and isinstance(cycles[i], list)):  # of another type; doctor names it
            continue
        status, _, due = (_text(value) for value in rows[2 * i])
        if status:  # else it went away meanwhile
            cycle = dict(zip(_CYCLE, (_text(value) for value in cycles[i]), strict=True))
            found.append(
                {
                    "id": flow_id,
                    "status": status,
                    "last_cycle": _last(rows[2 * i][1]),
                    "cycle_status": cycle["status"] or None,
                    "start_time": cycle["start_time"] or None,
                    "end_time": cycle["end_time"] or None,
                    "counts": {name: stored_whole(cycle[name]) for name in COUNTS},
                    "next_execution": _seconds(due),
                    "running_cycles": rows[2 * i + 1] if isinstance(rows[2 * i + 1], int) else 0,
                }
            )
    return found, total


async def figures(store: FlowStore) -> tuple[dict[str, int], dict[str, int], dict[str, float]]:
    """Flows by status; ended cycles by status; and single figures: cycles that run, seconds that all ended ones took,
    lag of the schedule in seconds, what waits where."""
    keys, client = store.plane.keys, store.plane.tasks.redis
    statuses: dict[str, int] = {}
    missed = skipped = 0
    after = ""
    while ids := await store.ids(after, BATCH):
        with translated():
            pipe = client.pipeline(transaction=False)
            for flow_id in ids:
                pipe.hmget(keys.flow(flow_id), "status", "missed", "skipped")
            rows = other_types(await pipe.execute(raise_on_error=False))
        for row in rows:
            if isinstance(row, list) and row[0] is not None:
                status = row[0].decode(errors="replace")
                statuses[status] = statuses.get(status, 0) + 1
                missed, skipped = missed + stored_whole(row[1]), skipped + stored_whole(row[2])
        after = ids[-1]
    with translated():
        pipe = client.pipeline(transaction=False)
        pipe.zcard(keys.flows_deadlines())
        pipe.zrange(keys.flows_due(), 0, 0, withscores=True)
        pipe.xlen(keys.flow_outbox())
        pipe.zcard(keys.flows_unsent())
        pipe.hgetall(keys.metric_cycles())
        pipe.hget(keys.metric_signals(), "refused")
        running, due, outbox, unsent, ended, refused = await pipe.execute()
    lag_s = max(0.0, (now_ms() - score_ms(due[0][1])) / 1000) if due else 0.0
    single = {
        "cycles_running": running, "lag_s": lag_s, "outbox": outbox, "unsent": unsent, "missed": missed,
        "skipped": skipped, "signals_refused": stored_whole(refused),
    }  # fmt: skip
    cycles = {name.decode(errors="replace"): stored_whole(count) for name, count in ended.items()}
    single["cycles_s"] = cycles.pop("ms", 0) / 1000
    return statuses, cycles, single


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _last(value: bytes | None) -> int:
    """The number of the last cycle; -1: there was none."""
    return stored_whole(value) if value else -1


def _seconds(text: str) -> float:
    try:
        return read_number(text) if text else 0.0
    except ValueError:
        return 0.0
