"""Rules' documents: what they mean, and that every problem is told at once with its path."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.rules.condition_reading import MAX_CONDITIONS, MAX_DEPTH
from tradewind.rules.document import read_rule
from tradewind.rules.spec import (
    AlarmOpen,
    Change,
    Compare,
    CreateAlarm,
    Formula,
    Group,
    LogEvent,
    Range,
    Rate,
    Rule,
    Schedule,
    SendControl,
    SendNotification,
    SetValue,
    StartFlow,
    SubmitTask,
    Window,
)

A = "comsrv:1001:m:10001"
MODE = "modsrv:oven:control:mode"
SEED: dict[str, Any] = {
    "id": "rule_temperature_monitor",
    "name": "温度监控规则",
    "description": "监控设备温度超过阈值",
    "group_id": "group_temperature",
    "enabled": True,
    "priority": 5,
    "conditions": [{"field": "temperature", "operator": ">", "value": "75.0", "source": A}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "Critical", "title": "温度告警"}}],
    "created_at": "2024-01-01T10:00:00Z",
    "updated_at": "2024-01-01T10:00:00Z",
}


def read(**fields: Any) -> Rule:
    rule, problems = read_rule({"id": "r", "conditions": SEED["conditions"], **fields})
    assert problems == [] and rule is not None
    return rule


def problems(**fields: Any) -> set[tuple[str, str]]:
    rule, found = read_rule({"id": "r", "conditions": SEED["conditions"], **fields})
    assert rule is None and all(problem.hint for problem in found)
    return {(problem.code, problem.path) for problem in found}


def test_the_seed_example_is_read() -> None:
    rule, found = read_rule(SEED)
    assert found == [] and rule is not None
    assert rule.conditions == (Compare(A, ">", 75.0, "temperature"),)
    assert rule.actions == (CreateAlarm("Critical", "温度告警"),)
    assert (rule.name, rule.group_id, rule.priority, rule.logic) == ("温度监控规则", "group_temperature", 5, "all")
    assert (rule.source, rule.addresses, rule.is_acting) == (A, (A,), False)


@pytest.mark.parametrize(
    ("document", "leaf"),
    [
        ({"operator": "==", "value": "open", "source": MODE}, Compare(MODE, "==", "open")),
        ({"operator": "==", "value": "on", "source": MODE}, Compare(MODE, "==", "on")),
        ({"operator": "==", "value": "on", "source": A}, Compare(A, "==", 1.0)),
        ({"operator": "!=", "value": "True", "source": A}, Compare(A, "!=", 1.0)),
        (
            {"operator": "==", "value": " off ", "source": "modsrv:m:measurement:x"},
            Compare("modsrv:m:measurement:x", "==", 0.0),
        ),
        ({"type": "change", "source": A, "from": "false", "to": "ON"}, Change(A, 0.0, 1.0)),
        ({"type": "change", "source": MODE, "from": "eco", "to": "on"}, Change(MODE, "eco", "on")),
        ({"operator": "!=", "value": True, "source": A}, Compare(A, "!=", 1.0)),
        ({"operator": "contains", "value": 75.0, "source": A}, Compare(A, "contains", "75")),
        ({"operator": "contains", "value": "75.0", "source": A}, Compare(A, "contains", "75.0")),
        ({"operator": "regex", "value": "^7[0-9]$", "source": A}, Compare(A, "regex", "^7[0-9]$")),
        ({"type": "range", "source": A, "min": "1", "max": 2}, Range(A, 1.0, 2.0)),
        ({"type": "range", "source": A, "max": 2, "inside": False}, Range(A, None, 2.0, False)),
        (
            {"type": "rate", "source": A, "operator": ">", "value": 2, "over_ms": 60000},
            Rate(A, ">", 2.0, 60000),
        ),
        (
            {"type": "window", "source": A, "function": "avg", "window_ms": 60000, "operator": ">", "value": 2},
            Window(A, "avg", 60000, ">", 2.0),
        ),
        ({"type": "change", "source": A, "from": 0, "to": "1", "for_ms": 5}, Change(A, 0.0, 1.0, for_ms=5)),
        ({"type": "change", "source": A}, Change(A)),
        (
            {"type": "schedule", "cron": "0  8 * * 1-5", "duration_ms": 3600000, "timezone": "Europe/Berlin"},
            Schedule("0 8 * * 1-5", 3600000, "Europe/Berlin"),
        ),
        (
            {"type": "expression", "expression": "a > b * 2", "inputs": {"a": A, "b": "modsrv:m:measurement:x"}},
            Formula("a > b * 2", {"a": A, "b": "modsrv:m:measurement:x"}),
        ),
        ({"type": "alarm", "rule_id": "x"}, AlarmOpen("x")),
        (
            {"type": "alarm", "rule_id": "x", "source": A, "status": ["New", "Escalated"]},
            AlarmOpen("x", A, ("New", "Escalated")),
        ),
    ],
)
def test_every_kind_of_condition_is_read(document: Any, leaf: Any) -> None:
    assert read(conditions=[document]).conditions == (leaf,)


def test_groups_nest_and_the_rules_hysteresis_reaches_comparisons_without_their_own() -> None:
    compare = {"operator": ">", "value": 1, "source": A}
    rule = read(
        deadband=2,
        on_delay_ms=60_000,
        conditions=[
            compare,
            {
                "logic": "any",
                "conditions": [
                    {**compare, "hysteresis": 0},
                    {"type": "group", "conditions": [{**compare, "operator": "=="}]},
                ],
            },
        ],
    )
    assert rule.for_ms == 60_000
    assert rule.conditions == (
        Compare(A, ">", 1.0, hysteresis=2.0),
        Group("any", (Compare(A, ">", 1.0), Group("all", (Compare(A, "==", 1.0),)))),
    )


@pytest.mark.parametrize(
    ("document", "action"),
    [
        (
            {
                "type": "create_alarm",
                "parameters": {
                    "level": "major", "title": "{rule.name}: {value:.1f}", "category": "temperature", "tags": ["a"],
                    "latched": True, "escalate_ms": 1000, "notify": ["ops"], "description": "{temperature} {{",
                },
            },
            CreateAlarm(
                "High", "{rule.name}: {value:.1f}", "{temperature} {{", "temperature", ("a",), True, 1000, ("ops",)
            ),
        ),
        (
            {"type": "send_control", "parameters": {"channel_id": 1001, "point_id": 7, "value": "1"}},
            SendControl(1.0, "comsrv:1001:c:7"),
        ),
        (
            {"type": "send_control", "parameters": {"channel_id": "1", "point_id": "7", "value": 20.5}, "on": "fall"},
            SendControl(20.5, "comsrv:1:a:7", on="fall"),
        ),
        (
            {"type": "send_control", "parameters": {"channel_id": "1", "point_id": "7", "value": "=value * 2"}},
            SendControl("=value * 2", "", "1", "7"),
        ),
        (
            {"type": "send_control", "parameters": {"address": "comsrv:1:a:7", "value": False}},
            SendControl(0.0, "comsrv:1:a:7"),
        ),
        (
            {"type": "send_notification", "parameters": {"recipients": ["ops"], "message": "{source}"}, "on": "both"},
            SendNotification("{source}", ("ops",), "both"),
        ),
        ({"type": "log_event", "parameters": {"level": "warning", "message": "x"}}, LogEvent("x", "warning")),
        (
            {"type": "start_flow", "parameters": {"flow_id": "f", "payload": {"at": "=value", "who": ["{rule.id}"]}}},
            StartFlow("f", {"at": "=value", "who": ["{rule.id}"]}),
        ),
        (
            {"type": "submit_task", "parameters": {"type": "report.make", "args": [1], "kwargs": {"a": "{time}"}}},
            SubmitTask("report.make", (1,), {"a": "{time}"}),
        ),
        ({"type": "set_value", "parameters": {"model": "m", "field": "f", "value": "eco"}}, SetValue("m", "f", "eco")),
    ],
)  # fmt: skip
def test_every_kind_of_action_is_read(document: Any, action: Any) -> None:
    assert read(actions=[document]).actions == (action,)


def test_all_problems_are_told_at_once() -> None:
    found = problems(
        id="a b",
        colour="red",
        logic="xor",
        on_bad="x",
        for_ms=-1,
        cooldown_ms=0.5,
        hysteresis=1,
        deadband=1,
        priority="high",
        inhibited_by=["a b"],
        created_at="yesterday",
        conditions=[
            {"operator": "~"},
            {"operator": ">", "value": "warm", "source": A, "for_ms": 1, "on_delay_ms": 2},
            {"operator": "regex", "value": "(a", "source": "comsrv:x:m:1"},
            {"type": "range", "source": A},
            {"type": "range", "source": A, "min": 2, "max": 1},
            {"type": "window", "source": A, "function": "mode", "window_ms": 0, "operator": "contains", "value": 1},
            {"type": "schedule", "cron": "0 0 30 2 *", "timezone": "Mars"},
            {"type": "expression", "expression": "a + zz > 1", "inputs": {"a": A, "1b": A}},
            {"type": "alarm", "status": ["Gone"]},
            {"type": "magic"},
            3,
            {"conditions": []},
        ],
        actions=[
            {"type": "create_alarm", "parameters": {"level": "x", "title": "{valu}", "category": "a b"}, "on": "both"},
            {"type": "send_control", "parameters": {"channel_id": "x", "value": "=valu", "colour": 1}},
            {"type": "send_control", "parameters": {"address": A, "value": "much"}},
            {"type": "log_event", "parameters": {"level": "loud", "message": "{value"}},
            {"type": "dance"},
            {},
        ],
    )
    assert found >= {
        ("bad_name", "id"), ("unknown_field", "colour"), ("bad_choice", "logic"), ("bad_choice", "on_bad"),
        ("out_of_range", "for_ms"), ("out_of_range", "cooldown_ms"), ("two_names", "deadband"),
        ("wrong_type", "priority"), ("bad_name", "inhibited_by[0]"), ("bad_time", "created_at"),
        ("bad_choice", "conditions[0].operator"), ("missing_field", "conditions[0].source"),
        ("not_a_number", "conditions[1].value"), ("two_names", "conditions[1].on_delay_ms"),
        ("bad_regex", "conditions[2].value"), ("bad_address", "conditions[2].source"),
        ("missing_field", "conditions[3].min"), ("out_of_range", "conditions[4].min"),
        ("bad_choice", "conditions[5].function"), ("out_of_range", "conditions[5].window_ms"),
        ("bad_choice", "conditions[5].operator"), ("bad_cron", "conditions[6].cron"),
        ("bad_timezone", "conditions[6].timezone"), ("unknown_name", "conditions[7].expression"),
        ("bad_name", "conditions[7].inputs.1b"), ("missing_field", "conditions[8].rule_id"),
        ("bad_choice", "conditions[8].status[0]"), ("unknown_type", "conditions[9].type"),
        ("wrong_type", "conditions[10]"), ("missing_field", "conditions[11].conditions"),
        ("bad_choice", "actions[0].parameters.level"), ("unknown_name", "actions[0].parameters.title"),
        ("bad_name", "actions[0].parameters.category"), ("bad_choice", "actions[0].on"),
        ("bad_address", "actions[1].parameters.channel_id"), ("missing_field", "actions[1].parameters.point_id"),
        ("unknown_name", "actions[1].parameters.value"), ("unknown_field", "actions[1].parameters.colour"),
        ("bad_address", "actions[2].parameters.address"), ("not_a_number", "actions[2].parameters.value"),
        ("bad_choice", "actions[3].parameters.level"), ("bad_template", "actions[3].parameters.message"),
        ("unknown_type", "actions[4].type"), ("missing_field", "actions[5].type"),
    }  # fmt: skip


@pytest.mark.parametrize("document", [None, 3, [], "rule"])
def test_what_is_no_object_is_refused(document: Any) -> None:
    rule, found = read_rule(document)
    assert rule is None and [problem.code for problem in found] == ["wrong_type"]


def test_a_rule_without_id_or_conditions_is_refused() -> None:
    rule, found = read_rule({})
    assert rule is None
    assert {(problem.code, problem.path) for problem in found} == {
        ("missing_field", "id"),
        ("missing_field", "conditions"),
    }


def test_an_id_is_text() -> None:
    """A number would be stored under another name than it says."""
    assert problems(id=7) == {("wrong_type", "id")} and problems(group_id=7) == {("wrong_type", "group_id")}


def test_depth_and_number_of_conditions_are_limited() -> None:
    leaf = SEED["conditions"][0]
    deep: Any = leaf
    for _ in range(MAX_DEPTH):
        deep = {"conditions": [deep]}
    assert MAX_DEPTH == 8 and read(conditions=[deep])
    assert ("too_deep", "conditions[0]" + ".conditions[0]" * MAX_DEPTH + ".conditions") in problems(
        conditions=[{"conditions": [deep]}]
    )
    assert any(code == "too_deep" for code, _ in problems(conditions=[{"not": deep}]))
    assert read(conditions=[leaf] * MAX_CONDITIONS)
    assert problems(conditions=[leaf] * (MAX_CONDITIONS + 1)) == {("too_many", f"conditions[{MAX_CONDITIONS}]")}


def test_a_document_nested_without_end_is_refused_not_followed() -> None:
    deep: Any = SEED["conditions"][0]
    for at in range(5_000):
        deep = {"not": deep} if at % 2 else {"conditions": [deep]}
    assert any(code == "too_deep" for code, _ in problems(conditions=[deep]))


def test_a_range_that_could_never_end_is_refused() -> None:
    condition = {"type": "range", "source": A, "min": 0, "max": 2, "inside": False, "hysteresis": 1}
    assert problems(conditions=[condition]) == {("out_of_range", "conditions[0].hysteresis")}
    assert read(conditions=[{**condition, "hysteresis": 0.9}])


def test_a_condition_can_be_negated() -> None:
    compare = {"operator": ">", "value": 1, "source": A}
    rule = read(
        conditions=[
            {"not": compare, "description": "not above"},
            {"type": "not", "not": {"logic": "any", "conditions": [{"not": compare}, compare]}},
        ]
    )
    leaf = Compare(A, ">", 1.0)
    assert rule.conditions == (
        Group("all", (leaf,), True),
        Group("all", (Group("any", (Group("all", (leaf,), True), leaf)),), True),
    )
    assert len(list(rule.leaves())) == 3 and rule.addresses == (A,)
    assert problems(conditions=[{"not": {"operator": "~", "value": 1, "source": A}}]) == {
        ("bad_choice", "conditions[0].not.operator")
    }
    assert problems(conditions=[{"not": [compare]}]) >= {("wrong_type", "conditions[0].not")}
    assert problems(conditions=[{"type": "not"}]) == {("missing_field", "conditions[0].not")}
    assert problems(conditions=[{"not": compare, "for_ms": 5}]) == {("unknown_field", "conditions[0].for_ms")}


@pytest.mark.parametrize("name", ["station", "external"])
def test_the_names_of_alarms_that_no_rule_raises_are_no_rules(name: str) -> None:
    rule, found = read_rule({**SEED, "id": name})
    assert rule is None and [(p.code, p.path) for p in found] == [("bad_name", "id")]
    assert name in found[0].hint
    assert read(inhibited_by=[name]).inhibited_by == (name,)


@pytest.mark.parametrize(
    ("condition", "path"),
    [
        ({"operator": "==", "value": "open", "source": A}, "value"),
        ({"operator": "!=", "value": "", "source": A}, "value"),
        ({"operator": "==", "value": "yes", "source": "modsrv:m:measurement:x"}, "value"),
        ({"type": "change", "source": A, "from": "a"}, "from"),
        ({"type": "change", "source": A, "to": "b"}, "to"),
        ({"type": "change", "source": A, "from": 1, "to": "on"}, "to"),
        ({"type": "change", "source": MODE, "from": "eco", "to": "eco"}, "to"),
        ({"operator": "==", "value": 1, "source": A, "hysteresis": 2}, "hysteresis"),
        ({"operator": "contains", "value": 1, "source": A, "deadband": 2}, "hysteresis"),
        ({"type": "rate", "operator": "!=", "value": 1, "source": A, "hysteresis": 2}, "hysteresis"),
        ({"type": "alarm", "rule_id": "x", "source": "comsrv:1:*"}, "source"),
    ],
)
def test_what_could_never_be_so_is_refused(condition: Any, path: str) -> None:
    assert {where for _, where in problems(conditions=[condition])} == {f"conditions[0].{path}"}


def test_a_hysteresis_of_the_rule_leaves_out_what_has_none() -> None:
    rule = read(hysteresis=2, conditions=[{"operator": "==", "value": 1, "source": A, "hysteresis": 0}])
    assert rule.conditions == (Compare(A, "==", 1.0),)


def test_a_rule_does_not_inhibit_itself() -> None:
    assert problems(inhibited_by=["x", "r"]) == {("itself", "inhibited_by[1]")}


@pytest.mark.parametrize(
    "parameters",
    [
        {"address": "comsrv:1:c:7", "value": 7},
        {"channel_id": "1", "point_id": "7", "type": "c", "value": "0.5"},
    ],
)
def test_a_switch_is_given_0_or_1(parameters: Any) -> None:
    found = problems(actions=[{"type": "send_control", "parameters": parameters}])
    assert found == {("out_of_range", "actions[0].parameters.value")}
    for value in (0, "1", True, "=value"):
        assert read(actions=[{"type": "send_control", "parameters": {**parameters, "value": value}}])


def test_a_command_has_one_target() -> None:
    both = {"address": "modsrv:battery:control:power", "channel_id": 1001, "point_id": 30001, "value": 1}
    assert problems(actions=[{"type": "send_control", "parameters": both}]) == {
        ("two_targets", "actions[0].parameters.address")
    }
