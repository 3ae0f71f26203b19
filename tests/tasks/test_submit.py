"""Submit: all or none, once, within bounds. What the door refuses is in test_check.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.lifetimes import lives
from tests.tasks.room import Room, ending
from tradewind.errors import Conflict, Invalid, Overloaded
from tradewind.tasks.gate import RedisGate


async def test_nothing_is_stored_when_one_of_a_batch_is_wrong(room: Room) -> None:
    await room.join("w1", ["a"])
    gate = RedisGate(room.plane.all_settings, room.plane)
    await gate.open()
    before = await room.look()
    wrong = [[{"type": "a"}, {"type": "nope"}], [{"type": "a", "delay_s": -1}], [{"type": "a", "id": "wake"}]]
    for raws in wrong:
        with pytest.raises(Invalid):
            await gate.submit(raws)
    assert (await room.look()).values == before.values
    await gate.close()


async def test_the_same_call_after_a_lost_reply_is_the_same_task(room: Room) -> None:
    batch = [room.submission("a", n, delay_s=n, priority="high", idempotency_key=f"k{n}") for n in range(3)]
    batch += [room.submission("a", 9)]
    first = await room.store.submit(batch)
    before = await room.look()
    again = await room.store.submit(batch)
    assert again == first and all(a.is_new for a in again)
    assert (await room.look()).without_wake() == before.without_wake()


async def test_idempotency_key_brings_the_same_task_and_refuses_another_request(room: Room) -> None:
    first = (await room.store.submit([room.submission("a", 1, idempotency_key="k")]))[0]
    again = (await room.store.submit([room.submission("a", 1, idempotency_key="k")]))[0]
    assert again.id == first.id and first.is_new and not again.is_new
    before = await room.look()
    for other in (room.submission("a", 2, idempotency_key="k"), room.submission("b", 1, idempotency_key="k")):
        with pytest.raises(Conflict) as caught:
            await room.store.submit([room.submission("a", 3), other])
        assert caught.value.code == "idempotency_mismatch"
    assert (await room.look()).values == before.values
    await lives(room.redis, room.keys.idempotency("k"), 86_400)


async def test_idempotency_key_twice_in_one_batch_is_one_task(room: Room) -> None:
    one, two = await room.store.submit([room.submission("a", idempotency_key="k") for _ in range(2)])
    assert one.id == two.id and len((await room.look()).tasks) == 1


async def test_idempotency_key_outlives_the_delay_of_its_task(room: Room) -> None:
    await room.submit(delay_s=200_000, idempotency_key="k")
    await lives(room.redis, room.keys.idempotency("k"), 200_000 + 86_400)


@pytest.mark.parametrize("change", [{"kind": "b"}, {"args": [2]}])
async def test_taken_id_is_refused_for_another_request(room: Room, change: dict[str, Any]) -> None:
    await room.submit("a", 1, id="mine")
    before = await room.look()
    with pytest.raises(Conflict) as caught:
        await room.submit(change.get("kind", "a"), *change.get("args", [1]), id="mine")
    assert caught.value.code == "id_taken"
    assert (await room.look()).values == before.values


async def test_full_queue_answers_overloaded_and_counts_all_that_waits(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"max_queued": 4})
    await room.join("w1", ["b"])
    await room.submit("a")
    await room.assign()
    await room.submit("a", delay_s=5)
    batch = [room.submission("a") for _ in range(2)]
    await room.store.submit(batch)
    before = await room.look()
    assert before.values["queue:parked"] == ["normal:a"]
    with pytest.raises(Overloaded) as caught:
        await room.submit("a")
    assert caught.value.code == "queue_full" and caught.value.retry_after_s > 0
    smaller = make_room(tasks={"max_queued": 1})  # since a restart
    for store in (room.store, smaller.store):
        assert len(await store.submit(batch)) == 2  # accepted before: a repeat is no new task
    assert (await room.look()).without_wake() == before.without_wake()


async def test_full_outbox_answers_overloaded(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"outbox_max": 2})
    worker = await room.join()
    await room.store.submit([room.submission() for _ in range(2)])
    await worker.finish([ending(t) for t in await room.start(worker)])
    with pytest.raises(Overloaded) as caught:
        await room.submit()
    assert caught.value.code == "outbox_full"


async def test_queued_task_is_small_and_stays_so_through_a_successful_life(room: Room) -> None:
    task_id = await room.submit("a", "hello", max_attempts=3, timeout_s=30)
    key = room.keys.task(task_id)
    assert await room.redis.object("encoding", key) == b"listpack"
    assert len(await room.fields(task_id)) <= 7
    worker = await room.join()
    await room.store.wait("client01", [task_id])
    await room.store.view(task_id)
    (taken,) = await room.start(worker)
    await worker.finish([ending(taken, result="hello")])
    assert len(await room.fields(task_id)) <= 13  # 12, and the mark x of the rare ones
    assert await room.redis.object("encoding", key) == b"listpack"


async def test_idle_worker_gets_a_small_submission_at_once(room: Room) -> None:
    worker = await room.join(capacity=2)
    ids = [await room.submit() for _ in range(3)]
    assert [await room.status(i) for i in ids] == ["ASSIGNED", "ASSIGNED", "QUEUED"]
    assert [t.id for t in await worker.take(5)] == ids[:2]


@pytest.mark.parametrize("hold", ["type:a", "high", "limit", "labels", "draining", "expired"])
async def test_no_direct_assignment_past_pauses_limits_labels_or_lost_workers(room: Room, hold: str) -> None:
    worker = await room.join()
    options: dict[str, Any] = {}
    if hold == "limit":
        await room.control.set_rate_limit("a", 1)
    elif hold == "labels":
        options["labels"] = ["gpu"]
    elif hold == "draining":
        await worker.beat("draining")
    elif hold == "expired":
        room.clock.advance(11)
    else:
        await room.control.pause(hold)
    assert await room.status(await room.submit("a", priority="high", **options)) == "QUEUED"
