"""Figures of a period: over everything they are those since ever, over a part only what happened in it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.alarms.alarm_room import AlarmRoom, hot
from tests.sql.databases import fresh_database
from tradewind.alarms.period import read_period
from tradewind.alarms.recorder import AlarmRecorder
from tradewind.alarms.statistics import PeriodStatistics, Talker, read_statistics
from tradewind.alarms.transitions import Action
from tradewind.redis.connection import Link
from tradewind.sql import open_sql

pytestmark = pytest.mark.parametrize(
    ("any_redis", "dialect"), [("redis_7", "sqlite"), ("redis_7", "postgresql")], indirect=["any_redis"]
)


@pytest.fixture
async def room(
    request: pytest.FixtureRequest, dialect: str, tmp_path: Path, link: Link, key_prefix: str
) -> AsyncIterator[AlarmRoom]:
    async with fresh_database(request, dialect, tmp_path) as url:
        sql = await open_sql(url, None)
        yield AlarmRoom(link, key_prefix, sql=sql, escalate_s=50)
        await sql.close()


async def period(room: AlarmRoom, from_ms: int = 0, to_ms: int | None = None) -> PeriodStatistics:
    assert room.journal is not None
    recorder = AlarmRecorder(room.plane, room.journal)
    while await recorder.step():
        pass
    return await read_period(room.plane, room.journal, from_ms, room.clock.now_ms() if to_ms is None else to_ms, 3)


async def test_nothing_happened(room: AlarmRoom) -> None:
    found = await period(room)
    assert (found.raised, found.resolve_rate, found.acknowledge_s, found.talkers) == (0, None, None, [])
    assert found.recorded_until_ms is None


async def test_only_what_happened_in_the_period_counts(room: AlarmRoom) -> None:
    old = await room.store.raise_(hot("a:old", level="Critical"))
    start = room.clock.now_ms() + 100_000
    room.advance(100)
    one, two, _ = await room.store.raise_many([hot("a:1"), hot("a:2"), hot("a:2")])
    room.advance(10)
    await room.store.acknowledge(one.id, "li")
    room.advance(20)
    await room.store.resolve(one.id, "li")
    await room.store.resolve(old.id, "li")
    end = room.clock.now_ms()
    room.advance(5)
    await room.store.acknowledge(two.id, "li")
    await room.store.clear("rule_1", "a:2")
    await room.store.raise_(hot("a:2"))
    found = await period(room, start, end)
    assert {level: n for level, n in found.raised_by_level.items() if n} == {"High": 2}
    assert (found.raised, found.acknowledged, found.resolved) == (2, 1, 2)
    assert (found.acknowledge_s, found.resolve_s, found.resolve_rate) == (10.0, (30 + 130) / 2, 0.5)
    assert found.talkers == [Talker("rule_1", "a:1", 1), Talker("rule_1", "a:2", 1)]
    late = await period(room, end + 1)
    assert (late.raised, late.acknowledged, late.acknowledge_s, late.resolve_s) == (1, 1, 35.0, 35.0)
    assert (late.resolve_rate, late.talkers) == (0.0, [Talker("rule_1", "a:2", 1)])
    before = await period(room, 0, start - 1)
    assert (before.raised, before.resolved, before.resolve_rate) == (1, 0, 0.0)


async def test_what_is_not_in_sql_yet_is_told(room: AlarmRoom) -> None:
    await room.store.raise_(hot("a:1"))
    await period(room)
    room.advance(7)
    await room.store.raise_(hot("a:2"))
    room.advance(1)
    assert room.journal is not None
    found = await read_period(room.plane, room.journal, 0, room.clock.now_ms())
    assert (found.raised, found.recorded_until_ms) == (1, room.clock.now_ms() - 1000)


async def test_an_acknowledgement_that_was_dropped_with_its_beginning_has_no_time(room: AlarmRoom) -> None:
    alarm = await room.store.raise_(hot("a:1"))
    await room.redis.xtrim(room.keys.alarm_journal(), maxlen=0)
    await room.store.acknowledge(alarm.id, "li")
    found = await period(room)
    assert (found.raised, found.acknowledged, found.acknowledge_s) == (0, 1, None)


async def test_to_close_is_to_acknowledge_if_nobody_has_or_it_was_taken_back(room: AlarmRoom) -> None:
    seen, taken_back, unseen = await room.store.raise_many([hot(f"a:{n}") for n in range(3)])
    room.advance(10)
    for alarm in (seen, taken_back):
        await room.store.acknowledge(alarm.id, "li")
    await room.store.escalate(taken_back.id, "li")  # nobody sees to it any more
    room.advance(20)
    for alarm in (seen, taken_back, unseen):
        await room.store.resolve(alarm.id, "li")
        await room.store.close(alarm.id, "li")
    found, live = await period(room), await read_statistics(room.plane)
    assert (found.acknowledged, found.acknowledge_s) == (live.acknowledged, live.acknowledge_s) == (4, 20.0)


async def test_over_everything_the_figures_are_those_since_ever(room: AlarmRoom) -> None:
    """A random life with everything that begins, ends or takes back a wait."""
    chance = random.Random(7)
    ids: list[str] = []
    for _ in range(300):
        room.advance(chance.choice((0.001, 1, 20, 60)))
        name = f"comsrv:{chance.randrange(3)}:m:{chance.randrange(3)}"
        word = chance.choice(("raise", "raise", "clear", "act", "act", "act", "tick", "channel"))
        if word == "raise":
            levels = chance.choice(("High", "Low", "Critical"))
            ids.append((await room.store.raise_(hot(name, level=levels, latched=chance.random() < 0.3))).id)
        elif word == "clear":
            await room.store.clear("rule_1", name)
        elif word == "channel":
            place = name.rpartition(":m:")[0]
            if await room.store.open_id("station", place):
                await room.store.clear("station", place)
            else:
                ids.append((await room.store.raise_(hot(place, "station"))).id)
        elif word == "tick":
            await room.tick()
        elif ids:
            await room.store.act(chance.choice(list(Action)), [chance.choice(ids)], "li", duration_s=30)
    live, found = await read_statistics(room.plane), await period(room)
    assert live.raised > 20 and live.acknowledged > 10 and live.resolved > 10
    for name in ("raised", "raised_by_level", "acknowledged", "resolved"):
        assert getattr(found, name) == getattr(live, name), name
    for name in ("acknowledge_s", "resolve_s", "resolve_rate"):
        assert getattr(found, name) == pytest.approx(getattr(live, name)), name
    events = {event for id in ids for event in await room.events(id)}
    assert "closed" in events, "to close is to acknowledge, if nobody has"
