"""Why a task waits though nothing seems to hold it up: nobody leads, its queue or type is paused, nobody can run it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from tradewind.redis.connection import translated
from tradewind.redis.faults import other_types
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import Status

#: States in which a task has no worker yet.
WAITS = frozenset({Status.QUEUED, Status.PENDING, Status.RETRYING})


class Wanted(NamedTuple):
    """What a waiting task needs."""

    type: str
    priority: str = "normal"
    labels: tuple[str, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """A live worker that supports a type."""

    id: str
    status: str
    labels: frozenset[str]


def reason(wanted: Wanted, candidates: Sequence[Candidate], paused: frozenset[str], *, is_led: bool) -> str | None:
    """Why it cannot start now, in words; None when it only waits for its turn. Pure."""
    if not candidates:
        return f"no live worker supports type {wanted.type!r}"
    fitting = [c for c in candidates if c.labels.issuperset(wanted.labels)]
    if not fitting:
        return f"no live worker that supports type {wanted.type!r} has the labels {', '.join(wanted.labels)}"
    if all(c.status != "active" for c in fitting):
        return f"every worker that supports type {wanted.type!r} is leaving"
    if f"type:{wanted.type}" in paused:
        return f"type {wanted.type!r} is paused"
    if wanted.priority in paused:
        return f"queue {wanted.priority!r} is paused"
    return None if is_led else "no scheduler leads: tasks are not assigned"


async def reasons(plane: Plane, wanted: Iterable[Wanted]) -> dict[Wanted, str | None]:
    """The reason for each, in three round trips for all of them."""
    many = sorted(set(wanted))
    if not many:
        return {}
    keys, client = plane.keys, plane.redis
    types = sorted({one.type for one in many})
    with translated():
        pipe = client.pipeline(transaction=False)
        pipe.get(keys.leader())
        pipe.smembers(keys.paused())
        for kind in types:
            pipe.smembers(keys.worker_type(kind))
        leader, paused, *members = await pipe.execute()
        by_type = {
            kind: sorted(w.decode(errors="replace") for w in ids) for kind, ids in zip(types, members, strict=True)
        }
        ids = sorted({worker_id for found in by_type.values() for worker_id in found})
        pipe = client.pipeline(transaction=False)
        for worker_id in ids:
            pipe.hmget(keys.worker(worker_id), "capacity", "status", "labels")
        rows = other_types(await pipe.execute(raise_on_error=False)) if ids else []
    live = {worker_id: found for worker_id, row in zip(ids, rows, strict=True) if (found := _candidate(worker_id, row))}
    stopped = frozenset(name.decode(errors="replace") for name in paused)
    return {
        one: reason(one, [live[w] for w in by_type[one.type] if w in live], stopped, is_led=leader is not None)
        for one in many
    }


def _candidate(worker_id: str, row: Any) -> Candidate | None:
    if not isinstance(row, list) or row[0] is None:
        return None  # gone; its name is taken out of the set by the leader
    labels = (row[2] or b"").decode(errors="replace").split(",")
    return Candidate(worker_id, (row[1] or b"active").decode(errors="replace"), frozenset(w for w in labels if w))


async def fill(plane: Plane, views: Sequence[dict[str, Any]]) -> None:
    """Set `waiting_for` in the views of tasks that wait."""
    waiting = {i: wanted_of(view) for i, view in enumerate(views) if view["status"] in WAITS}
    found = await reasons(plane, waiting.values())
    for i, wanted in waiting.items():
        views[i]["waiting_for"] = found[wanted]


def wanted_of(view: dict[str, Any]) -> Wanted:
    return Wanted(view["type"], view["priority"], tuple(view["labels"]))
