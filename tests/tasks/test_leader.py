"""The lead: taken once, kept by its holder only, given up in time; every term has a higher epoch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests import servers
from tests.lifetimes import lives
from tests.tasks.room import Room
from tradewind.clock import FakeClock
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, SchedulerSettings, Settings
from tradewind.tasks.leader import Leadership
from tradewind.tasks.plane import Plane

QUICK = SchedulerSettings(leader_ttl_s=3, renew_s=1)


async def until(is_true: Callable[[], bool], within_s: float = 5) -> float:
    """How long it took."""
    began = time.monotonic()
    async with asyncio.timeout(within_s):
        while not is_true():  # noqa: ASYNC110 — a thread does it
            await asyncio.sleep(0.005)
    return time.monotonic() - began


async def script(room: Room, name: str, *args: str | int) -> int:
    reply: int = await room.plane.scripts.run(name, [room.keys.leader(), room.keys.epoch()], args)
    return reply


async def test_lead_is_taken_once_and_each_term_has_a_higher_epoch(room: Room) -> None:
    assert await script(room, "leader_acquire", "s1", 10_000) == 1
    assert await script(room, "leader_acquire", "s2", 10_000) == 0
    assert await script(room, "leader_acquire", "s1", 10_000) == 0
    assert await script(room, "leader_release", "s1", 1) == 1
    assert await script(room, "leader_acquire", "s2", 10_000) == 2
    assert await room.redis.get(room.keys.epoch()) == b"2"


@pytest.mark.parametrize(("name", "epoch"), [("s2", 1), ("s1", 2), ("s1", 0), ("", 1)])
async def test_only_the_holder_of_the_term_renews_and_releases(room: Room, name: str, epoch: int) -> None:
    await script(room, "leader_acquire", "s1", 5000)
    assert await script(room, "leader_renew", name, epoch, 60_000) == 0
    assert await script(room, "leader_release", name, epoch) == 0
    assert await room.redis.get(room.keys.leader()) == b"s1"
    await lives(room.redis, room.keys.leader(), 5)
    assert await script(room, "leader_renew", "s1", 1, 60_000) == 1
    await lives(room.redis, room.keys.leader(), 60, spent_s=5)


def leadership(plane: Plane, name: str) -> Leadership:
    return Leadership(plane, name, plane.keys.leader(), plane.keys.epoch())


async def test_same_scheduler_in_a_new_term_cannot_act_for_the_old_one(room: Room) -> None:
    await script(room, "leader_acquire", "s1", 5000)
    await room.redis.delete(room.keys.leader())
    assert await script(room, "leader_acquire", "s1", 5000) == 2
    assert await script(room, "leader_renew", "s1", 1, 60_000) == 0
    assert await script(room, "leader_release", "s1", 1) == 0


async def test_a_lease_from_before_the_clock_was_set_back_ends(room: Room) -> None:
    """Redis ends a key at a moment of its clock: that of a dead leader would stay for as long as it was set back."""
    await room.redis.set(room.keys.leader(), "dead", px=3_600_000)
    assert await script(room, "leader_acquire", "s1", 100) == 0
    assert 0 < await room.redis.pttl(room.keys.leader()) <= 200
    await asyncio.sleep(0.25)
    assert await script(room, "leader_acquire", "s1", 100)


async def test_two_of_them_lead_one_after_the_other(room: Room) -> None:
    one, two = leadership(room.plane, "s1"), leadership(room.plane, "s2")
    one.start()
    await until(lambda: one.epoch == 1 and one.changed.is_set())
    assert one.changed.is_set() and await room.control.leader() == "s1"
    assert 9000 < await room.redis.pttl(room.keys.leader()) <= 10_000
    two.start()
    await one.stop()
    assert one.epoch == 0
    assert await until(lambda: two.epoch == 2) < 1
    await two.stop()
    assert await room.control.leader() is None


async def test_leader_whose_lock_was_taken_steps_down_and_leaves_the_new_one_alone(
    make_room: Callable[..., Room],
) -> None:
    room = make_room(scheduler=QUICK)
    lead = leadership(room.plane, "s1")
    lead.start()
    await until(lambda: lead.epoch == 1)
    await room.redis.set(room.keys.leader(), "thief", ex=60)
    await until(lambda: lead.epoch == 0, 3)
    await lead.stop()
    assert await room.control.leader() == "thief"


async def test_step_down_of_an_old_term_does_not_end_a_new_one(room: Room) -> None:
    lead = leadership(room.plane, "s1")
    lead.epoch = 7
    lead.step_down(6)
    assert lead.epoch == 7 and not lead.changed.is_set()
    lead.step_down(7)
    assert lead.epoch == 0


@pytest.mark.parametrize("fault", ["paused", "killed"])
async def test_leader_that_cannot_reach_redis_steps_down_before_its_lease_ends(fault: str) -> None:
    with servers.redis_server() as server:
        link = await open_link(RedisSettings(url=server.url))
        lead = leadership(Plane(link, Settings(scheduler=QUICK), FakeClock()), "s1")
        lead.start()
        await until(lambda: lead.epoch == 1)
        server.pause() if fault == "paused" else server.kill()
        assert await until(lambda: lead.epoch == 0, 10) < QUICK.leader_ttl_s
        server.resume() if fault == "paused" else server.start()
        await until(lambda: lead.epoch > 0, 10)
        await lead.stop()
        await link.close()
