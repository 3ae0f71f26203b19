"""When a point's value starts a cycle: deadbands, conditions, edges."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.errors import Invalid
from tradewind.flows.point_trigger import Remembered, read_trigger, trigger_problems

ADDRESS = "comsrv:1001:m:10001"


def fired(raw: dict[str, Any], values: list[float]) -> list[float]:
    """The values that start a cycle."""
    trigger, state, found = read_trigger({"type": "point", "address": ADDRESS, **raw}), Remembered(), []
    for at, value in enumerate(values):
        fires, state = trigger.judge(value, at, state)
        if fires:
            found.append(value)
    return found


@pytest.mark.parametrize(
    ("raw", "values", "expected"),
    [
        ({}, [1, 1, 2, 2, 1], [2, 1]),
        ({"deadband": 0.5}, [1, 1.2, 1.4, 1.5, 1.9, 2.0], [1.5, 2.0]),
        ({"deadband": 10}, [0, 5, 9.9, -10, 0], [-10, 0]),
        ({"condition": "value > 50"}, [60, 60, 40, 51, 55, 50, 99], [51, 99]),
        ({"condition": "value > 50"}, [10, 51, 52], [51]),
        ({"condition": "value - coalesce(previous, value) > 1"}, [1, 2, 4, 4.5, 9], [4, 9]),
        ({"condition": "1 / value > 0.1"}, [0, 100, 5, 0, 5, 100, 5], [5, 5]),
    ],
)
def test_what_starts_a_cycle(raw: dict[str, Any], values: list[float], expected: list[float]) -> None:
    assert fired(raw, values) == expected


def test_the_first_value_is_a_state_and_no_change() -> None:
    assert fired({}, [7]) == []
    assert fired({"condition": "value > 0"}, [7]) == []


def test_everything_wrong_with_triggers_is_named() -> None:
    triggers = (
        {"type": "webhook"},
        {"type": "point", "address": "nonsense", "deadband": -1, "condition": "value +"},
        {"type": "point", "address": ADDRESS, "condition": "other > 1"},
    )
    found = [(problem.code, problem.path) for problem in trigger_problems(triggers)]
    assert [path for _, path in found] == [
        "triggers[1].address", "triggers[1].deadband", "triggers[1].condition", "triggers[2].condition",
    ]  # fmt: skip


@pytest.mark.parametrize("deadband", [True, "1", float("inf"), float("nan"), -0.1])
def test_a_deadband_is_a_number_of_zero_or_more(deadband: Any) -> None:
    with pytest.raises(Invalid):
        read_trigger({"address": ADDRESS, "deadband": deadband})
