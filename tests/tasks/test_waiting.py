"""A task that nobody can run says so by name: what it waits for, in its status and in lists."""

from __future__ import annotations

from typing import Any

import pytest

from tests import servers
from tests.tasks.room import Room
from tests.tasks.workshop import eventually, workshop
from tradewind import codec
from tradewind.cli.examine import _unserved
from tradewind.tasks.waiting import Candidate, Wanted, fill, reason


def worker(status: str = "active", *labels: str) -> Candidate:
    return Candidate("w", status, frozenset(labels))


@pytest.mark.parametrize(
    ("wanted", "candidates", "paused", "is_led", "says"),
    [
        (Wanted("a"), [], set(), True, "no live worker supports type 'a'"),
        (Wanted("a"), [worker()], set(), True, None),
        (Wanted("a", labels=("gpu",)), [worker()], set(), True,
         "no live worker that supports type 'a' has the labels gpu"),
        (Wanted("a", labels=("gpu",)), [worker("active", "gpu", "x")], set(), True, None),
        (Wanted("a"), [worker("draining")], set(), True, "every worker that supports type 'a' is leaving"),
        (Wanted("a"), [worker("draining"), worker()], set(), True, None),
        (Wanted("a"), [worker()], {"type:a"}, True, "type 'a' is paused"),
        (Wanted("a", "high"), [worker()], {"high"}, True, "queue 'high' is paused"),
        (Wanted("a"), [worker()], {"high", "type:b"}, True, None),
        (Wanted("a"), [worker()], set(), False, "no scheduler leads: tasks are not assigned"),
    ],
)  # fmt: skip
def test_reasons(wanted: Wanted, candidates: list[Candidate], paused: set[str], is_led: bool, says: str | None) -> None:
    assert reason(wanted, candidates, frozenset(paused), is_led=is_led) == says


async def waits_for(room: Room, task_id: str) -> Any:
    return codec.decode(await room.store.view(task_id))["waiting_for"]


async def test_the_view_of_a_task_says_what_it_waits_for(room: Room) -> None:
    await room.lead()
    first = await room.submit("a")
    labelled = await room.submit("a", labels=["gpu"])
    later = await room.submit("b", delay_s=60)
    for _ in range(2):  # also from the cache
        assert await waits_for(room, first) == "no live worker supports type 'a'"
        assert await waits_for(room, later) == "no live worker supports type 'b'"
    store = await room.join("w1", ["a"])
    assert await waits_for(room, first) is None, "at once, though the task itself has not changed"
    assert "labels gpu" in await waits_for(room, labelled)
    await room.control.pause("type:a")
    assert await waits_for(room, first) == "type 'a' is paused"
    await room.control.resume("type:a")
    (taken,) = [t for t in await room.start(store) if t.id == first]
    assert await waits_for(room, taken.id) is None
    await room.redis.delete(room.keys.leader())
    await room.join("w2", ["a"], labels="gpu")
    assert await waits_for(room, labelled) == "no scheduler leads: tasks are not assigned"
    views = [task.view() for task in await room.store.read([first, labelled, later]) if task is not None]
    await fill(room.plane, views)
    assert [view["waiting_for"] is None for view in views] == [True, False, False]


async def test_a_worker_that_is_gone_supports_nothing(room: Room) -> None:
    await room.lead()
    task_id = await room.submit("a")
    await room.redis.sadd(room.keys.worker_type("a"), "ghost")
    assert await waits_for(room, task_id) == "no live worker supports type 'a'"
    await room.redis.hset(room.keys.worker("ghost"), mapping={"id": "ghost", "capacity": 1})
    assert await waits_for(room, task_id) is None


async def test_doctor_names_what_nobody_can_run(room: Room) -> None:
    await room.join("w1", ["a"])
    await room.submit("a")
    await room.submit("lost_type")
    await room.submit("lost_type", labels=["gpu"], priority="high")
    await room.assign()
    (check,) = await _unserved(room.plane)
    assert (check.status, check.detail) == ("warn", "no live worker supports type 'lost_type'")
    await room.join("w2", ["lost_type"], labels="gpu")
    assert [check.status for check in await _unserved(room.plane)] == ["ok"]


async def test_a_client_is_told(redis_7: servers.Server, key_prefix: str) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        handle = await shop.client.submit("wt_add", 1)
        await eventually(lambda: shop.plane.redis.exists(shop.keys.leader()), "a leader")
        assert (await handle.view())["waiting_for"] == "no live worker supports type 'wt_add'"
