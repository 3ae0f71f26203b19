"""A dry run: what a rule says of the plant now and what it would do, and that nothing is done."""

from __future__ import annotations

from typing import Any

from tests.rules.rule_room import RuleRoom, rule
from tradewind.clock import FakeClock
from tradewind.rules.dry_run import DryRun, dry_run


async def try_out(room: RuleRoom, document: dict[str, Any]) -> DryRun:
    return await dry_run(room.plane, await room.store.validate(document))


async def test_it_tells_levels_values_and_what_would_be_done(room: RuleRoom) -> None:
    await room.show(80)
    await room.show(5, point="2")
    document = rule(
        name="Heat",
        logic="any",
        for_ms=60_000,
        conditions=[
            {"field": "t", "operator": ">", "value": 75, "source": "comsrv:1001:m:1"},
            {"field": "p", "operator": ">", "value": 75, "source": "comsrv:1001:m:2"},
            {"field": "q", "operator": ">", "value": 75, "source": "comsrv:1001:m:3"},
        ],
        actions=[
            {"type": "create_alarm", "parameters": {"level": "major", "title": "{rule.name}: {value}"}},
            {"type": "send_control", "parameters": {"channel_id": 1001, "point_id": 4, "value": "=t / 2"}},
            {"type": "set_value", "parameters": {"model": "m", "field": "x", "value": "=q + 1"}},
            {"type": "send_notification", "parameters": {"recipients": ["ops"], "message": "{p}"}},
            {"type": "log_event", "on": "fall", "parameters": {"message": "over"}},
        ],
    )
    found = await try_out(room, document)
    assert found.level is True
    assert {name: (c.matched, c.actual_value) for name, c in found.conditions.items()} == {
        "t": (True, 80.0),
        "p": (False, 5.0),
        "q": (None, None),
    }
    assert found.sources["comsrv:1001:m:1"].quality == "good" and found.sources["comsrv:1001:m:3"].quality == "missing"
    alarm, control, value, notice = found.actions
    assert alarm.parameters["title"] == "Heat: 80" and alarm.parameters["level"] == "High"
    assert control.parameters["address"] == "comsrv:1001:a:4" and control.parameters["value"] == 40.0
    assert value.error and notice.parameters == {"recipients": ["ops"], "message": "5"}
    assert await room.alarms() == [] and await room.states() == {} and await room.store.list() == []


async def test_it_tells_of_flows_and_task_types_that_do_not_exist(room: RuleRoom) -> None:
    await room.show(80)
    await room.plane.redis.hset(room.keys.flow("there"), "id", "there")
    await room.plane.redis.hset(room.keys.types(), "report", "{}")
    actions = [{"type": "start_flow", "parameters": {"flow_id": name}} for name in ("there", "nowhere")]
    actions += [{"type": "submit_task", "parameters": {"type": name}} for name in ("report", "no_such_type")]
    errors = [would.error for would in (await try_out(room, rule(actions=actions))).actions]
    assert [bool(error) for error in errors] == [False, True, False, True]
    assert "'nowhere'" in errors[1] and "'no_such_type'" in errors[3]


async def test_a_false_rule_would_do_nothing(room: RuleRoom) -> None:
    await room.show(70)
    found = await try_out(room, rule())
    assert found.level is False and found.actions == []


async def test_a_stale_value_is_unknown(room: RuleRoom) -> None:
    assert isinstance(room.clock, FakeClock)
    await room.show(80)
    room.clock.advance(3600)
    found = await try_out(room, rule(enabled=False))
    assert found.level is None and found.sources["comsrv:1001:m:1"].quality == "stale"
