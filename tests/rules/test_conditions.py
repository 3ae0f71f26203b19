"""Each kind of condition by itself: its level over a few samples."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.rule_strategies import START, A, B, compares, ranges
from tests.soak import repeats
from tradewind.clock import from_iso
from tradewind.errors import Invalid
from tradewind.rules.condition_schedule import Calendar
from tradewind.rules.program import RuleProgram, Sample
from tradewind.rules.regex import compile_pattern
from tradewind.rules.spec import AlarmOpen, Change, Compare, Formula, Group, Range, Rate, Rule, Schedule, Window
from tradewind.rules.verdict import BAD, STALE, UNCERTAIN

X = None


def levels(leaf: Any, *values: Any, step_ms: int = 1000, source: str = A) -> list[bool | None]:
    """After each value, a second apart; a value of None is bad data."""
    program = RuleProgram(Rule("r", conditions=(leaf,)))
    state = program.fresh()
    found = []
    for i, value in enumerate(values):
        at = START + i * step_ms
        program.run(state, {source: Sample(0.0 if value is None else value, at, BAD if value is None else 0)}, at)
        found.append(state.levels[0])
    return found


@pytest.mark.parametrize(
    ("leaf", "values", "expected"),
    [
        (Compare(A, ">", 5.0), [4.0, 5.0, 5.1, 5.0], [False, False, True, False]),
        (Compare(A, ">=", 5.0), [4.0, 5.0], [False, True]),
        (Compare(A, "<", 5.0), [5.0, 4.0], [False, True]),
        (Compare(A, "<=", 5.0), [5.0, 5.1], [True, False]),
        (Compare(A, "==", 5.0), [5.0, 5.1, "5"], [True, False, False]),
        (Compare(A, "!=", 5.0), [5.0, 5.1, "on"], [False, True, True]),
        (Compare(A, "==", "on"), [1.0, "on", "off"], [False, True, False]),
        (Compare(A, "!=", "on"), ["on", "off"], [False, True]),
        (Compare(A, "contains", "5.1"), [25.1, 25.0, "5.1x"], [True, False, True]),
        (Compare(A, "regex", "^[0-9]+$"), [25.0, 25.1, "x"], [True, False, False]),
        (Compare(A, ">", 5.0), [6.0, X, 4.0, "on", 6.0], [True, None, False, None, True]),
        # cleared below value - hysteresis, not at it
        (Compare(A, ">", 5.0, hysteresis=1.0), [5.0, 5.1, 4.0, 3.9, 4.5], [False, True, True, False, False]),
        (Compare(A, ">=", 5.0, hysteresis=1.0), [4.5, 5.0, 4.0, 3.9], [False, True, True, False]),
        (Compare(A, "<", 5.0, hysteresis=1.0), [5.5, 5.0, 4.9, 6.0, 6.1], [False, False, True, True, False]),
        (Compare(A, "<=", 5.0, hysteresis=1.0), [5.5, 5.0, 6.0, 6.1], [False, True, True, False]),
        # bad data in between is no reason to forget
        (Compare(A, ">", 5.0, hysteresis=1.0), [5.1, X, 4.5], [True, None, True]),
        (Range(A, 1.0, 2.0), [0.9, 1.0, 2.0, 2.1, X], [False, True, True, False, None]),
        (Range(A, 1.0, None), [0.9, 1.0, 99.0], [False, True, True]),
        (Range(A, 1.0, 2.0, hysteresis=0.5), [0.9, 1.0, 0.5, 0.4, 0.9], [False, True, True, False, False]),
        (Range(A, 1.0, 2.0, False), [0.9, 1.0, 2.0, 2.1], [True, False, False, True]),
        (Range(A, 1.0, 2.0, False, hysteresis=0.4), [1.1, 0.9, 1.4, 1.5, 1.1], [False, True, True, False, False]),
        (Rate(A, ">", 2.0), [1.0, 3.0, 5.5, 5.5], [None, False, True, False]),
        (Rate(A, ">", 2.0), [1.0, X, 9.0], [None, None, True]),
        (Rate(A, ">=", 1.0, 2000), [0.0, 2.0, 2.0, 2.0], [None, True, True, False]),
        (Rate(A, ">", 1.0, 500), [0.0, 2.0], [None, True]),
        (Window(A, "avg", 2000, ">", 2.0), [2.0, 3.0, 1.0], [False, True, False]),
        (Window(A, "stddev", 5000, ">", 1.0), [2.0, 3.0, 9.0], [None, False, True]),
        (Window(A, "sum", 2500, ">=", 5.0, hysteresis=1.0), [2.0, 3.0, -1.0, 1.0], [False, True, True, False]),
        (Window(A, "count", 3000, ">=", 2.0), [1.0, X, 1.0, X, X], [False, False, True, False, False]),
        (Change(A), [1.0, 1.0, 2.0, 2.0, X, 2.0, 3.0], [False, False, True, True, None, True, True]),
        (Change(A, 0.0, 1.0), [1.0, 0.0, 1.0, 2.0, 1.0], [False, False, True, False, False]),
        (Change(A, after="on"), ["off", "on", "off"], [False, True, False]),
        (Change(A, 0.0, 1.0), [0.0, X, 1.0], [False, None, True]),
    ],
)  # fmt: skip
def test_levels(leaf: Any, values: list[Any], expected: list[bool | None]) -> None:
    assert levels(leaf, *values) == expected


@pytest.mark.parametrize(("quality", "level"), [(0, True), (UNCERTAIN, True), (BAD, None), (STALE, None)])
def test_uncertain_values_count_bad_and_stale_ones_do_not(quality: int, level: bool | None) -> None:
    program = RuleProgram(Rule("r", conditions=(Compare(A, ">", 1.0),)))
    state = program.fresh()
    program.run(state, {A: Sample(2.0, START, quality)}, START)
    assert state.levels == [level]
    assert program.results(state, START)[A] == {"matched": level, "actual_value": 2.0 if level else None}


@pytest.mark.parametrize("value", [None, float("nan")])
def test_no_number_is_no_zero(value: Any) -> None:
    program = RuleProgram(Rule("r", conditions=(Compare(A, "<", 1.0),)))
    state = program.fresh()
    assert program.run(state, {A: Sample(value, START)}, START) == []
    assert state.levels == [None]


def test_an_expression_does_without_what_it_can_do_without() -> None:
    def level(text: str, **values: float) -> tuple[bool | None, str]:
        program = RuleProgram(Rule("r", conditions=(Formula(text, {"a": A, "b": B}),)))
        state = program.fresh()
        shown = {A: "a", B: "b"}
        samples = {address: Sample(values[name], START) for address, name in shown.items() if name in values}
        program.run(state, samples, START)
        return state.levels[0], program.error

    assert level("a > b", a=2.0, b=1.0) == (True, "")
    assert level("a > b", a=2.0) == (None, "")
    assert level("coalesce(b, 0) < a", a=2.0) == (True, "")
    assert level("a - b", a=2.0, b=2.0) == (False, "")
    level_, error = level("a / b > 1", a=2.0, b=0.0)
    assert level_ is None and "division by zero" in error
    assert level("'yes' if a > b else 'no'", a=2.0, b=1.0)[0] is None


@pytest.mark.parametrize(
    ("logic", "given", "level"),
    [
        ("all", (True, True), True), ("all", (True, None), None), ("all", (None, False), False),
        ("any", (False, False), False), ("any", (False, None), None), ("any", (None, True), True),
    ],
)  # fmt: skip
def test_three_values(logic: str, given: tuple[bool | None, ...], level: bool | None) -> None:
    for nested in (False, True):
        leaves = tuple(AlarmOpen(f"r{i}") for i in range(len(given)))
        conditions = (Group(logic, leaves), Group(logic, leaves)) if nested else leaves
        program = RuleProgram(Rule("r", logic=logic, conditions=conditions))
        state = program.fresh()
        known = {f"alarm:r{i}": Sample(float(x), START) for i, x in enumerate(given) if x is not None}
        program.run(state, known, START)
        assert program.level(state) is level


def test_a_count_finds_silence_once_it_has_watched_long_enough() -> None:
    rule = Rule("r", conditions=(Window(A, "count", 60_000, "<", 1.0),))
    program = RuleProgram(rule)
    state = program.fresh()
    program.judge(state, {}, START)
    assert (state.levels, state.due_ms) == ([None], START + 60_000)
    program.run(state, {A: Sample(1.0, START + 10_000)}, START + 10_000)
    program.run(state, {A: Sample(1.0, START + 10_000, STALE)}, START + 40_000)
    [verdict] = [v for v in program.run(state, {}, START + 300_000) if v.edge]
    assert (verdict.edge, verdict.at_ms, verdict.cause) == ("rise", START + 70_000, "timer")
    assert state.due_ms == 0


@pytest.mark.parametrize(
    ("zone", "moment", "is_on", "until"),
    [
        ("UTC", "2024-06-01T07:59:59.999Z", False, "2024-06-01T08:00:00Z"),
        ("UTC", "2024-06-01T08:00:00Z", True, "2024-06-01T09:00:00Z"),
        ("UTC", "2024-06-01T09:00:00Z", False, "2024-06-02T08:00:00Z"),
        ("Europe/Berlin", "2024-06-01T06:00:00Z", True, "2024-06-01T07:00:00Z"),
        ("Europe/Berlin", "2024-01-01T07:30:00Z", True, "2024-01-01T08:00:00Z"),
        ("Asia/Shanghai", "2024-01-01T00:00:00Z", True, "2024-01-01T01:00:00Z"),
        ("Europe/Berlin", "2024-03-30T12:00:00Z", False, "2024-03-31T06:00:00Z"),  # an hour of the night is missing
    ],
)
def test_schedules_keep_to_their_time_zone(zone: str, moment: str, is_on: bool, until: str) -> None:
    calendar = Calendar(Schedule("0 8 * * *", 3_600_000, zone))
    for _ in range(2):
        assert calendar.at(from_iso(moment)) == (is_on, from_iso(until))


def test_a_schedule_that_overlaps_itself_stays_on() -> None:
    program = RuleProgram(Rule("r", conditions=(Schedule("* * * * *", 90_000),)))
    state = program.fresh()
    program.judge(state, {}, START)
    assert state.is_active
    assert program.run(state, {}, START + 3_600_000) == [] and state.is_active


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """On RE2; Python's own engine would not come back. Judged by the best of a few, since the machine is shared."""
    leaf = Compare(A, "regex", pattern)
    program = RuleProgram(Rule("r", conditions=(leaf,)))
    state, text, best = program.fresh(), "a" * 5_000 + "!", 1.0
    for i in range(20):
        began = time.perf_counter()
        program.run(state, {A: Sample(text, START + i)}, START + i)
        best = min(best, time.perf_counter() - began)
    assert state.levels == [False] and best < 0.001


def test_a_text_is_searched_only_so_far() -> None:
    assert compile_pattern("b")("a" * 9_999 + "b") and not compile_pattern("b")("a" * 10_000 + "b")
    assert compile_pattern("a" * 500)("a" * 500)
    with pytest.raises(Invalid) as refused:
        compile_pattern("a" * 501)
    assert "500 are allowed" in refused.value.problems[0].hint


numbers = st.floats(-5, 5) | st.integers(-4, 4).map(lambda n: n / 2)


@settings(max_examples=repeats(150), deadline=None)
@given(compares | ranges, st.lists(numbers, min_size=1, max_size=8), numbers)
def test_a_value_within_the_band_changes_nothing(leaf: Any, before: list[float], value: float) -> None:
    program = RuleProgram(Rule("r", conditions=(leaf,)))
    source = program.addresses[0]
    state = program.fresh()
    for i, x in enumerate(before):
        program.run(state, {source: Sample(x, START + i)}, START + i)
    low, high = program.band(state, 0)
    assert low <= before[-1] <= high
    if low <= value <= high:
        was = list(state.was)
        at = START + len(before)
        assert not program.judge(state, {source: Sample(value, at)}, at).is_changed and state.was == was
