"""Pause and resume of queues and types, and tasks whose labels nobody has: they wait, and nobody waits for them."""

from __future__ import annotations

import pytest

from tests.tasks.room import Room, ending
from tradewind.errors import NotFound


@pytest.mark.parametrize("name", ["high", "normal", "type:a"])
async def test_what_is_paused_waits_and_the_rest_goes_on(room: Room, name: str) -> None:
    worker = await room.join("w1", ["a", "b"])
    await room.control.pause(name)
    ids = {
        "high": await room.submit("b", priority="high"),
        "normal": await room.submit("b"),
        "type:a": await room.submit("a", priority="high" if name == "normal" else "normal"),
    }
    paused = ids.pop(name)
    started = await room.start(worker)
    assert {t.id for t in started} == set(ids.values())
    assert await room.status(paused) == "QUEUED"
    await worker.finish([ending(t) for t in started])
    await room.control.resume(name)
    assert [t.id for t in await room.start(worker)] == [paused]


async def test_submit_does_not_pass_by_a_pause(room: Room) -> None:
    await room.join("w1", ["a", "b"])
    for name in ("high", "normal", "type:a"):
        await room.control.pause(name)
        assert (await room.store.submit([room.submission("a", priority="high")]))[0].status == "QUEUED"
        await room.control.resume(name)


async def test_what_runs_goes_on_while_its_type_is_paused(room: Room) -> None:
    worker = await room.join()
    await room.submit()
    (taken,) = await room.start(worker)
    await room.control.pause("type:a")
    assert await worker.finish([ending(taken)]) == [1]


async def test_order_is_kept_through_a_pause(room: Room) -> None:
    await room.control.pause("type:a")
    worker = await room.join(capacity=100)
    ids = []
    for _ in range(5):
        ids += [a.id for a in await room.store.submit([room.submission() for _ in range(20)])]
        await room.assign()
    await room.control.resume("type:a")
    ids.append(await room.submit())
    assert [t.id for t in await room.start(worker)] == ids[:100]


async def test_resume_wakes_the_leader(room: Room) -> None:
    await room.control.pause("high")
    await room.redis.delete(room.keys.wake())
    await room.control.resume("high")
    await room.control.resume("high")
    assert await room.redis.lrange(room.keys.wake(), 0, -1) == [b"1"]


@pytest.mark.parametrize("name", ["low", "delayed", "type:", "type:a b", "type:*", ""])
async def test_unknown_queue_is_not_found(room: Room, name: str) -> None:
    with pytest.raises(NotFound):
        await room.control.pause(name)
    assert "queue:paused" not in await room.names()


async def test_task_waits_for_a_worker_with_all_of_its_labels(room: Room) -> None:
    await room.join("plain")
    await room.join("half", labels="gpu")
    wanted = await room.submit(labels=["gpu", "big"])
    other = await room.submit()
    await room.assign()
    assert await room.status(wanted) == "QUEUED" and await room.status(other) == "ASSIGNED"
    whole = await room.join("whole", labels="big,fast,gpu")
    assert [t.id for t in await room.start(whole)] == [wanted]


async def test_a_label_is_not_part_of_another_label(room: Room) -> None:
    await room.join("w1", labels="gpu2,no-gpu")
    task_id = await room.submit(labels=["gpu"])
    await room.assign()
    assert await room.status(task_id) == "QUEUED"
