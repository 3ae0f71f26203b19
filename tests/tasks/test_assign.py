"""Assign: parking, labels, shares in large batches, bursts, workers registered by hand. Order: see test_order.py."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.tasks.room import Room


async def test_type_without_a_worker_holds_nobody_up(room: Room) -> None:
    await room.store.submit([room.submission("nobody") for _ in range(300)])
    wanted = await room.submit("a")
    worker = await room.join(capacity=5)
    for _ in range(100):
        await room.assign()
        if taken := await worker.take(5):
            break
    assert [t.id for t in taken] == [wanted]
    late = await room.join("w2", ["nobody"], capacity=500)
    while await room.assign():
        pass
    assert len(await late.take(500)) == 300
    assert "queue:parked" not in await room.names()


async def test_labels_lead_to_workers_that_have_them(room: Room) -> None:
    plain, gpu = await room.join("w1"), await room.join("w2", labels="eu,gpu")
    task_id = await room.submit(labels=["gpu", "eu"])
    nowhere = await room.submit(labels=["moon"])
    await room.assign()
    assert await plain.take(5) == [] and [t.id for t in await gpu.take(5)] == [task_id]
    assert (await room.look()).places[nowhere] == ["queue:parked:normal:a@moon"]


@pytest.mark.parametrize("limit", [50, 500, 2000])
async def test_share_holds_in_large_batches(room: Room, limit: int) -> None:
    for priority in ("normal", "high"):
        await room.store.submit([room.submission("a", priority=priority) for _ in range(2000)])
    await room.join(capacity=5000)
    assert await room.assign(limit) == limit
    seen = await room.look()
    got = Counter(t["pri"] for t in seen.tasks.values() if t["status"] == "ASSIGNED")
    assert got["normal"] == pytest.approx(limit / 5, rel=0.25)


async def test_burst_at_the_end_of_a_window_leaves_nothing_for_the_next(room: Room) -> None:
    await room.control.set_rate_limit("a", 10, 1)
    worker = await room.join(capacity=100)
    room.clock.ms = room.clock.ms // 1000 * 1000 + 990
    await worker.beat()
    await room.store.submit([room.submission() for _ in range(40)])
    assert await room.assign() == 10
    for _ in range(9):
        room.clock.advance(0.1)
        assert await room.assign() == 0
    room.clock.advance(0.2)
    assert await room.assign() == 10


async def by_hand(room: Room, worker_id: str, kind: str, *fields: str) -> None:
    record = {"id": worker_id, "name": worker_id, "capacity": "3", "current_load": "0", "last_heartbeat": "1700000000"}
    record |= {"supported_types": f'["{kind}"]'} | dict(zip(fields[::2], fields[1::2], strict=True))
    await room.redis.hset(room.keys.worker(worker_id), mapping=record)
    await room.redis.expire(room.keys.worker(worker_id), 30)
    await room.redis.sadd(room.keys.worker_type(kind), worker_id)


async def test_worker_registered_by_hand_gets_tasks_when_it_is_the_only_one(room: Room) -> None:
    await by_hand(room, "x1", "send_email")
    ids = [await room.submit("send_email") for _ in range(4)]
    assert await room.assign() == 3
    assert await room.redis.lrange(room.keys.worker_queue("x1"), 0, -1) == [i.encode() for i in reversed(ids[:3])]


async def test_worker_registered_by_hand_gets_tasks_behind_others_that_cannot_run(room: Room) -> None:
    await by_hand(room, "x1", "send_email")
    assert await room.control.has_type("send_email") and not await room.control.has_type("nobody")
    await room.store.submit([room.submission("nobody") for _ in range(20)])
    await room.submit("send_email")
    assert sum([await room.assign() for _ in range(20)]) == 1


async def test_work_of_a_worker_registered_by_hand_goes_back_when_its_record_expires(room: Room) -> None:
    await by_hand(room, "x1", "send_email")
    task_id = await room.submit("send_email")
    await room.assign()
    leader = await room.leader()
    assert await leader.expired_workers() == [] and await leader.evict("x1") == 0
    await room.redis.delete(room.keys.worker("x1"))
    assert await leader.expired_workers() == ["x1"]
    assert await leader.evict("x1") == 1
    assert await room.status(task_id) == "QUEUED"
    assert not {"worker:type:send_email", "worker:types", "worker:x1:queue"} & await room.names()


async def test_id_that_stands_twice_in_a_list_is_assigned_once(room: Room) -> None:
    task_id = await room.submit()
    await room.redis.lpush(room.keys.queue("normal"), task_id)
    one, two = await room.join("w1"), await room.join("w2")
    assert await room.assign() == 1
    assert len([*await one.take(5), *await two.take(5)]) == 1
    assert len((await room.look()).places[task_id]) == 1
