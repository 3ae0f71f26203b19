"""The server's clock is set, forward or back by hours, and samples come with times that are off by hours: what rules
wait for lasts as long as before, nothing fires because of it, and nothing breaks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.rule_room import RuleRoom, rule, until
from tests.rules.rule_strategies import ALARM, START, A, B, rules
from tests.soak import repeats
from tradewind.clock import Clock, now_ms
from tradewind.points.feed import FeedEntry
from tradewind.redis.connection import Link
from tradewind.rules.chains import CHAIN_MS, Chains
from tradewind.rules.effects import LoopNote, effects_of
from tradewind.rules.lead import STEP_MS, ServerClock
from tradewind.rules.network import Fired, RuleNetwork
from tradewind.rules.program import RuleProgram, Sample, Verdict
from tradewind.rules.spec import AlarmOpen, Compare, Rate, Rule, Schedule, StartFlow, Window

HOUR = 3_600_000
CONTROL = "modsrv:m:control:mode"
HOT = Compare(A, ">", 75.0)
IDS = itertools.count(1)


class Plant:
    """A network and a server's clock, which can be set; `at` in seconds of true time after START."""

    def __init__(self, *rules: Rule, stale_ms: int = 30_000) -> None:
        self.network = RuleNetwork(rules, stale_ms)
        self.network.start({}, START - 1)
        self.off_ms = 0

    def now(self, at: float) -> int:
        return START + round(at * 1000) + self.off_ms

    def give(self, at: float, value: float, point: str = "1") -> None:
        ms = self.now(at)
        self.network.apply(FeedEntry(f"{next(IDS)}-0", "comsrv:1:m", ms, f"{point}:{value:.6f}"))

    def set_clock(self, by_ms: int) -> None:
        self.off_ms += by_ms
        self.network.set_clock(by_ms)

    def tick(self, at: float, answered: float | None = None) -> list[tuple[str, str]]:
        """What fired. `answered`: when the channel did, by the clock as it is now."""
        self.network.age(self.now(at), {} if answered is None else {"1": self.now(answered)})
        self.network.due(self.now(at))
        return [(fired.rule.id, fired.verdict.edge) for fired in self.network.take()]

    def restart(self, *rules: Rule) -> None:
        stored = self.network.take_states()
        self.network = RuleNetwork(rules, 30_000)
        self.network.restore(stored)


steps = pytest.mark.parametrize("by_ms", [2 * HOUR, -HOUR, 30 * 24 * HOUR])


@steps
def test_a_for_duration_lasts_as_long_as_before(by_ms: int) -> None:
    plant = Plant(
        Rule("r", conditions=(HOT,), for_ms=60_000), Rule("l", conditions=(Compare(A, ">", 75.0, for_ms=60_000),))
    )
    plant.give(0, 70.0)
    plant.give(1, 80.0)
    assert plant.tick(20) == []
    plant.set_clock(by_ms)
    assert plant.tick(21, answered=21) == []
    assert plant.tick(60.9, answered=60) == []
    assert sorted(plant.tick(61.1, answered=61)) == [("l", "rise"), ("r", "rise")]


@steps
def test_it_does_so_after_a_restart_too(by_ms: int) -> None:
    waiting = Rule("r", conditions=(HOT,), for_ms=60_000)
    plant = Plant(waiting)
    plant.give(0, 70.0)
    plant.give(1, 80.0)
    plant.tick(20)
    plant.set_clock(by_ms)
    plant.restart(waiting)
    plant.network.start({A: Sample(80.0, START + 1000)}, plant.now(21))
    assert plant.tick(22, answered=22) == []
    assert plant.tick(61.1, answered=61) == [("r", "rise")]


@steps
def test_a_step_that_is_found_at_the_start_moves_what_was_stored(by_ms: int) -> None:
    waiting = Rule("r", conditions=(HOT,), for_ms=60_000)
    plant = Plant(waiting)
    plant.give(0, 70.0)
    plant.give(1, 80.0)
    plant.restart(waiting)
    plant.set_clock(by_ms)
    plant.network.start({A: Sample(80.0, START + 1000)}, plant.now(21))
    assert plant.tick(22, answered=22) == []
    assert plant.tick(61.1, answered=61) == [("r", "rise")]


@steps
def test_off_delays_and_cool_downs_last_as_long_as_before(by_ms: int) -> None:
    plant = Plant(
        Rule("off", conditions=(HOT,), off_delay_ms=60_000), Rule("cool", conditions=(HOT,), cooldown_ms=60_000)
    )
    for at, value in ((0, 70.0), (1, 80.0), (2, 70.0)):
        plant.give(at, value)
    assert plant.tick(2) == [("cool", "rise"), ("off", "rise"), ("cool", "fall")]
    plant.set_clock(by_ms)
    assert plant.tick(30, answered=30) == []
    assert plant.tick(61, answered=61) == []
    assert plant.tick(62.1, answered=62) == [("off", "fall")]
    program, state = plant.network.programs["cool"], plant.network.states["cool"]
    assert state.risen_ms == START + 1000 + by_ms and program.rule.cooldown_ms == 60_000


@steps
@pytest.mark.parametrize("on_bad", ["true", "false", "hold"])
def test_points_are_not_older_by_a_step(by_ms: int, on_bad: str) -> None:
    """Also before their channel has answered again: no storm of alarms for missing data."""
    plant = Plant(Rule("r", conditions=(HOT,), on_bad=on_bad))
    plant.give(0, 70.0)
    plant.tick(10)
    plant.set_clock(by_ms)
    assert plant.tick(11) == [] and plant.tick(29.9) == []
    assert plant.network.states["r"].known == [70.0]
    assert plant.tick(31) == ([("r", "rise")] if on_bad == "true" else []), "but they do grow old"
    assert plant.network.states["r"].known == [None]


@steps
def test_the_last_answer_of_a_channel_is_not_older_by_a_step(by_ms: int) -> None:
    plant = Plant(Rule("r", conditions=(HOT,), on_bad="true"))
    plant.give(0, 70.0)
    plant.tick(1)
    assert plant.tick(40, answered=39) == []
    plant.set_clock(by_ms)
    assert plant.tick(68) == [] and plant.tick(70) == [("r", "rise")]


@steps
def test_what_was_stale_stays_so(by_ms: int) -> None:
    plant = Plant(Rule("r", conditions=(HOT,), for_ms=60_000))
    plant.give(0, 70.0)
    plant.give(1, 80.0)
    assert plant.tick(40) == []
    plant.set_clock(by_ms)
    assert plant.tick(41) == [] and plant.tick(500) == []
    assert plant.network.states["r"].known == [None]
    plant.tick(510, answered=510)
    assert plant.network.states["r"].known == [80.0], "its channel answers"


@steps
def test_windows_keep_their_samples(by_ms: int) -> None:
    def window(function: str, operator: str, value: float) -> Rule:
        return Rule(function, conditions=(Window(A, function, 60_000, operator, value),))

    plant = Plant(window("count", "<", 3.0), window("avg", ">", 80.0), window("max", ">", 85.0))
    for at in range(0, 61, 10):
        plant.give(at, 70.0)
        plant.tick(at)
    plant.set_clock(by_ms)
    assert plant.tick(61) == [], "nothing has stopped arriving"
    plant.network.take()
    if by_ms > 0:  # else the board takes samples only when its time has come again
        for at in range(70, 131, 10):
            plant.give(at, 90.0 if at == 70 else 72.0)
            assert plant.tick(at) == ([("max", "rise")] if at == 70 else [("max", "fall")] if at == 130 else [])
    states = plant.network.states
    assert not any(states[name].is_active for name in ("count", "avg", "max"))


def test_a_full_window_is_moved_too() -> None:
    leaf = Window(A, "min", 1_000_000, "<", 5.0)
    program = RuleProgram(Rule("r", conditions=(leaf,)))
    state = program.fresh()
    for n in range(10_050):  # more than are kept one by one
        program.run(state, {A: Sample(4.0 if n == 0 else 9.0, START + n * 50)}, START + n * 50)
    assert state.is_active
    program.move(state, HOUR)
    assert not program.run(state, {}, START + HOUR + 999_000) and state.is_active
    [verdict] = program.run(state, {}, START + HOUR + 1_002_000)
    assert verdict.edge == "fall"


def test_schedules_go_by_the_clock_as_it_is() -> None:
    plant = Plant(Rule("r", conditions=(Schedule("0 * * * *", 600_000),)))  # START is a full hour
    assert plant.tick(1) == [("r", "rise")]
    assert plant.tick(601) == [("r", "fall")]
    plant.set_clock(10 * HOUR)
    assert plant.tick(602) == [], "the hours in between were no hours"
    plant.set_clock(50 * 60_000)
    assert plant.tick(603) == [("r", "rise")], "and it is on at once when the time is that"
    plant.set_clock(-HOUR)
    assert plant.tick(604) == [("r", "rise")] or plant.network.states["r"].is_active


def test_a_rate_over_a_step_is_small_and_not_infinite() -> None:
    plant = Plant(Rule("r", conditions=(Rate(A, ">", 1.0),)), Rule("o", conditions=(Rate(A, ">", 1.0, over_ms=5000),)))
    for at, by_ms in ((0, 0), (1, 2 * HOUR), (2, 0), (3, 0), (4, 30 * HOUR), (5, 0)):
        plant.set_clock(by_ms)
        plant.give(at, 70.0 + at / 2)
        assert plant.tick(at) == []
    plant.give(6, 90.0)
    assert sorted(plant.tick(6)) == [("o", "rise"), ("r", "rise")]


def test_alarms_and_control_values_are_heard_after_the_clock_was_set_back() -> None:
    sources = (AlarmOpen("other"), Compare(CONTROL, "==", 1.0))
    named = [Rule(name, conditions=(leaf,)) for name, leaf in zip(("alarm", "control"), sources, strict=True)]
    plant = Plant(*named)

    def show(at: float, value: float) -> list[tuple[str, str]]:
        plant.network.show({address: Sample(value, plant.now(at)) for address in (ALARM, CONTROL)}, plant.now(at))
        return plant.tick(at)

    assert show(0, 0.0) == []
    plant.set_clock(-HOUR)
    assert sorted(show(1, 1.0)) == [("alarm", "rise"), ("control", "rise")]
    assert sorted(show(2, 0.0)) == [("alarm", "fall"), ("control", "fall")]
    plant.restart(*named)
    plant.network.start({address: Sample(1.0, plant.now(3)) for address in (ALARM, CONTROL)}, plant.now(3))
    assert sorted(plant.tick(3)) == [("alarm", "rise"), ("control", "rise")]


def test_a_source_that_was_silent_does_not_fire_early_after_the_clock_was_set_back() -> None:
    """Its samples are taken, while those of others wait for their time to come again."""
    plant = Plant(Rule("r", conditions=(HOT, Compare(B, ">", 0.0)), for_ms=60_000), stale_ms=100 * HOUR)
    plant.give(0, 0.0, "2")
    plant.give(7200, 70.0)
    plant.give(7201, 80.0)
    plant.tick(7201)
    plant.set_clock(-HOUR)
    plant.give(7210, 1.0, "2")
    assert plant.tick(7210) == [] and plant.tick(7269) == []
    assert plant.tick(7270.1) == [("r", "rise")]


# --- whatever comes

wild = st.sampled_from((0, 1, 20_000, 60_000, HOUR, 5 * HOUR, 40 * 24 * HOUR, -1, -20_000, -HOUR, -5 * HOUR))
happenings = st.lists(
    st.tuples(
        st.sampled_from(("entry", "entry", "entry", "show", "tick", "set")),
        wild,
        st.sampled_from(("1", "2")),
        st.integers(-4, 4).map(lambda n: n / 2) | st.none(),
    ),
    max_size=30,
)


@settings(max_examples=repeats(100), deadline=None)
@given(st.lists(rules(), min_size=1, max_size=3), happenings)
def test_no_time_breaks_a_rule_or_makes_it_fire_without_end(drawn: list[Rule], happened: Any) -> None:
    """`wild`: how far a sample is off the clock, or by how much the clock is set."""
    named = [
        Rule(**{name: getattr(one, name) for name in one.__struct_fields__} | {"id": f"r{i}"})
        for i, one in enumerate(drawn)
    ]
    network = RuleNetwork(named, 30_000)
    network.start({}, START)
    now, stored = START, network.take_states()
    for word, off, point, value in happened:
        network.take()
        if word == "set":
            now = max(1, now + off)
            network.set_clock(off)
            assert network.take() == [], "a step by itself fires nothing"
        elif word == "tick":
            now += 1000
            network.age(now, {"1": now})
            network.due(now)
        elif word == "show":
            network.show({ALARM: Sample(float((value or 0) > 0), max(0, now + off))}, now)
        else:
            quality = f"{point}:bad" if value is None else ""
            network.apply(
                FeedEntry(f"{next(IDS)}-0", "comsrv:1:m", max(0, now + off), f"{point}:{value or 0:.6f}", quality)
            )
        stored |= network.take_states()
        again = RuleNetwork(named, 30_000)
        assert len(again.restore(stored)) <= len(named)
        if word == "entry" and not any(isinstance(leaf, Schedule) for one in named for leaf in one.leaves()):
            # Each rule: its timers up to the sample, then the sample.
            assert len(network.take()) <= 4 * len(named) * (1 + sum(1 for one in named for _ in one.leaves()))


# --- guards that count with the clock


def test_the_loop_guard_does_not_count_what_lies_ahead() -> None:
    fired = Fired(Rule("r", actions=(StartFlow("f"),)), Verdict("rise", True, "sample", START))
    note = LoopNote(tuple(START + HOUR + n for n in range(5)))
    made = effects_of(fired, note, START, START, loop_depth=5, loop_window_ms=60_000)
    assert made.note == LoopNote((START,)), "the clock was set back since"


def test_a_chain_does_not_last_because_the_clock_was_set_back() -> None:
    chains = Chains()
    chains.wrote([A], 3, START)
    assert chains.length(A, START + CHAIN_MS) == 3
    assert chains.length(A, START - HOUR) == 0


# --- finding out


class SetClock(ServerClock):
    """The clock of a server that somebody sets."""

    off_ms = 0.0

    async def _ask(self) -> float:
        return await super()._ask() + SetClock.off_ms


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> type[SetClock]:
    SetClock.off_ms = 0.0
    monkeypatch.setattr("tradewind.rules.engine.ServerClock", SetClock)
    return SetClock


async def test_a_step_of_the_server_s_clock_is_found_and_small_ones_are_not(link: Link, key_prefix: str) -> None:
    room = RuleRoom(link, key_prefix, Clock())
    clock = SetClock(room.plane)
    SetClock.off_ms = 0.0
    await clock.look()
    assert clock.take_step() == 0
    for by_ms in (2 * HOUR, -3 * HOUR):
        SetClock.off_ms += by_ms
        await clock.look()
        assert abs(clock.take_step() - by_ms) < STEP_MS and clock.take_step() == 0
        await clock.look()
        assert clock.take_step() == 0
    SetClock.off_ms += STEP_MS / 2
    await clock.look()
    assert clock.take_step() == 0
    assert clock.is_passed(clock.now_ms() + 2 * STEP_MS) and not clock.is_passed(clock.now_ms())
    await room.plane.close()


@pytest.mark.parametrize("by_ms", [2 * HOUR, -HOUR])
async def test_an_engine_goes_on_when_the_clock_is_set(
    link: Link, key_prefix: str, set_clock: type[SetClock], by_ms: int
) -> None:
    """No alarm for data that is not missing, none for a duration that is not over; and it goes on to judge."""
    if link.cluster:
        pytest.skip("the clock is the same everywhere")
    room = RuleRoom(link, key_prefix, Clock(), points={"stale_s": 60, "future_s": 10 * HOUR})
    await room.store.apply(
        [rule("long", for_ms=600_000), rule("bad", limit=99, on_bad="true"), rule("plain", point="2")]
    )
    await room.write(now_ms(), {"1": 70.0, "2": 70.0})
    async with room.leading() as engine:
        await room.write(now_ms() + 1, {"1": 80.0})
        await until(lambda: _has_read(engine, 1))
        rounds = engine.stats.rounds
        set_clock.off_ms += by_ms

        async def has_followed() -> bool:
            states = await room.states()
            # When the rise that is waited for began.
            return "long" in states and abs(states["long"][3][0] - now_ms() - by_ms) < 60_000

        await until(has_followed)
        await until(lambda: _is_past(engine, rounds + 3))
        assert await room.alarms() == []
        await room.write(now_ms() + max(by_ms, 0) + 5, {"2": 80.0})
        [alarm] = await room.alarms_become("New")
        assert alarm["rule_id"] == "plain"
    await room.plane.close()


async def _has_read(engine: Any, entries: int) -> bool:
    return int(engine.stats.entries) >= entries


async def _is_past(engine: Any, rounds: int) -> bool:
    return int(engine.stats.rounds) >= rounds
