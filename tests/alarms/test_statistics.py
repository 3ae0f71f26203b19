"""Figures: counts, times, rates, talkers, standing alarms, floods."""

from __future__ import annotations

import pytest

from tests.alarms.alarm_room import AlarmRoom, hot
from tradewind.alarms.statistics import read_statistics


async def test_nothing_yet(room: AlarmRoom) -> None:
    found = await read_statistics(room.plane)
    assert (found.raised, found.resolve_rate, found.acknowledge_s, found.talkers) == (0, None, None, [])
    assert set(found.open.values()) == {0}


async def test_figures_follow_the_alarms(room: AlarmRoom) -> None:
    old = await room.store.raise_(hot("a:old", level="Critical"))
    room.advance(86_401)
    one, two = await room.store.raise_many([hot("a:1"), hot("a:2")])
    for _ in range(3):
        await room.store.raise_(hot("a:2"))
    room.advance(10)
    await room.store.acknowledge(one.id, "li")
    room.advance(20)
    await room.store.acknowledge(two.id, "li")
    await room.store.resolve(one.id, "li")
    found = await read_statistics(room.plane)
    assert found.open == {"Critical": 1, "High": 1, "Medium": 0, "Low": 0, "Info": 0}
    assert {k: n for k, n in found.statuses.items() if n} == {"New": 1, "Acknowledged": 1, "Resolved": 1}
    assert (found.raised, found.raised_by_level["High"], found.acknowledged, found.resolved) == (3, 2, 2, 1)
    assert (found.acknowledge_s, found.resolve_s) == (20.0, 30.0)
    assert found.resolve_rate == pytest.approx(1 / 3)
    assert (found.talkers[0].source, found.talkers[0].raised) == ("a:2", 4)
    assert (found.standing, found.recent, found.is_flood, found.flood_share) == (1, 2, False, 0.0)
    assert await room.status(old.id) == "New"


async def test_a_flood_is_seen_and_its_share_of_the_time(room: AlarmRoom) -> None:
    await room.store.raise_(hot("a:0"))
    room.advance(300)
    await room.store.raise_many([hot(f"b:{n}") for n in range(9)])
    room.advance(100)
    found = await read_statistics(room.plane)
    assert (found.is_flood, found.floods, found.flood_share) == (True, 1, 0.25)


async def test_talkers_are_bounded(room: AlarmRoom) -> None:
    await room.store.raise_many([hot("busy:1")] * 5)
    await room.store.raise_many([hot(f"a:{n}") for n in range(1300)])
    assert await room.redis.zcard(room.keys.alarm_talkers()) <= 1200
    assert (await read_statistics(room.plane)).talkers[0].source == "busy:1"
