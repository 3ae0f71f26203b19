"""Every script may be sent again when its reply was lost: the same answer, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.tasks.room import Room, ending
from tradewind.errors import Conflict
from tradewind.redis.scripts import Call, Scripts
from tradewind.tasks.periodic import Periodic, Schedule, ScheduleStore


class Twice(Scripts):
    """Sends every call twice, as after a lost reply; both answers are kept, the second one is returned."""

    def __init__(self, inner: Scripts) -> None:
        super().__init__(inner.link, "tradewind.tasks")
        self.answers: list[tuple[Any, Any]] = []

    async def run_all(self, calls: Any, **options: Any) -> list[Any]:
        first = await super().run_all(calls, **options)
        second = await super().run_all(calls, **options)
        self.answers.append((first, second))
        return second


@contextmanager
def lost_replies(room: Room) -> Iterator[Twice]:
    scripts = room.plane.scripts
    room.plane.scripts = twice = Twice(scripts)
    try:
        yield twice
    finally:
        room.plane.scripts = scripts


async def same_twice(room: Room, verb: Callable[[], Awaitable[Any]]) -> None:
    """The first sending's effect is the whole effect: compared with a reading in between."""
    between: list[dict[str, Any]] = []
    once = room.plane.scripts
    run_all = once.run_all

    class Spy(Scripts):
        async def run_all(self, calls: Any, **options: Any) -> list[Any]:
            first = await run_all(calls, **options)
            between.append((await room.look()).without_wake())
            again = await run_all(calls, **options)
            assert again == first, [call[0] for call in calls]
            assert (await room.look()).without_wake() == between[-1], [call[0] for call in calls]
            return again

    room.plane.scripts = Spy(once.link, "tradewind.tasks")
    try:
        await verb()
    finally:
        room.plane.scripts = once
    assert between


async def test_submit(room: Room) -> None:
    await room.join("w1", ["direct"])
    batch = [
        room.submission("direct"),
        room.submission("a", priority="high"),
        room.submission("a", delay_s=5),
        room.submission("a", 1, idempotency_key="k"),
        room.submission("a", 1, idempotency_key="k"),
    ]
    await same_twice(room, lambda: room.store.submit(batch))
    seen = await room.look()
    assert seen.number("metrics:task:count:submitted") == 4
    accepted = await room.store.submit([room.submission("a", 1, idempotency_key="k")])
    assert accepted[0].id == batch[3].id and not accepted[0].is_new


async def test_submit_whose_task_has_ended_meanwhile_is_not_run_again(room: Room) -> None:
    worker = await room.join()
    batch = [room.submission(), room.submission(idempotency_key="k")]
    await room.store.submit(batch)
    await worker.finish([ending(t) for t in await room.start(worker)])
    again = await room.store.submit(batch)
    assert [(a.id, a.status) for a in again] == [(s.id, "SUCCESS") for s in batch]
    assert await room.start(worker) == []


async def test_the_id_or_the_key_of_another_request_is_a_conflict_and_nothing_is_stored(room: Room) -> None:
    await room.submit("a", 1, id="mine", idempotency_key="k")
    before = await room.look()
    for batch in (
        [room.submission("a"), room.submission("a", 2, id="mine")],
        [room.submission("a"), room.submission("a", 2, idempotency_key="k")],
        [room.submission("a"), room.submission("b", 1, idempotency_key="k")],
    ):
        with pytest.raises(Conflict):
            await room.store.submit(batch)
    assert (await room.look()).values == before.values


async def test_submit_at_the_bound_is_not_refused_when_it_is_repeated(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"max_queued": 2})
    batch = [room.submission(), room.submission()]
    await same_twice(room, lambda: room.store.submit(batch))


async def test_finish(room: Room) -> None:
    worker = await room.join()
    for _ in range(6):
        await room.submit(max_attempts=3)
    taken = await room.start(worker)
    states = ("SUCCESS", "FAILED", "DEAD", "TIMEOUT", "CANCELLED", "RETRYING")
    batch = [ending(t, status) for t, status in zip(taken, states, strict=True)]
    with lost_replies(room) as twice:
        before = room.clock.ms
        assert await worker.finish(batch) == [2] * 6
    assert twice.answers == [([[1] * 6], [[2] * 6])] and room.clock.ms == before
    seen = await room.look()
    assert sum(len(ids) for _, ids in seen.entries) == seen.number("task:outbox:count") == 5
    assert all(seen.number(f"metrics:task:count:{s.lower()}") == 1 for s in states)


@pytest.mark.parametrize("state", ["PENDING", "QUEUED", "ASSIGNED", "PROCESSING"])
async def test_cancel(room: Room, state: str) -> None:
    task_id = await room.submit(delay_s=60 if state == "PENDING" else 0)
    if state in ("ASSIGNED", "PROCESSING"):
        worker = await room.join()
        await room.assign()
        if state == "PROCESSING":
            await worker.take(1)
    assert await room.status(task_id) == state
    await same_twice(room, lambda: room.store.cancel([task_id]))


@pytest.mark.parametrize("is_tombstone", [True, False])
async def test_retry(room: Room, is_tombstone: bool) -> None:
    task_id = await room.submit()
    if is_tombstone:
        await room.store.cancel([task_id])
    else:
        worker = await room.join(capacity=1)
        await worker.finish([ending(t, "DEAD") for t in await room.start(worker)])
    await same_twice(room, lambda: room.store.retry(task_id))
    seen = await room.look()
    assert seen.places[task_id] == ["queue:normal"] and seen.status(task_id) == "QUEUED"


async def test_retry_that_is_repeated_after_the_task_has_started_changes_nothing(room: Room) -> None:
    task_id = await room.submit()
    await room.store.cancel([task_id])
    keys, args = room.keys, [*room.plane.head(), "word", task_id]
    call: Call = ("task_retry", [keys.dead(), keys.queue("high"), keys.queue("normal")], args)
    await room.plane.scripts.run(*call)
    await room.start(await room.join())
    before = await room.look()
    assert await room.plane.scripts.run(*call) == [[1, b"QUEUED"]]
    assert (await room.look()).values == before.values


async def test_register(room: Room) -> None:
    worker = await room.join()
    await room.submit()
    await room.start(worker)
    fields = {"capacity": 5, "status": "active", "pull": "1"}
    with lost_replies(room) as twice:
        await worker.register(fields, {"a": b"{}"})
    assert twice.answers == [([0], [0])]
    assert len((await room.look()).values["worker:w1:inflight"]) == 1
    worker.generation = "next"
    with lost_replies(room) as twice:
        await worker.register(fields, {"a": b"{}"})
    assert twice.answers == [([1], [0])]  # how many went back: for a log line only
    assert (await room.look()).number("metrics:task:count:submitted") == 1


async def test_evict_release_reap_and_leave(room: Room) -> None:
    worker = await room.join()
    for _ in range(4):
        await room.submit(timeout_s=1)
    taken = await room.start(worker, 2)
    with lost_replies(room):
        await worker.release([(taken[0].id, taken[0].token)], queue_too=True)
        room.clock.advance(7)
        await (await room.leader()).reap("w1")
        await worker.leave()
    seen = await room.look()
    assert sorted(seen.status(t.id) for t in taken) == ["QUEUED", "TIMEOUT"] and "worker:w1" not in seen.values
    other = await room.join("w2")
    await room.start(other)
    room.clock.advance(11)
    with lost_replies(room):
        await (await room.leader()).evict("w2")
    seen = await room.look()
    assert len(seen.values["queue:normal"]) == 3 and not seen.values.get("workers")
    assert {t.get("stalls", "0") for t in seen.tasks.values() if t["status"] == "QUEUED"} == {"1"}


async def test_promote_and_assign(room: Room) -> None:
    worker = await room.join()
    ids = [await room.submit(delay_s=1) for _ in range(5)] + [await room.submit("a", 1) for _ in range(5)]
    room.clock.advance(2)
    leader = await room.leader()
    with lost_replies(room):
        await leader.assign(500)
    assert {t.id for t in await worker.take(20)} == set(ids)


async def test_archived(room: Room) -> None:
    worker = await room.join()
    task_id = await room.submit()
    await worker.finish([ending(t) for t in await room.start(worker)])
    entry = (await room.redis.xrange(room.keys.outbox()))[0][0]
    end = (await room.fields(task_id))["end"]
    names, args = [room.keys.outbox(), room.keys.outbox_count()], [room.keys.p, 300_000, 1, entry, task_id, end]
    assert await room.plane.scripts.run("task_archived", names, args) == 1
    before = await room.look()
    assert await room.plane.scripts.run("task_archived", names, args) == 0
    assert (await room.look()).values == before.values and before.number("task:outbox:count") == 0


async def test_schedule_set_and_advance(room: Room) -> None:
    schedules = ScheduleStore(room.plane)
    await same_twice(room, lambda: schedules.set(Schedule("s", "a", every_ms=1000)))
    room.clock.advance(1)
    with lost_replies(room) as twice:
        await Periodic(room.plane, room.store).fire_due(room.clock.ms)
    assert [answers for answers in twice.answers if answers[0] == [1]] == [([1], [0])]
    assert (await room.look()).number("metrics:task:count:submitted") == 1
    assert (await schedules.get("s")).next_ms == room.clock.ms + 1000
