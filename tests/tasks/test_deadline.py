"""Deadlines: a task that has not started by then ends TIMEOUT, also when no worker could ever take it."""

from __future__ import annotations

import pytest

from tests.tasks.room import Room
from tradewind.tasks.leader_store import Deposed


@pytest.mark.parametrize("state", ["QUEUED", "PENDING", "ASSIGNED"])
async def test_a_task_that_has_not_started_ends_at_its_deadline(room: Room, state: str) -> None:
    leader = await room.lead()
    if state == "ASSIGNED":
        await room.join(capacity=1)
    task_id = await room.submit(deadline=room.clock.ms + 5000, delay_s=60 if state == "PENDING" else 0)
    assert await room.status(task_id) == state
    assert await leader.expire() == 0
    room.clock.advance(5)
    assert await leader.expire() == 1
    assert await leader.expire() == 0
    assert await room.status(task_id) == "TIMEOUT"
    task = (await room.store.read([task_id]))[0]
    assert task is not None and task.error is not None and task.error.type == "DeadlineExceeded"
    await room.look()  # stands nowhere any more
    room.clock.advance(60)
    worker = await room.join("late")
    await leader.assign(10)
    assert await worker.take(10) == []


async def test_a_running_task_is_left_to_its_worker(room: Room) -> None:
    leader = await room.lead()
    worker = await room.join()
    task_id = await room.submit(deadline=room.clock.ms + 5000)
    (taken,) = await worker.take(1)
    assert taken.left_ms == 5000
    room.clock.advance(5)
    assert await leader.expire() == 0
    assert await room.status(task_id) == "PROCESSING"
    assert await room.redis.zcard(room.keys.deadlines()) == 0


async def test_a_lost_worker_after_the_deadline_ends_it(room: Room) -> None:
    leader = await room.lead()
    worker = await room.join()
    task_id = await room.submit(deadline=room.clock.ms + 5000)
    assert len(await worker.take(1)) == 1
    room.clock.advance(60)
    assert await leader.expire() == 0
    await leader.evict("w1")
    assert await room.status(task_id) == "TIMEOUT"
    await room.look()


async def test_one_that_ended_or_was_brought_back_stays_as_it_is(room: Room) -> None:
    leader = await room.lead()
    task_id = await room.submit(deadline=room.clock.ms + 5000)
    await room.store.cancel([task_id])
    room.clock.advance(6)
    await room.store.retry(task_id)  # its deadline has passed, so it is dropped
    assert await leader.expire() == 0
    assert await room.status(task_id) == "QUEUED"


async def test_many_end_in_bounded_steps_and_a_deposed_leader_ends_none(room: Room) -> None:
    old = await room.lead("old")
    batch = [room.submission(deadline=room.clock.ms + 1000) for _ in range(1200)]
    await room.store.submit(batch)
    room.clock.advance(2)
    new = await room.lead("new")
    with pytest.raises(Deposed):
        await old.expire()
    assert await new.expire() == 1200
