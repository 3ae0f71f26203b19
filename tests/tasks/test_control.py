"""What operators see of queues, workers, types and counts."""

from __future__ import annotations

import pytest

from tests.tasks.room import ANYTHING, Room, ending
from tradewind.tasks.function import Parameter, Signature
from tradewind.tasks.worker_store import WorkerStore


async def test_queues_with_parked_delayed_dead_and_paused_ones(room: Room) -> None:
    worker = await room.join(capacity=1)
    taken = [t for _ in range(2) if await room.submit() for t in await room.start(worker)]
    await worker.finish([ending(taken[0], "DEAD")])
    for options in ({"priority": "high"}, {"priority": "high"}, {}, {"delay_s": 5}):
        await room.submit("nobody", **options)
    await room.join("idle", ["z"])
    await room.assign()
    await room.submit("nobody")
    await room.control.pause("high")
    await room.control.pause("type:a")
    shown = [(q.name, q.length, q.parked, q.is_paused) for q in await room.control.queues()]
    assert shown == [
        ("high", 2, 2, True), ("normal", 2, 1, False), ("delayed", 1, 0, False), ("dead", 1, 0, False),
        ("type:a", 0, 0, True),
    ]  # fmt: skip


async def test_workers_with_their_load(room: Room) -> None:
    fields = {"name": "One", "supported_types": '["a"]', "labels": "gpu,big", "address": "", "started_ms": 1000}
    worker = await room.join("w1", capacity=5, **fields)
    for _ in range(3):
        await room.submit()
    await worker.take(1)
    (shown,) = await room.control.workers()
    assert (shown.id, shown.name, shown.status, shown.capacity) == ("w1", "One", "active", 5)
    assert (shown.queued, shown.running, shown.load) == (2, 1, 3)
    assert shown.types == ["a"] and shown.labels == ["gpu", "big"]
    assert shown.last_heartbeat == "2023-11-14T22:13:20.000Z" and shown.started_at == "1970-01-01T00:00:01.000Z"


async def test_worker_registered_by_hand_is_shown(room: Room) -> None:
    fields = {"id": "x", "name": "by hand", "address": "http://h:1", "capacity": 2, "last_heartbeat": 1_700_000_000}
    await room.redis.hset(room.keys.worker("x"), mapping=fields)
    await room.redis.sadd(room.keys.worker_type("t"), "x")
    assert await room.control.has_type("t") and not await room.control.has_type("u")
    (shown,) = await room.control.workers()
    assert (shown.id, shown.address, shown.capacity, shown.types) == ("x", "http://h:1", 2, [])
    assert (await room.control.types())["t"] == ANYTHING


async def test_worker_that_left_is_not_shown(room: Room) -> None:
    worker = await room.join()
    assert await worker.leave()
    assert await room.control.workers() == []
    assert not {n for n in await room.names() if n.startswith("worker")}


async def test_types_are_those_that_workers_offered(room: Room) -> None:
    store = WorkerStore(room.plane, "w1", "g1")
    offered = b'{"params":[{"name":"to","types":["str"]}],"max_attempts":3}'
    await store.register({"capacity": 1}, {"send_email": offered, "odd": b"nonsense"})
    types = await room.control.types()
    assert types["send_email"] == Signature(params=[Parameter("to", ["str"])], max_attempts=3)
    assert types["odd"] == ANYTHING
    await store.leave()
    assert "send_email" in await room.control.types(), "it may be submitted while its workers are away"


async def test_counts_by_end(room: Room) -> None:
    worker = await room.join()
    for status in ("SUCCESS", "SUCCESS", "FAILED", "DEAD", "TIMEOUT", "RETRYING"):
        await room.submit(max_attempts=2)
        (taken,) = await room.start(worker)
        await worker.finish([ending(taken, status, delay_ms=60_000)])
    await room.store.cancel([await room.submit(delay_s=9)])
    assert await room.control.counts() == {
        "SUCCESS": 2, "FAILED": 1, "DEAD": 1, "TIMEOUT": 1, "CANCELLED": 1, "submitted": 7, "retrying": 1,
    }  # fmt: skip


@pytest.mark.parametrize("leads", [True, False])
async def test_who_leads(room: Room, leads: bool) -> None:
    if leads:
        await room.lead("scheduler-1")
    assert await room.control.leader() == ("scheduler-1" if leads else None)
