"""Take, finish, release, evict, reap: tokens fence, lost replies do no harm, dead workers' work goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lifetimes import lives
from tests.tasks.room import Room, ending
from tradewind.errors import Conflict
from tradewind.tasks.leader_store import Deposed
from tradewind.tasks.worker_store import Lost, Taken, WorkerStore


async def test_oldest_task_starts_first(room: Room) -> None:
    ids = [await room.submit() for _ in range(5)]
    worker = await room.join()
    assert [t.id for t in await room.start(worker)] == ids


async def test_finish_repeated_after_a_lost_reply_changes_nothing(room: Room) -> None:
    worker = await room.join()
    for status in ("SUCCESS", "FAILED", "RETRYING"):
        await room.submit(max_attempts=2)
        (taken,) = await room.start(worker)
        done = [ending(taken, status)]
        assert await worker.finish(done) == [1]
        before = await room.look()
        assert await worker.finish(done) == [2]
        assert (await room.look()).without_wake() == before.without_wake()


async def test_late_finish_of_a_retried_attempt_is_told_that_it_was_committed(room: Room) -> None:
    worker = await room.join()
    await room.submit(max_attempts=2)
    (taken,) = await room.start(worker)
    await worker.finish([ending(taken, "RETRYING")])
    await room.assign()
    assert await worker.finish([ending(taken, "RETRYING")]) == [2]
    (again,) = await worker.take(1)
    assert int(again.token) > int(taken.token) and again.attempt == 2
    assert await worker.finish([ending(taken, "FAILED")]) == [0]


async def test_worker_that_was_lost_cannot_commit(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    (taken,) = await room.start(worker)
    room.clock.advance(11)
    await (await room.leader()).evict("w1")
    assert await room.status(task_id) == "QUEUED"
    assert await worker.finish([ending(taken)]) == [0]
    for verb in (worker.beat, worker.sync, lambda: worker.take(1)):
        with pytest.raises(Lost):
            await verb()
    other = await room.join("w2")
    (again,) = await room.start(other)
    assert again.stalls == 1 and await other.finish([ending(again)]) == [1]


async def test_live_worker_is_not_evicted(room: Room) -> None:
    worker = await room.join()
    await room.submit()
    await room.start(worker)
    room.clock.advance(9)
    await worker.beat()
    room.clock.advance(9)
    leader = await room.leader()
    assert await leader.expired_workers() == []
    assert await leader.evict("w1") == 0
    assert len((await room.look()).values["worker:w1:inflight"]) == 1


async def test_task_that_keeps_losing_its_worker_ends_dead(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"max_stalls": 2})
    task_id = await room.submit()
    for _ in range(3):
        await room.start(await room.join())
        room.clock.advance(11)
        await (await room.leader()).evict("w1")
    task = await room.store.get(task_id)
    assert task.status == "DEAD" and task.error is not None and task.error.type == "WorkerLost"


async def test_a_worker_runs_one_last_chance_at_a_time(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"max_stalls": 2})
    ids = [await room.submit() for _ in range(3)]

    async def start(worker: WorkerStore) -> list[Taken]:
        room.clock.advance(2)
        await worker.beat()
        return await room.start(worker)

    for _ in range(2):
        assert len(await start(await room.join())) == 3
        room.clock.advance(11)
        await (await room.leader()).evict("w1")
    due = [int((await room.fields(task_id))["due"]) - room.clock.ms for task_id in ids]
    assert sorted(due) == [0, 666, 1333], "spread over two seconds, so that they meet different workers"
    worker = await room.join()
    (tried,) = await start(worker)
    assert tried.stalls == 2 and await start(worker) == []
    fresh = await room.submit()
    assert [taken.id for taken in await start(worker)] == [fresh]
    room.clock.advance(11)
    await (await room.leader()).evict("w1")
    assert await room.status(tried.id) == "DEAD"
    assert {await room.status(task_id) for task_id in ids if task_id != tried.id} == {"PENDING"}
    worker = await room.join()
    done = []
    for _ in range(3):
        for taken in await start(worker):
            done.append(taken.id)
            assert await worker.finish([ending(taken)]) == [1]
    assert sorted([*done, tried.id]) == sorted([*ids, fresh])


async def test_starts_that_lost_their_worker_use_up_no_attempt(room: Room) -> None:
    task_id = await room.submit(max_attempts=2, timeout_s=5)
    await room.start(await room.join())
    room.clock.advance(11)
    await (await room.leader()).evict("w1")
    await room.start(await room.join())
    room.clock.advance(11)
    assert await (await room.leader()).reap("w1") == 1
    assert await room.status(task_id) == "RETRYING"


async def test_work_of_a_lost_worker_goes_back_in_its_order(room: Room) -> None:
    ids = [await room.submit() for _ in range(4)]
    worker = await room.join()
    await room.assign()
    await worker.take(2)
    newer = [await room.submit() for _ in range(2)]
    room.clock.advance(11)
    await (await room.leader()).evict("w1")
    other = await room.join("w2")
    assert [t.id for t in await room.start(other)] == ids + newer


async def test_worker_that_registers_again_gives_its_earlier_work_back(room: Room) -> None:
    task_id = await room.submit()
    (taken,) = await room.start(await room.join())
    again = await room.join()
    assert await room.status(task_id) == "QUEUED"
    (retaken,) = await room.start(again)
    assert retaken.stalls == 1 and int(retaken.token) > int(taken.token)


async def test_take_whose_reply_was_lost_is_given_back_without_counting(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    await room.start(worker)
    ((held, token, _),) = await worker.sync()
    assert await worker.release([(held, token)], queue_too=False) == 1
    (taken,) = await room.start(worker)
    assert taken.id == task_id and taken.attempt == 1 and int(taken.token) > int(token)


async def test_release_with_an_old_token_does_nothing(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    (taken,) = await room.start(worker)
    await worker.release([(task_id, taken.token)], queue_too=False)
    await room.start(worker)
    assert await worker.release([(task_id, taken.token)], queue_too=False) == 0
    assert await room.status(task_id) == "PROCESSING"


async def test_thousands_of_tasks_are_taken_in_bounded_steps(room: Room) -> None:
    await room.store.submit([room.submission() for _ in range(2500)])
    worker = await room.join(capacity=10_000)
    while await room.assign(5000):
        pass
    sizes = [len(await worker.take(10_000)) for _ in range(3)]
    assert sum(sizes) == 2500 and max(sizes) <= 1000


async def test_overdue_attempt_is_ended_by_the_leader(room: Room) -> None:
    worker = await room.join()
    once, twice = await room.submit(timeout_s=2), await room.submit(timeout_s=2, max_attempts=2)
    taken = await room.start(worker)
    room.clock.advance(6)
    leader = await room.leader()
    assert await leader.reap("w1") == 0
    room.clock.advance(2)
    async with room.plane.link.new_client() as client, client.pubsub() as control:
        await control.subscribe(room.keys.control("w1"))
        assert (await control.get_message(timeout=5))["type"] == "subscribe"
        assert await leader.reap("w1") == 2
        told = [(await control.get_message(timeout=5))["data"].decode() for _ in range(2)]
    assert told == [f"cancel:{once}", f"cancel:{twice}"], "it is to stop them"
    assert [await room.status(once), await room.status(twice)] == ["TIMEOUT", "RETRYING"]
    assert await worker.finish([ending(t) for t in taken]) == [0, 0]


async def test_deadline_that_passes_ends_a_task_wherever_it_waits(room: Room) -> None:
    soon = room.clock.ms + 5000
    queued, delayed = await room.submit(deadline=soon), await room.submit(deadline=soon, delay_s=10)
    worker = await room.join()
    assigned = await room.submit("b", deadline=soon)
    other = await room.join("w2", ["b"])
    await room.assign()
    room.clock.advance(10)
    await worker.beat()
    await other.beat()
    assert await room.start(worker) == [] and await other.take(1) == []
    assert {await room.status(i) for i in (queued, delayed, assigned)} == {"TIMEOUT"}


async def test_deposed_leader_changes_nothing(room: Room) -> None:
    old = await room.lead("s1")
    await room.submit()
    await room.lead("s2")
    await room.join()
    room.clock.advance(11)
    before = await room.look()
    for call in (old.assign(10), old.evict("w1"), old.reap("w1"), old.write_metrics()):
        with pytest.raises(Deposed):
            await call
    await old.sweep()
    assert (await room.look()).values == before.values


@pytest.mark.parametrize("status", ["FAILED", "DEAD", "TIMEOUT", "CANCELLED"])
async def test_task_that_ended_badly_is_brought_back_fresh(room: Room, status: str) -> None:
    worker = await room.join()
    task_id = await room.submit("a", 1, max_attempts=2)
    (taken,) = await room.start(worker)
    await worker.finish([ending(taken, status)])
    assert await room.store.retry(task_id) == "QUEUED"
    task = await room.store.get(task_id)
    assert task.attempt == 0 and task.error is None and task.finished_ms == 0 and task.request.args == [1]
    assert await room.redis.ttl(room.keys.task(task_id)) == -1 == await room.redis.ttl(room.keys.body(task_id))
    assert task_id not in (await room.look()).values.get("queue:dead", {})
    (again,) = await room.start(worker)
    assert again.id == task_id and await worker.finish([ending(again)]) == [1]


async def test_retry_repeated_after_a_lost_reply_gives_the_same_answer(room: Room) -> None:
    task_id = await room.submit()
    await room.store.cancel([task_id])
    keys, args = room.keys, [*room.plane.head(), "word", task_id]
    names = [keys.dead(), keys.queue("high"), keys.queue("normal")]
    first = await room.plane.scripts.run("task_retry", names, args)
    before = await room.look()
    assert await room.plane.scripts.run("task_retry", names, args) == first == [[1, b"QUEUED"]]
    assert (await room.look()).without_wake() == before.without_wake()
    with pytest.raises(Conflict):
        await room.store.retry(task_id)


async def test_success_and_live_tasks_cannot_be_brought_back(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    with pytest.raises(Conflict, match="ASSIGNED"):
        await room.store.retry(task_id)
    (taken,) = await room.start(worker)
    await worker.finish([ending(taken)])
    with pytest.raises(Conflict, match="SUCCESS"):
        await room.store.retry(task_id)


async def test_exclusive_tasks_of_one_name_never_run_at_once(room: Room) -> None:
    one, two = await room.join("w1"), await room.join("w2")
    first, second = await room.submit(exclusive="door"), await room.submit(exclusive="door")
    await room.assign()
    running = [*await one.take(5), *await two.take(5)]
    assert len(running) == 1
    holder = await room.redis.get(room.keys.lock("door"))
    assert holder.decode() in ("w1", "w2") and 290 < await room.redis.ttl(room.keys.lock("door")) <= 300
    worker = one if holder == b"w1" else two
    await worker.finish([ending(running[0])])
    assert not await room.redis.exists(room.keys.lock("door"))
    room.clock.advance(1)
    await room.assign()
    rest = [*await one.take(5), *await two.take(5)]
    assert {running[0].id, rest[0].id} == {first, second}


@pytest.mark.parametrize("how", ["evict", "reap", "release", "register"])
async def test_lock_of_an_attempt_that_was_ended_from_outside_is_free(room: Room, how: str) -> None:
    worker = await room.join()
    task_id = await room.submit(exclusive="door", timeout_s=1, max_attempts=2)
    (taken,) = await room.start(worker)
    leader = await room.leader()
    if how == "evict":
        room.clock.advance(11)
        await leader.evict("w1")
    elif how == "reap":
        room.clock.advance(7)
        assert await leader.reap("w1") == 1
    elif how == "release":
        await worker.release([(task_id, taken.token)], queue_too=True)
    else:
        worker = await room.join()
    if how != "evict":
        assert await worker.leave() or how == "register"
    room.clock.advance(1)
    (again,) = await room.start(await room.join("w2"))
    assert again.id == task_id


async def test_lock_is_renewed_by_its_worker_only(room: Room) -> None:
    worker, other = await room.join("w1"), await room.join("w2")
    await room.redis.set(room.keys.lock("door"), "w1", ex=10)
    await other.beat(locks=["door"])
    await lives(room.redis, room.keys.lock("door"), 10)
    await worker.beat(locks=["door"])
    await lives(room.redis, room.keys.lock("door"), 300, spent_s=10)


async def test_an_attempt_without_an_ending_counts_as_a_stall_and_is_bounded(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"max_stalls": 2})
    worker = await room.join()
    task_id = await room.submit(max_attempts=1)
    for stalls in (1, 2):
        (taken,) = await room.start(worker)
        assert (taken.id, taken.attempt, taken.stalls) == (task_id, stalls, stalls - 1)
        assert await worker.release([(task_id, taken.token)], queue_too=False, is_stall=True) == 1
    (taken,) = await room.start(worker)
    assert await worker.release([(task_id, taken.token)], queue_too=False, is_stall=True) == 0
    task = await room.store.get(task_id)
    assert (task.status, task.attempt, task.stalls) == ("DEAD", 3, 3)
    assert task.error is not None and task.error.type == "NoEnding"
