"""The clock is set back by an hour: what is read next counts at once, on the board, in rules, models and history."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.models.examples import energy, total
from tests.models.model_room import ModelRoom
from tests.points.board_room import BoardRoom, board_room
from tests.points.site import virtual_channel
from tests.process import Server
from tests.rules.rule_room import RuleRoom, rule, until
from tradewind.clock import FakeClock
from tradewind.history.policy import Thinning
from tradewind.history.sample import Row
from tradewind.history.thinning import Thinner
from tradewind.models.network import Network
from tradewind.points.board import Batch, Written
from tradewind.points.board_point import Moment
from tradewind.points.channel_bench import Bench
from tradewind.points.channel_runner import ChannelRunner
from tradewind.points.channel_samples import Samples
from tradewind.points.channel_status import ChannelStatus
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.feed import FeedReader
from tradewind.points.spec import Kind, PointSpec, Quality, Reading
from tradewind.points.values import FUTURE_MS
from tradewind.redis.connection import Link, open_link
from tradewind.rules.network import RuleNetwork
from tradewind.rules.spec import Compare, Rule
from tradewind.settings import RedisSettings, Settings

HOUR_S = 3600.0
KEY = "comsrv:1001:m"


def batch(values: dict[str, float], ts_ms: int = 0) -> Batch:
    return Batch.of_channel("1001", "m", values, ts_ms)


async def set_back(room: BoardRoom, seconds: float = HOUR_S) -> None:
    assert isinstance(room.plane.clock, FakeClock)
    room.plane.clock.advance(-seconds)


async def test_what_is_read_after_the_clock_was_set_back_is_shown_at_once(link: Link, key_prefix: str) -> None:
    async with board_room(link, key_prefix, FakeClock()) as room:
        reader = FeedReader(room.plane, "test", start="oldest")
        await room.board.write([batch({"1": 1.0, "2": 2.0, "3": 3.0})])
        await set_back(room)
        assert await room.board.write([batch({"1": 10.0})]) == Written(accepted=1, replaced=1)
        assert await room.board.write([batch({"2": 20.0}, room.now - 1)]) == Written(accepted=1, replaced=1)
        found = {p.address: p for p in await room.board.read_channel("1001", ["m"])}
        assert (found[f"{KEY}:1"].value, found[f"{KEY}:1"].ts, found[f"{KEY}:1"].quality) == (10.0, room.now, "good")
        assert (found[f"{KEY}:2"].value, found[f"{KEY}:2"].ts) == (20.0, room.now - 1)
        # Nobody has read it since: how old it is cannot be told.
        assert (found[f"{KEY}:3"].quality, found[f"{KEY}:3"].is_stale) == ("uncertain", True)
        room.plane.clock.advance(1)  # type: ignore[attr-defined]
        assert await room.board.write([batch({"1": 11.0, "2": 21.0, "3": 31.0})]) == Written(accepted=3, replaced=1)
        room.plane.clock.advance(1)  # type: ignore[attr-defined]
        assert await room.board.write([batch({"1": 12.0, "2": 22.0})]) == Written(accepted=2)
        assert await room.board.write([batch({"1": 9.0}, room.now - 500)]) == Written(late=1), "late is late again"
        if not link.cluster:
            entries = [entry for entry in (await reader.read(1)).entries]  # type: ignore[union-attr]
            assert [entry.is_back for entry in entries] == [False, True, True, True, False, False]
        await reader.close()


async def test_a_small_step_back_makes_nothing_late_that_is_read_now(link: Link, key_prefix: str) -> None:
    async with board_room(link, key_prefix, FakeClock()) as room:
        await room.board.write([batch({"1": 1.0})])
        before = room.now
        await set_back(room, 3)
        assert await room.board.write([batch({"1": 2.0})]) == Written(accepted=1, equal=1)
        [point] = await room.board.read_channel("1001", ["m"])
        assert (point.value, point.ts) == (2.0, before)
        assert await room.board.compare_and_set(f"{KEY}:1", 2.0, 3.0)
        await set_back(room)
        assert await room.board.compare_and_set(f"{KEY}:1", 3.0, 4.0)
        [point] = await room.board.read_channel("1001", ["m"])
        assert (point.value, point.ts) == (4.0, room.now)


async def test_rules_judge_what_comes_after_the_clock_was_set_back(link: Link, key_prefix: str) -> None:
    if link.cluster:
        pytest.skip("once is enough")
    room = RuleRoom(link, key_prefix, points={"stale_s": 60})
    try:
        await room.store.apply([rule("plain"), rule("long", point="2", for_ms=2000)])
        await room.show(70.0)
        await room.show(70.0, point="2")
        async with room.leading():
            await room.show(71.0, 1)
            await room.show(80.0, 1, point="2")  # waits for two seconds
            await until(lambda: room.is_caught_up())
            await room.show(80.0, -HOUR_S)
            [alarm] = await room.alarms_become("New")
            assert alarm["rule_id"] == "plain"
            await room.show(80.0, 1, point="2")
            await room.show(80.0, 3, point="2")
            alarms = await room.alarms_become("New", "New")
            assert {alarm["rule_id"] for alarm in alarms} == {"plain", "long"}
            await room.show(70.0, 1)
            await room.alarms_become("New", "Resolved")
    finally:
        await room.plane.close()


async def test_models_compute_and_count_after_the_clock_was_set_back(link: Link, key_prefix: str) -> None:
    if link.cluster:
        pytest.skip("once is enough")
    clock = FakeClock()
    room = ModelRoom(link, key_prefix, clock)
    try:
        await room.store.put(total())
        await room.store.put(energy())
        async with room.engine() as engine:

            async def leads() -> bool:
                return bool(engine.is_leading and engine.stats.rounds)

            await until(leads)
            for _ in range(2):  # 1 kW for half an hour
                await room.write(clock.ms, {"1": 1.0, "2": 2.0})
                clock.advance(1800)
            await room.write(clock.ms, {"1": 1.0, "2": 2.0})
            await room.becomes("meter", {"energy": "1.000000"})
            clock.advance(-5 * HOUR_S)
            await room.write(0, {"1": 2.0, "2": 2.0})
            await room.becomes("total", {"total": "4.000000"})
            assert (await room.values("total", 1))["total"] == str(clock.ms)
            assert await room.values("total", 2) == {}
            clock.advance(1800)
            await room.write(0, {"1": 2.0, "2": 2.0})
            await room.becomes("meter", {"energy": "2.000000"})
            assert (await room.values("meter", 1))["energy"] == str(clock.ms)
    finally:
        await room.plane.close()


def test_thinned_history_goes_on_after_the_clock_was_set_back() -> None:
    thinner, thinning = Thinner(), Thinning(deadband=1.0, min_interval_ms=0)
    assert thinner.take(Row("a", 10_000_000, 5.0, 0), thinning, 0)
    assert not thinner.take(Row("a", 10_001_000, 5.1, 0), thinning, 1)
    thinner.set_back("a", 6_400_000)
    assert thinner.take(Row("a", 6_400_000, 5.1, 0), thinning, 2), "the first of the new time"
    assert not thinner.take(Row("a", 6_401_000, 5.2, 0), thinning, 3), "and thinned from then on"


def test_a_device_that_goes_bad_after_the_clock_was_set_back_is_told() -> None:
    samples = Samples(virtual_channel("1", PointSpec(Kind.MEASUREMENT, "1")), 15)
    now = 1_700_000_000_000
    assert samples.changes([Reading(Kind.MEASUREMENT, "1", 1.0, ts_ms=now)], 0, now)
    earlier = now - 3_600_000
    found = samples.changes([Reading(Kind.MEASUREMENT, "1", 0.0, earlier, Quality.BAD)], 1, earlier)
    assert any(batch.quality.get("1") == "bad" for batch in found)


def test_how_far_a_time_may_lie_ahead_is_said_in_one_place() -> None:
    """A time that `points.future_s` allows is no sign of a clock that was set back: nobody forgets it."""
    assert Settings().points.future_s * 1000 == FUTURE_MS == Moment(0, 0, 0).future_ms
    now, ahead = 1_700_000_000_000, 20_000
    later = Reading(Kind.MEASUREMENT, "1", 1.0, ts_ms=now + ahead)
    for future_ms, is_late in ((FUTURE_MS, False), (60_000, True)):
        samples = Samples(virtual_channel("1", PointSpec(Kind.MEASUREMENT, "1")), 15, future_ms)
        samples.changes([later], 0, now)
        bad = samples.changes([Reading(Kind.MEASUREMENT, "1", 0.0, now - 9_000, Quality.BAD)], 1, now - 10_000)
        assert (not bad) is is_late
        models = Network({}, future_ms=future_ms)
        models.times.append(now + ahead)
        models.set_back(now)
        rules = RuleNetwork([Rule("r", conditions=(Compare("comsrv:1:m:1", ">", 1.0),))], future_ms=future_ms)
        rules._watches.times[0] = now + ahead
        rules.set_back(now)
        assert models.times == rules._watches.times == [now + ahead if is_late else now]


async def test_engines_and_pollers_take_how_far_a_time_may_lie_ahead_from_the_settings(
    redis_7: Server, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, int] = {}

    class Models(Network):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            made["models"] = self._future_ms

    class Rules(RuleNetwork):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            made["rules"] = self._watches.future_ms

    monkeypatch.setattr("tradewind.models.engine.Network", Models)
    monkeypatch.setattr("tradewind.rules.engine.RuleNetwork", Rules)
    link = await open_link(RedisSettings(url=redis_7.url))
    models = ModelRoom(link, key_prefix, future_s=60)
    rules = RuleRoom(link, key_prefix, points={"future_s": 60})
    async with models.engine(), rules.leading():
        await until(lambda: asyncio.sleep(0, "models" in made))
    bench = Bench(models.board, DriverRegistry(), models.clock, 30, None, lambda _: True)
    runner = ChannelRunner(virtual_channel("1"), bench, ChannelStatus("1", "me", 1, 0))
    assert made == {"models": 60_000, "rules": 60_000} and runner._samples._future_ms == 60_000
    await link.close()
