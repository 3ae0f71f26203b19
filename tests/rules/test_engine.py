"""The engine on real servers: the seed's alarm and history to the letter, edges, timers, restarts, hot reload."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from tests.rules.rule_room import SEED_MS, SOURCE, RuleRoom, leads, rule, seed_rule, until
from tradewind.clock import FakeClock
from tradewind.points.board import Batch
from tradewind.rules.round import RoundStore

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


async def write_seed(room: RuleRoom, value: float, ts_ms: int) -> None:
    await room.board.write([Batch.of_channel("1001", "m", {"10001": value}, ts_ms)])


async def test_the_seed_example_raises_its_alarm_and_tells_it_in_the_seeds_words(room: RuleRoom) -> None:
    await room.store.apply([seed_rule()], groups=[{"id": "group_temperature"}])
    async with room.leading():
        await write_seed(room, 20.0, SEED_MS)
        await write_seed(room, 78.5, SEED_MS + 1)
        alarm = (await room.alarms_become("New"))[0]
        told = (await room.told("rule_temperature_monitor", 1))[0]
    assert re.fullmatch(f"alarm_{UUID}", alarm["id"])
    wanted = {
        "title": "温度告警",
        "level": "Critical",
        "priority": "5",
        "source_point": SOURCE,
        "threshold_value": "75.0",
        "actual_value": "78.5",
        "created_at": "2024-01-01T10:00:00Z",
        "rule_id": "rule_temperature_monitor",
        "count": "1",
    }
    assert {name: alarm[name] for name in wanted} == wanted
    assert re.fullmatch(f"exec_{UUID}", told.pop("id"))
    assert told.pop("duration_ms") >= 0
    assert told == {
        "rule_id": "rule_temperature_monitor",
        "timestamp": SEED_MS,
        "triggered": True,
        "conditions_result": {"temperature": {"matched": True, "actual_value": 78.5}},
        "actions_executed": ["create_alarm"],
        "success": True,
        "error_message": None,
        "context": {"source_data": SOURCE, "trigger_value": 78.5},
    }
    text = (await room.plane.redis.lindex(room.keys.rule_history("rule_temperature_monitor"), 0)).decode()
    order = re.findall(r'"(\w+)":', text)
    assert order[:4] == ["id", "rule_id", "timestamp", "triggered"] and order[-3:-1] == ["context", "source_data"]


@pytest.mark.parametrize(
    ("operator", "value", "good", "bad"),
    [
        (">", "75.0", 75.0, 75.1),
        ("<", "75.0", 75.0, 74.9),
        (">=", "75.0", 74.9, 75.0),
        ("<=", "75.0", 75.1, 75.0),
        ("==", "75.0", 75.1, 75.0),
        ("!=", "75.0", 75.0, 75.1),
        ("contains", "7.5", 12.0, 17.5),
        ("regex", "^7[5-9]", 12.0, 78.5),
    ],
)
async def test_every_operator_of_the_seed_raises_and_clears(
    room: RuleRoom, operator: str, value: str, good: float, bad: float
) -> None:
    if room.link.cluster:
        pytest.skip("the evaluator is the same everywhere")
    condition = {"field": "t", "operator": operator, "value": value, "source": SOURCE}
    await room.store.put(rule(conditions=[condition]))
    async with room.leading():
        await write_seed(room, good, SEED_MS)
        await write_seed(room, bad, SEED_MS + 1)
        await room.alarms_become("New")
        await write_seed(room, good, SEED_MS + 2)
        await room.alarms_become("Resolved")
        told = await room.told("hot", 2)
    assert [one["triggered"] for one in told] == [True, False]


async def test_only_edges_act(room: RuleRoom) -> None:
    await room.store.put(rule())
    async with room.leading():
        for value in (70, 80, 81, 82, 80, 70, 71, 90):
            await room.show(value, 0.001)
        alarms = await room.alarms_become("New", "Resolved")
        await room.told("hot", 3)
    assert [alarm["count"] for alarm in alarms] == ["1", "1"]


async def test_start_up_is_no_edge_but_an_alarm_is_raised(room: RuleRoom) -> None:
    actions = [*rule()["actions"], {"type": "log_event", "parameters": {"level": "info", "message": "{value}"}}]
    await room.store.apply([rule(actions=actions), rule("runs", actions=actions, on_startup="run")])
    await room.show(80)
    async with room.leading():
        await room.alarms_become("New", "New")
        skipped, ran = (await room.told("hot", 1))[0], (await room.told("runs", 1))[0]
        assert skipped["cause"] == "startup" and skipped["actions_executed"] == ["create_alarm"]
        assert ran["actions_executed"] == ["create_alarm", "log_event"]
    async with room.leading():
        await room.show(81, 0.01)
        await until(room.is_caught_up) if not room.link.cluster else None
    assert [alarm["count"] for alarm in await room.alarms()] == ["1", "1"], "a restart is no edge"
    await room.told("hot", 1)


async def test_what_came_while_no_engine_ran_is_judged_afterwards(room: RuleRoom) -> None:
    await room.store.put(rule())
    async with room.leading():
        await room.show(70)
        await until(room.is_caught_up) if not room.link.cluster else None
    await room.show(80, 0.001)
    await room.show(70, 0.001)
    async with room.leading():
        await room.alarms_become("Resolved")
        assert [one["triggered"] for one in await room.told("hot", 2)] == [True, False]


async def test_a_value_that_stops_arriving_neither_fires_nor_resolves(room: RuleRoom) -> None:
    assert isinstance(room.clock, FakeClock)
    below = {"operator": "<", "value": 10, "source": "comsrv:1001:m:2"}
    await room.store.apply([rule(), rule("low", conditions=[below])])
    async with room.leading() as engine:
        await room.show(80)
        await room.show(50, point="2")
        await room.alarms_become("New")
        for _ in range(3):
            room.clock.advance(60)
            seen = engine.stats.rounds
            await until(lambda seen=seen: _more(engine, seen + 2))  # type: ignore[misc]
        assert await room.statuses() == ["New"]
        assert len(await room.told("hot", 1)) == 1
        await room.show(80)
        await room.show(70, 0.01)
        await room.alarms_become("Resolved")


async def test_bad_quality_holds_an_alarm(room: RuleRoom) -> None:
    await room.store.put(rule())
    async with room.leading():
        await room.show(80)
        await room.alarms_become("New")
        await room.write(room.clock.now_ms() + 1, {"1": 70.0}, _1="bad")
        await room.show(80, 0.002)
        await room.show(70, 0.001)
        await room.alarms_become("Resolved")
        assert len(await room.told("hot", 2)) == 2


async def test_sixty_seconds_with_a_restart_at_thirty_fire_at_sixty(room: RuleRoom) -> None:
    assert isinstance(room.clock, FakeClock)
    await room.store.put(rule(for_ms=60_000))
    async with room.leading():
        await room.show(70)
        await room.show(80, 0.001)
        await until(lambda: _has_state(room, "hot"))
        for _ in range(3):
            await room.show(80, 10)  # a value that stays the same does not begin anew
    began = SEED_MS + 1
    async with room.leading() as engine:
        await room.show(80, 20)
        room.clock.ms = began + 59_999
        await room.write(room.clock.ms, {"1": 80.5})
        wanted = engine.stats.rounds + 2
        await until(lambda: _more(engine, wanted))
        assert await room.alarms() == []
        room.clock.ms = began + 60_000
        alarm = (await room.alarms_become("New"))[0]
        assert alarm["created_at"] == "2024-01-01T10:01:00.001Z"
        assert (await room.told("hot", 1))[0]["cause"] == "timer"


async def test_a_deadline_that_passed_while_no_engine_ran_fires_at_once(room: RuleRoom) -> None:
    assert isinstance(room.clock, FakeClock)
    await room.store.put(rule(for_ms=20_000))
    async with room.leading():
        await room.show(70)
        await room.show(80, 0.001)
        await until(lambda: _has_state(room, "hot"))
        await until(room.is_caught_up) if not room.link.cluster else None
    room.clock.advance(25)
    await room.write(room.clock.ms, {"1": 80.0})
    async with room.leading():
        await room.alarms_become("New")


async def test_a_timer_does_not_overtake_a_value_that_still_waits_in_the_feed(room: RuleRoom) -> None:
    assert isinstance(room.clock, FakeClock)
    await room.store.put(rule(for_ms=1000))
    async with room.leading():
        await room.show(70)
        await until(room.is_caught_up) if not room.link.cluster else None
    await room.show(80, 0.001)
    await room.show(70, 0.5)
    room.clock.advance(5)
    async with room.leading(entries=1) as engine:
        await room.show(71, point="2")
        await until(lambda: _read(engine, 3))
        await room.show(80)
        await until(lambda: _has_timer(room))
    assert await room.alarms() == []


async def test_an_edit_that_leaves_the_conditions_alone_is_no_edge(room: RuleRoom) -> None:
    await room.store.put(rule())
    async with room.leading() as engine:
        await room.show(70)
        await room.show(80, 0.001)
        await room.alarms_become("New")
        await room.store.put(rule(name="Heat"))
        await until(lambda: _is_of(engine, "2"))
        await room.show(81, 0.001)
        await room.show(70, 0.001)
        alarm = (await room.alarms_become("Resolved"))[0]
        assert alarm["count"] == "1" and len(await room.told("hot", 2)) == 2


async def test_a_changed_rule_starts_afresh_and_keeps_only_alarms_that_are_still_true(room: RuleRoom) -> None:
    await room.store.apply([rule("stays"), rule("goes"), rule("moves"), rule("loses")])
    async with room.leading():
        await room.show(80)
        await room.show(50, point="2")
        await room.alarms_become("New", "New", "New", "New")
        await room.store.apply(
            [rule("stays", limit=60), rule("goes", limit=90), rule("moves", point="2"), rule("loses", actions=[])]
        )
        alarms = await room.alarms_become("New", "Resolved", "Resolved", "Resolved")
        assert next(alarm["rule_id"] for alarm in alarms if alarm["status"] == "New") == "stays"
        edited = next(alarm for alarm in alarms if alarm["rule_id"] == "moves")
        assert '"rule_state":"edited"' in edited["data"]
        await room.show(95, 0.01)
        await room.alarms_become("New", "New", "Resolved", "Resolved", "Resolved")


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_rule_that_is_switched_off_or_removed_loses_timers_and_marks_its_alarms(
    room: RuleRoom, is_removed: bool
) -> None:
    assert isinstance(room.clock, FakeClock)
    await room.store.apply([rule(), rule("later", for_ms=5000), rule("other")])
    async with room.leading():
        await room.show(70)
        await room.show(80, 0.001)
        await room.alarms_become("New", "New")
        for name in ("hot", "later"):
            await (room.store.remove(name) if is_removed else room.store.disable(name))
        alarms = await room.alarms_become("New", "Resolved")
        marked = next(alarm for alarm in alarms if alarm["rule_id"] == "hot")
        word = "deleted" if is_removed else "disabled"
        assert f'"rule_state":"{word}"' in marked["data"] and marked["note"] == f"rule {word}"
        await until(lambda: _only_states(room, {"other"}))
        await room.show(80, 10)
        await room.show(81, 1)
        await until(lambda: _only_states(room, {"other"}))
        assert sorted(await room.statuses()) == ["New", "Resolved"]


async def test_only_one_engine_judges_and_another_takes_over(room: RuleRoom) -> None:
    await room.store.put(rule())
    async with room.engine("second") as second:
        async with room.engine("first") as first:
            await until(lambda: _one_leads(first, second))
            await room.show(70)
            await room.show(80, 0.001)
            await room.alarms_become("New")
            assert sorted((first.stats.fired, second.stats.fired)) == [0, 1]
        await until(lambda: leads(second))
        await room.show(70, 0.001)
        await room.alarms_become("Resolved")
        assert len(await room.told("hot", 2)) == 2


async def test_a_deposed_engine_stores_nothing(room: RuleRoom) -> None:
    await room.store.put(rule())
    async with room.leading() as engine:
        await room.show(70)
        # Somebody else has won meanwhile, and this one does not know yet.
        await room.plane.redis.set(room.keys.rules_leader(), "other", px=1000)
        await room.show(80, 0.001)
        await until(lambda: _not(leads(engine)))
        assert await room.alarms() == []
        await room.alarms_become("New")
        assert (await room.alarms())[0]["count"] == "1"


async def test_missed_entries_are_made_good_from_the_board(room: RuleRoom) -> None:
    if room.link.cluster:
        pytest.skip("the feeds of a cluster are trimmed in the same way")
    await room.store.put(rule())
    async with room.leading():
        await room.show(70)
        await until(room.is_caught_up)
    await room.show(80, 0.001)
    await room.plane.redis.xtrim(room.keys.feed(), maxlen=0)
    await room.plane.redis.hincrby(room.keys.feed_missed(), "rulesrv", 1)
    async with room.leading() as engine:
        await room.alarms_become("New")
        assert engine.stats.missed == 1


async def test_a_lost_cursor_makes_no_false_edge(room: RuleRoom) -> None:
    await room.store.apply([rule(), rule("cold", limit=90)])
    async with room.leading():
        await room.show(80)
        await room.alarms_become("New")
        await until(room.is_caught_up) if not room.link.cluster else None
    cursors = await room.plane.redis.hkeys(room.keys.feed_cursors())
    await room.plane.redis.hdel(room.keys.feed_cursors(), *cursors)
    await room.show(95, 0.001)
    async with room.leading():
        await room.alarms_become("New", "New")
        assert [alarm["count"] for alarm in await room.alarms()] == ["1", "1"]


async def test_conditions_on_other_alarms_follow_them(room: RuleRoom) -> None:
    both = [{"type": "alarm", "rule_id": "hot"}, {"type": "alarm", "rule_id": "wet"}]
    await room.store.apply([rule(), rule("wet", point="2"), rule("both", conditions=both)])
    async with room.leading():
        await room.show(80)
        await room.show(70, point="2")
        await room.alarms_become("New")
        await room.show(80, 0.001, point="2")
        await room.alarms_become("New", "New", "New")
        await room.show(70, 0.001)
        await room.alarms_become("New", "Resolved", "Resolved")


async def test_a_storm_is_put_aside_and_carried_out_in_pieces(room: RuleRoom) -> None:
    await room.store.apply([rule(f"r{i}") for i in range(120)])
    async with room.leading(steps_a_call=50) as engine:
        await room.show(70)
        await room.show(80, 0.001)
        alarms = await room.alarms_become(*["New"] * 120)
        assert {alarm["count"] for alarm in alarms} == {"1"}
        assert engine.stats.fired == 120
        await until(lambda: _is_empty(room))
        for i in range(120):
            await room.told(f"r{i}", 1)


async def test_what_another_one_has_put_aside_is_carried_out_first(room: RuleRoom) -> None:
    """A leader that dies between storing a big round and carrying it out."""
    await room.store.apply([rule(), rule("off")])
    async with room.leading(steps_a_call=1) as engine:
        await room.show(70)
        await until(lambda: _only_states(room, {"hot", "off"}))
    await room.plane.redis.set(room.keys.rules_leader(), "dead", px=300)
    epoch = (await room.plane.redis.get(room.keys.rules_epoch())).decode()
    dead = RoundStore(room.plane, "dead", int(epoch), await room.store.version(), 1)
    alarm = {"source": "s", "level": "High", "title": "t"}
    steps = [
        msgspec.msgpack.encode(("raise", name, {**alarm, "id": f"alarm_{name}", "rule_id": name}))
        for name in ("hot", "off")
    ]
    dead.drain = dead.finished  # type: ignore[method-assign]
    dead.begin(steps, {}, ())
    await dead.finished()
    assert await room.alarms() == []
    await room.store.disable("off")
    async with room.leading():
        alarms = await room.alarms()
    assert [(row["rule_id"], row["source_point"]) for row in alarms] == [("hot", "s")]
    assert engine.stats.rules == 2


async def test_statistics_tell_what_is_done(room: RuleRoom) -> None:
    await room.store.apply([rule(), rule("off", enabled=False)])
    async with room.leading() as engine:
        await room.show(70)
        await room.show(80, 0.001)
        await room.told("hot", 1)
        assert (engine.stats.rules, engine.stats.fired, engine.stats.entries) == (1, 1, 2)
        assert engine.stats.checks >= 2 and engine.stats.errors == {}
    figures = (await room.history.figures(["hot", "off"]))["hot"]
    assert (figures.executions, figures.triggered, figures.failed, figures.success_rate) == (1, 1, 0, 1.0)
    assert (await room.history.totals())["executions"] == 1


async def test_a_rule_without_a_value_is_named_with_why_and_does_nothing(room: RuleRoom) -> None:
    ratio = {"type": "expression", "expression": "1 / x > 0", "inputs": {"x": "comsrv:1001:m:1"}}
    await room.store.put(rule(conditions=[ratio]))
    async with room.leading() as engine:
        await room.show(-1)
        await room.show(0, 0.001)
        await until(lambda: _has_error(engine, "hot"))
        assert await room.alarms() == []
        await room.show(1, 0.001)
        await room.alarms_become("New")
        await until(lambda: _has_error(engine, "hot", is_wanted=False))


async def _has_error(engine: Any, name: str, *, is_wanted: bool = True) -> bool:
    return (name in engine.stats.errors) is is_wanted


async def _more(engine: Any, rounds: int) -> bool:
    return bool(engine.stats.rounds >= rounds)


async def _read(engine: Any, entries: int) -> bool:
    return bool(engine.stats.entries >= entries)


async def _is_of(engine: Any, version: str) -> bool:
    return bool(engine.version[-3:].lstrip("0") == version and engine.is_leading)


async def _has_timer(room: RuleRoom) -> bool:
    """The timer of the only rule runs."""
    return bool((await room.states())["hot"][3][0] > 0)


async def _has_state(room: RuleRoom, name: str) -> bool:
    return name in await room.states()


async def _only_states(room: RuleRoom, names: set[str]) -> bool:
    return set(await room.states()) == names


async def _one_leads(*engines: Any) -> bool:
    return any(engine.is_leading and engine.stats.rounds for engine in engines)


async def _not(condition: Any) -> bool:
    return not await condition


async def _is_empty(room: RuleRoom) -> bool:
    return not await room.plane.redis.exists(room.keys.rule_pending())
