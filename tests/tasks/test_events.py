"""`task:events`: each transition is told exactly once, on every path, to subscribers of the channel or a pattern."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.tasks.room import Room, ending
from tradewind import codec

FIELDS = ["event", "task_id", "task_type", "timestamp"]


class Ear:
    def __init__(self, room: Room, pubsub: Any) -> None:
        self.room, self.pubsub = room, pubsub

    async def heard(self) -> list[tuple[str, str]]:
        """What was told since the last call: event without `task_`, task id."""
        await self.room.redis.publish(self.room.keys.events(), "end")
        found = []
        async with asyncio.timeout(5):
            async for message in self.pubsub.listen():
                if message["data"] == b"end":
                    break
                event = codec.decode(message["data"])
                assert list(event) == FIELDS and event["timestamp"] == self.room.clock.ms // 1000
                assert event["task_type"] == "a"
                found.append((event["event"].removeprefix("task_"), event["task_id"]))
        return found


@pytest.fixture(params=["subscribe", "psubscribe"])
async def ear(request: pytest.FixtureRequest, room: Room) -> AsyncIterator[Ear]:
    client = room.plane.link.new_client()
    pubsub = client.pubsub()
    channel = room.keys.events()
    await getattr(pubsub, request.param)(channel if request.param == "subscribe" else channel[:-3] + "*")
    async for _ in pubsub.listen():
        break  # the subscription stands
    yield Ear(room, pubsub)
    await pubsub.aclose()
    await client.aclose()


async def test_a_life_through_the_queue(room: Room, ear: Ear) -> None:
    task_id = await room.submit(max_attempts=2)
    assert await ear.heard() == [("created", task_id)]
    worker = await room.join()
    await room.assign()
    assert await ear.heard() == [("assigned", task_id)]
    (taken,) = await worker.take(1)
    assert await ear.heard() == [("started", task_id)]
    await worker.finish([ending(taken, "RETRYING", delay_ms=1000)])
    assert await ear.heard() == [("retrying", task_id)]
    room.clock.advance(1)
    (again,) = await room.start(worker)
    assert await ear.heard() == [("assigned", task_id), ("started", task_id)]
    await worker.finish([ending(again)])
    await worker.finish([ending(again)])
    assert await ear.heard() == [("completed", task_id)]


async def test_idle_worker_gets_it_at_once(room: Room, ear: Ear) -> None:
    await room.join()
    task_id = await room.submit()
    assert await ear.heard() == [("created", task_id), ("assigned", task_id)]


async def test_many_at_once(room: Room, ear: Ear) -> None:
    worker = await room.join(capacity=300)
    ids = [a.id for a in await room.store.submit([room.submission() for _ in range(300)])]
    taken = await room.start(worker, 300)
    await worker.finish([ending(t) for t in taken])
    heard = await ear.heard()
    for event in ("created", "assigned", "started", "completed"):
        assert [i for e, i in heard if e == event] == ids
    assert len(heard) == 1200


@pytest.mark.parametrize(
    ("status", "event"),
    [
        ("SUCCESS", "completed"), ("FAILED", "failed"), ("TIMEOUT", "failed"), ("CANCELLED", "cancelled"),
        ("DEAD", "dead"),
    ],
)  # fmt: skip
async def test_every_end_of_an_attempt(room: Room, ear: Ear, status: str, event: str) -> None:
    worker = await room.join()
    task_id = await room.submit()
    (taken,) = await room.start(worker)
    await ear.heard()
    await worker.finish([ending(taken, status)])
    assert await ear.heard() == [(event, task_id)]
    if status != "SUCCESS":
        await room.store.retry(task_id)
        assert await ear.heard() == [("created", task_id)]


@pytest.mark.parametrize("state", ["PENDING", "QUEUED", "ASSIGNED", "PROCESSING"])
async def test_cancel(room: Room, ear: Ear, state: str) -> None:
    task_id = await room.submit(delay_s=60 if state == "PENDING" else 0)
    worker = await room.join()
    if state in ("ASSIGNED", "PROCESSING"):
        await room.assign()
    taken = await worker.take(1) if state == "PROCESSING" else []
    await ear.heard()
    await room.store.cancel([task_id])
    await room.store.cancel([task_id])
    if taken:
        assert await ear.heard() == []
        await worker.finish([ending(taken[0], "CANCELLED")])
    assert await ear.heard() == [("cancelled", task_id)]


async def test_lost_worker_until_its_task_is_dead(make_room: Callable[..., Room], room: Room, ear: Ear) -> None:
    room = make_room(tasks={"max_stalls": 1})
    task_id = await room.submit()
    await room.start(await room.join())
    await ear.heard()
    room.clock.advance(11)
    await (await room.leader()).evict("w1")
    assert await ear.heard() == []
    await room.start(await room.join())
    assert await ear.heard() == [("assigned", task_id), ("started", task_id)]
    room.clock.advance(11)
    await (await room.leader()).evict("w1")
    assert await ear.heard() == [("dead", task_id)]


@pytest.mark.parametrize("where", ["queued", "assigned"])
async def test_deadline_that_passes_before_a_worker_takes_it(room: Room, ear: Ear, where: str) -> None:
    task_id = await room.submit(deadline=room.clock.ms + 1000)
    worker = await room.join()
    if where == "assigned":
        await room.assign()
    await ear.heard()
    room.clock.advance(2)
    assert await room.start(worker) == []
    assert await ear.heard() == [("failed", task_id)]


async def test_deadline_that_passes_without_a_worker(room: Room, ear: Ear) -> None:
    ids = [
        await room.submit(deadline=room.clock.ms + 1000),
        await room.submit(deadline=room.clock.ms + 1000, delay_s=9),
    ]
    await ear.heard()
    room.clock.advance(2)
    leader = await room.leader()
    assert await leader.expire() == 2 and await leader.expire() == 0
    assert sorted(await ear.heard()) == sorted(("failed", i) for i in ids)


@pytest.mark.parametrize(("attempts", "event"), [(1, "failed"), (2, "retrying")])
async def test_overdue_attempt(room: Room, ear: Ear, attempts: int, event: str) -> None:
    task_id = await room.submit(timeout_s=1, max_attempts=attempts)
    await room.start(await room.join())
    await ear.heard()
    room.clock.advance(7)
    assert await (await room.leader()).reap("w1") == 1
    assert await ear.heard() == [(event, task_id)]


async def test_flag_by_hand_before_the_start(room: Room, ear: Ear) -> None:
    task_id = await room.submit()
    await room.redis.set(room.keys.cancel(task_id), "1", ex=3600)
    await ear.heard()
    assert await room.start(await room.join()) == []
    assert await ear.heard() == [("assigned", task_id), ("cancelled", task_id)]


async def test_refused_calls_tell_nothing(room: Room, ear: Ear) -> None:
    worker = await room.join()
    task_id = await room.submit(id="x")
    (taken,) = await room.start(worker)
    await worker.finish([ending(taken)])
    await ear.heard()
    await room.store.submit([room.submission(id="x")])  # a repeat
    assert await worker.finish([ending(taken, "FAILED")]) == [2]
    await room.store.cancel([task_id])
    assert await ear.heard() == []
