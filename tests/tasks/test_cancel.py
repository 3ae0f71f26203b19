"""Cancel wins or loses cleanly in every state."""

from __future__ import annotations

import pytest

from tests.tasks.room import Room, ending
from tradewind.tasks.store import TaskNotFound


async def test_delayed_task_is_cancelled_also_after_more_than_an_hour(room: Room) -> None:
    task_id = await room.submit(delay_s=7200)
    room.clock.advance(5000)
    assert (await room.store.cancel([task_id]))[0].is_done
    worker = await room.join()
    room.clock.advance(5000)
    assert await room.start(worker) == []
    assert await room.status(task_id) == "CANCELLED"
    assert task_id not in (await room.look()).places


async def test_queued_task_ends_at_once_and_its_tombstone_is_dropped_when_met(room: Room) -> None:
    task_id, other = await room.submit(), await room.submit()
    assert (await room.store.cancel([task_id]))[0].status == "CANCELLED"
    worker = await room.join()
    assert [t.id for t in await room.start(worker)] == [other]
    seen = await room.look()
    assert task_id not in seen.places and "tomb" not in seen.tasks[task_id]


async def test_parked_task_ends_at_once_and_is_dropped_when_met(room: Room) -> None:
    await room.join("w1", ["b"])
    task_id = await room.submit("a")
    await room.assign()
    assert (await room.look()).places[task_id] == ["queue:parked:normal:a"]
    await room.store.cancel([task_id])
    assert await room.start(await room.join("w2", ["a"])) == []
    seen = await room.look()
    assert not seen.places and seen.status(task_id) == "CANCELLED" and "queue:parked" not in seen.values


async def test_assigned_task_leaves_the_queue_of_its_worker(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    assert await room.status(task_id) == "ASSIGNED"
    assert (await room.store.cancel([task_id]))[0].status == "CANCELLED"
    assert await worker.take(5) == []


async def test_retrying_task_ends_at_once(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit(max_attempts=3)
    (taken,) = await room.start(worker)
    await worker.finish([ending(taken, "RETRYING", delay_ms=1000)])
    assert (await room.store.cancel([task_id]))[0].status == "CANCELLED"
    room.clock.advance(2)
    assert await room.start(worker) == []


@pytest.mark.parametrize("said", ["FAILED", "RETRYING", "TIMEOUT", "DEAD", "CANCELLED"])
async def test_cancel_before_a_bad_end_wins(room: Room, said: str) -> None:
    worker = await room.join()
    task_id = await room.submit(max_attempts=3)
    (taken,) = await room.start(worker)
    answer = (await room.store.cancel([task_id]))[0]
    assert answer.is_done and answer.status == "PROCESSING"
    assert await worker.sync() == [(task_id, taken.token, True)]
    assert await worker.finish([ending(taken, said)]) == [1]
    assert await room.status(task_id) == "CANCELLED"
    assert not await room.redis.exists(room.keys.cancel(task_id))


async def test_success_before_the_worker_heard_of_the_cancel_stays_a_success(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    (taken,) = await room.start(worker)
    await room.store.cancel([task_id])
    assert await worker.finish([ending(taken, result=7)]) == [1]
    task = await room.store.get(task_id)
    assert task.status == "SUCCESS" and task.result == 7
    assert not await room.redis.exists(room.keys.cancel(task_id))


async def test_cancel_after_the_end_loses(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    (taken,) = await room.start(worker)
    await worker.finish([ending(taken, "FAILED")])
    before = await room.look()
    answer = (await room.store.cancel([task_id]))[0]
    assert not answer.is_done and answer.status == "FAILED"
    assert (await room.look()).values == before.values


async def test_the_same_cancel_after_a_lost_reply_gives_the_same_answer(room: Room) -> None:
    task_id = await room.submit()
    first = await room.store.cancel([task_id])
    before = await room.look()
    assert await room.store.cancel([task_id]) == first
    assert (await room.look()).values == before.values


async def test_flag_of_a_running_task_outlives_its_attempt(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit(timeout_s=7200)
    await room.start(worker)
    await room.store.cancel([task_id])
    assert 7200 + 3600 - 5 < await room.redis.ttl(room.keys.cancel(task_id)) <= 7200 + 3600


@pytest.mark.parametrize("delay_s", [0, 3000])
async def test_flag_set_by_hand_stops_a_task_that_waits(room: Room, delay_s: int) -> None:
    task_id = await room.submit(delay_s=delay_s)
    await room.redis.set(room.keys.cancel(task_id), "1", ex=3600)
    room.clock.advance(delay_s)
    worker = await room.join()
    assert await room.start(worker) == []
    assert await room.status(task_id) == "CANCELLED"


async def test_flag_set_by_hand_stops_a_task_that_runs(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit(max_attempts=3)
    (taken,) = await room.start(worker)
    await room.redis.set(room.keys.cancel(task_id), "1", ex=3600)
    assert await worker.sync() == [(task_id, taken.token, True)]
    await worker.finish([ending(taken, "RETRYING")])
    assert await room.status(task_id) == "CANCELLED"


async def test_cancel_of_a_task_whose_worker_is_lost_ends_it(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    await room.start(worker)
    await room.store.cancel([task_id])
    room.clock.advance(11)
    leader = await room.leader()
    assert await leader.expired_workers() == ["w1"]
    await leader.evict("w1")
    assert await room.status(task_id) == "CANCELLED"


async def test_cancelled_task_that_its_worker_gives_back_ends(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    (taken,) = await room.start(worker)
    await room.store.cancel([task_id])
    assert await worker.release([(task_id, taken.token)], queue_too=True) == 0
    assert await room.status(task_id) == "CANCELLED"
    assert not (await room.look()).places


async def test_cancelled_task_that_runs_past_its_time_ends_cancelled(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit(timeout_s=1, max_attempts=3)
    await room.start(worker)
    await room.store.cancel([task_id])
    room.clock.advance(7)
    assert await (await room.leader()).reap("w1") == 1
    assert await room.status(task_id) == "CANCELLED"


async def test_unknown_task_is_not_found(room: Room) -> None:
    with pytest.raises(TaskNotFound):
        await room.store.cancel(["nobody"])
