"""Which task is next, and which worker gets it: oldest first, high before normal, the least loaded, never too many."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.tasks.room import Room, ending
from tradewind.tasks.worker_store import WorkerStore


async def _submit_many(room: Room, kind: str, count: int, **options: object) -> list[str]:
    batch = [room.submission(kind, **options) for _ in range(count)]
    return [a.id for a in await room.store.submit(batch)]


async def _run_all(room: Room, worker: WorkerStore, many: int = 100) -> list[str]:
    """The ids in the order in which they start, `many` slots at a time."""
    started: list[str] = []
    while taken := await room.start(worker, many):
        started += [t.id for t in taken]
        await worker.finish([ending(t) for t in taken])
    return started


async def test_each_priority_is_first_in_first_out(room: Room) -> None:
    normal = await _submit_many(room, "a", 30)
    high = await _submit_many(room, "a", 30, priority="high")
    normal += await _submit_many(room, "a", 30)
    started = await _run_all(room, await room.join(capacity=7))
    assert [i for i in started if i in set(high)] == high
    assert [i for i in started if i in set(normal)] == normal


async def test_normal_gets_one_of_five_while_high_waits(room: Room) -> None:
    await _submit_many(room, "a", 400)
    high = set(await _submit_many(room, "a", 400, priority="high"))
    worker = await room.join(capacity=100)
    taken = await room.start(worker)
    assert sum(t.id in high for t in taken) == 80
    await worker.finish([ending(t) for t in taken])
    assert sum(t.id in high for t in await room.start(worker)) == 80


async def test_normal_gets_one_of_five_also_when_one_slot_frees_at_a_time(room: Room) -> None:
    await _submit_many(room, "a", 20)
    high = set(await _submit_many(room, "a", 60, priority="high"))
    worker = await room.join(capacity=1)
    line = ""
    for _ in range(50):
        (taken,) = await room.start(worker)
        line += "h" if taken.id in high else "n"
        await worker.finish([ending(taken)])
    assert line == "hhhhn" * 10


async def test_high_alone_and_normal_alone_get_everything(room: Room) -> None:
    await _submit_many(room, "a", 50, priority="high")
    worker = await room.join(capacity=50)
    taken = await room.start(worker)
    assert len(taken) == 50
    await worker.finish([ending(t) for t in taken])
    await _submit_many(room, "a", 50)
    assert len(await room.start(worker)) == 50


async def test_tasks_given_back_start_before_those_that_waited(room: Room) -> None:
    ids = await _submit_many(room, "a", 60)
    worker = await room.join(capacity=20, window=20)
    taken = await room.start(worker, 20)
    assert await worker.release([(t.id, t.token) for t in taken], queue_too=True) == 40
    await worker.leave()
    assert await _run_all(room, await room.join("w2", capacity=60)) == ids


async def test_order_survives_the_eviction_of_a_worker_with_more_than_one_step_of_work(room: Room) -> None:
    ids = await _submit_many(room, "a", 2600)
    worker = await room.join(capacity=1200, window=1200)
    for _ in range(6):
        await room.assign()
    for _ in range(2):
        await worker.take(600)
    assert len((await room.look()).values["worker:w1:inflight"]) == 1200
    room.clock.advance(11)
    assert await (await room.leader()).evict("w1") == 2400
    assert await _run_all(room, await room.join("w2", capacity=3000), 1000) == ids


async def test_work_given_back_does_not_fall_behind_parked_tasks_of_its_type(room: Room) -> None:
    await room.join("other", ["b"], capacity=50)  # has room, so that what it cannot do is parked
    worker = await room.join("w1", ["a"], capacity=2, window=1)
    ids = await _submit_many(room, "a", 30) + await _submit_many(room, "a", 1, labels=["gpu"])
    await worker.take(0)
    taken = await room.start(worker, 2)
    seen = await room.look()
    assert [t.id for t in taken] == ids[:2] and seen.places[ids[10]] == ["queue:parked:normal:a"]
    await worker.release([(t.id, t.token) for t in taken], queue_too=True)
    await worker.leave()
    third = await room.join("w3", ["a"], capacity=2, labels="gpu")
    started = await _run_all(room, third)
    assert [i for i in started if i != ids[30]] == ids[:30] and ids[30] in started


async def test_parked_tasks_of_one_type_do_not_hold_up_another(room: Room) -> None:
    await _submit_many(room, "nobody", 3000)
    wanted = await _submit_many(room, "a", 5)
    worker = await room.join(capacity=10)
    leader = await room.leader()
    rounds = 0
    while (await leader.assign(500)).is_more:
        rounds += 1
    assert rounds <= 3
    assert [t.id for t in await worker.take(10)] == wanted
    assert len((await room.look()).values["queue:parked:normal:nobody"]) == 3000


@pytest.mark.parametrize("priority", ["high", "normal"])
@pytest.mark.parametrize("is_parked", [False, True])
async def test_cancelled_heads_hold_up_nobody(room: Room, priority: str, is_parked: bool) -> None:
    """More of them than free slots, and, in small rounds, more than one round looks at."""
    ids = [await room.submit(priority=priority) for _ in range(30)]
    if is_parked:
        await room.join("idle", ["x"])
        await room.assign()
        assert len((await room.look()).values[f"queue:parked:{priority}:a"]) == 30
    await room.store.cancel(ids[:12])
    worker = await room.join("w1", capacity=3)
    assert await room.assign() == 3
    taken = await worker.take(10)
    assert [one.id for one in taken] == ids[12:15]
    await worker.finish([ending(one) for one in taken])
    await room.store.cancel(ids[15:27])
    leader, rounds = await room.leader(), 1
    while (round_ := await leader.assign(2)).is_more and not round_.assigned:
        rounds += 1
    assert [one.id for one in await worker.take(10)] == ids[27:29] and rounds == 2
    seen = await room.look()
    assert not [task_id for task_id in ids[:27] if task_id in seen.places or "tomb" in seen.tasks[task_id]]


async def test_types_that_share_a_worker_take_turns_out_of_the_parking(room: Room) -> None:
    await room.join("idle", ["x"], capacity=100)
    await _submit_many(room, "a", 40)
    await _submit_many(room, "b", 40)
    await room.assign()
    worker = await room.join("w1", ["a", "b"], capacity=1)
    kinds: list[str] = []
    for _ in range(20):
        (taken,) = await room.start(worker)
        kinds.append(taken.type)
        await worker.finish([ending(taken)])
        room.clock.advance(0.001)
    assert Counter(kinds) == {"a": 10, "b": 10}


async def test_the_least_loaded_worker_gets_the_next_task(room: Room) -> None:
    await room.join("small", capacity=10)
    await room.join("large", capacity=30)
    await room.join("busy", capacity=10, window=5)
    await _submit_many(room, "b", 8)
    await room.join("busy", ["a", "b"], capacity=10, window=5)
    await room.assign()  # busy has 8 of another type that only it supports
    await _submit_many(room, "a", 20)
    await room.assign()
    seen = await room.look()
    got = {w: len(seen.values.get(f"worker:{w}:queue", [])) for w in ("small", "large", "busy")}
    assert got == {"small": 5, "large": 15, "busy": 8}


async def test_capacity_and_window_are_never_exceeded(room: Room) -> None:
    await _submit_many(room, "a", 100)
    worker = await room.join(capacity=5, window=3)
    assert await room.assign() == 8
    assert await room.assign() == 0
    taken = await worker.take(5)
    assert await room.assign() == 0
    await worker.finish([ending(taken[0])])
    assert await room.assign() == 1


async def test_direct_way_of_submit_stops_at_the_capacity(room: Room) -> None:
    worker = await room.join(capacity=3, window=50)
    ids = [await room.submit() for _ in range(5)]
    assert [await room.status(i) for i in ids] == ["ASSIGNED"] * 3 + ["QUEUED"] * 2
    later = await room.submit()
    await worker.finish([ending(t) for t in await worker.take(1)])
    assert await room.submit() and await room.status(later) == "QUEUED"  # what waits goes first
    assert len((await room.look()).values["queue:normal"]) == 4


async def test_draining_and_lost_workers_get_nothing(room: Room) -> None:
    draining, lost = await room.join("w1"), await room.join("w2")
    await draining.beat("draining")
    room.clock.advance(11)
    await draining.beat("draining")
    task_id = await room.submit()
    await room.assign()
    assert await room.status(task_id) == "QUEUED" and lost.id == "w2"


async def test_worker_by_hand_with_a_capacity_that_is_no_number_stops_nobody(room: Room) -> None:
    await room.redis.hset(room.keys.worker("odd"), mapping={"id": "odd", "capacity": "many"})
    await room.redis.sadd(room.keys.worker_type("a"), "odd")
    task_id = await room.submit()
    assert [t.id for t in await room.start(await room.join())] == [task_id]


async def test_id_that_stands_in_a_queue_without_a_record_is_dropped(room: Room) -> None:
    await room.redis.lpush(room.keys.queue("normal"), "stranger")
    task_id = await room.submit()
    assert [t.id for t in await room.start(await room.join())] == [task_id]
    assert not (await room.look()).places.get("stranger")
