"""Rate limits: never more than the limit in any window, nearly all of it under load, and nobody else is held up."""

from __future__ import annotations

import bisect
import random
from collections import defaultdict

import pytest

from tests.tasks.room import Room, ending
from tradewind.errors import Invalid, NotFound

LIMITS = {"a": (20, 1), "b": (7, 2), "c": (3, 5)}


def most_in_any_window(times: list[int], window_ms: int) -> int:
    """`times` in order; windows of that length that begin anywhere."""
    return max(bisect.bisect_left(times, t + window_ms) - i for i, t in enumerate(times))


async def test_no_sliding_window_sees_more_than_the_limit_and_load_uses_most_of_it(room: Room) -> None:
    for kind, (limit, window_s) in LIMITS.items():
        await room.control.set_rate_limit(kind, limit, window_s)
        await room.store.submit([room.submission(kind) for _ in range(300)])
    worker = await room.join("w1", LIMITS, capacity=500)
    chance, began = random.Random(7), room.clock.ms
    passed: dict[str, list[int]] = defaultdict(list)
    while room.clock.ms < began + 12_000:
        taken = await room.start(worker)
        for t in taken:
            passed[t.type].append(room.clock.ms)
        if taken:
            await worker.finish([ending(t) for t in taken])
        room.clock.advance(chance.choice([0.003, 0.02, 0.05, 0.11, 0.3]))
        await worker.beat()
    for kind, (limit, window_s) in LIMITS.items():
        assert most_in_any_window(passed[kind], window_s * 1000) <= limit * 1.1, kind
        assert len(passed[kind]) >= 0.8 * limit * 12 / window_s, kind


async def test_leader_is_told_when_the_next_one_may_pass(room: Room) -> None:
    await room.control.set_rate_limit("a", 5, 1)
    await room.store.submit([room.submission() for _ in range(40)])
    worker = await room.join(capacity=100)
    leader, began = await room.leader(), room.clock.ms
    assert (await leader.assign(500)).assigned == 5
    for _ in range(7):
        done = await leader.assign(500)
        assert done.assigned == 0 and not done.is_more and room.clock.ms < done.next_ms <= room.clock.ms + 1100
        room.clock.ms = done.next_ms
        await worker.beat()
        assert (await leader.assign(500)).assigned == 5
    assert room.clock.ms - began <= 7 * 1100


async def test_submit_does_not_pass_by_a_limit(room: Room) -> None:
    await room.join("w1", ["a", "b"], capacity=100)
    await room.control.set_rate_limit("a", 2, 1)
    limited = [await room.submit("a") for _ in range(5)]
    assert {await room.status(i) for i in limited} == {"QUEUED"}
    assert await room.assign() == 2
    free = await room.submit("b")
    await room.assign()
    assert await room.status(free) == "ASSIGNED"
    assert [await room.status(i) for i in limited] == ["ASSIGNED"] * 2 + ["QUEUED"] * 3


async def test_limited_type_holds_up_no_other_and_keeps_its_order(room: Room) -> None:
    await room.control.set_rate_limit("slow", 10, 60)
    slow = [a.id for a in await room.store.submit([room.submission("slow") for _ in range(1000)])]
    quick = [a.id for a in await room.store.submit([room.submission("quick") for _ in range(50)])]
    worker = await room.join("w1", ["slow", "quick"], capacity=200)
    leader = await room.leader()
    while (await leader.assign(500)).is_more:
        pass
    first = await worker.take(200)
    assert [t.id for t in first if t.type == "quick"] == quick
    started = [t.id for t in first if t.type == "slow"]
    assert started == slow[:10]
    await worker.finish([ending(t) for t in first if t.type == "quick"])
    await worker.release([(t.id, t.token) for t in first if t.type == "slow"], queue_too=False)
    for _ in range(3):
        room.clock.advance(66)
        worker = await room.join("w1", ["slow", "quick"], capacity=200)
        taken = await room.start(worker)
        started += [t.id for t in taken]
        await worker.finish([ending(t) for t in taken])
    assert started == slow[:10] + slow[:30]


async def test_a_limit_that_is_changed_or_removed_counts_at_once(room: Room) -> None:
    await room.control.set_rate_limit("a", 1, 3600)
    await room.store.submit([room.submission() for _ in range(30)])
    await room.join(capacity=100)
    assert await room.assign() == 1
    await room.control.set_rate_limit("a", 11, 3600)
    assert await room.assign() == 10
    await room.control.set_rate_limit("a", 5, 1)
    assert await room.assign() == 5
    await room.control.remove_rate_limit("a")
    assert await room.assign() == 14
    with pytest.raises(NotFound):
        await room.control.remove_rate_limit("a")


async def test_limits_are_shown_with_what_is_used(room: Room) -> None:
    await room.control.set_rate_limit("a", 4, 60)
    await room.control.set_rate_limit("b", 2)
    await room.store.submit([room.submission() for _ in range(10)])
    await room.join()
    await room.assign()
    shown = [(r.type, r.limit, r.window_s, r.used) for r in await room.control.rate_limits()]
    assert shown == [("a", 4, 60, 4), ("b", 2, 1, 0)]


@pytest.mark.parametrize(("kind", "limit", "window_s"), [("a b", 1, 1), ("a", 0, 1), ("a", True, 1), ("a", 1, 0.5)])
async def test_bad_limit_is_refused(room: Room, kind: str, limit: int, window_s: int) -> None:
    with pytest.raises(Invalid):
        await room.control.set_rate_limit(kind, limit, window_s)
    assert await room.control.rate_limits() == []
