"""Back-tests: what a rule would have done over recorded samples, and that it does nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.rules.rule_room import SEED_MS, seed_rule
from tradewind.errors import Invalid
from tradewind.rules.backtest import Series, backtest, backtest_history
from tradewind.rules.document import read_rule
from tradewind.rules.spec import Change, Compare, CreateAlarm, Formula, LogEvent, Range, Rule, Schedule, Window

A, B = "comsrv:1:m:1", "comsrv:1:m:2"
ALARM = CreateAlarm("High", "hot")


def series(*rows: tuple[int, float]) -> Series:
    return Series.of([at for at, _ in rows], [value for _, value in rows])


def edges(report: Any) -> list[tuple[str, int, str]]:
    return [(event.edge, event.at_ms, event.cause) for event in report.events]


def test_the_seed_s_rule_over_a_day_tells_when_it_would_have_fired() -> None:
    document, problems = read_rule(seed_rule())
    assert document is not None and not problems
    source = document.addresses[0]
    times = SEED_MS + np.arange(1440) * 60_000
    values = np.where((np.arange(1440) % 720) >= 700, 78.5, 60.0)
    report = backtest(document, {source: Series.of(times, values)})
    assert (report.rises, report.falls, report.alarms, report.raised) == (2, 1, 2, 2)
    assert report.active_ms == (20 + 19) * 60_000 and report.is_active and report.is_vectorised
    first = report.events[0]
    assert (first.edge, first.at_ms, first.cause, first.value) == ("rise", SEED_MS + 700 * 60_000, "sample", 78.5)
    assert first.source == source and first.conditions["temperature"].matched is True
    shown = report.to_json()
    assert shown["from"] == "2024-01-01T10:00:00.000Z" and shown["events"][0]["at"] == "2024-01-01T21:40:00.000Z"
    assert shown["events"][0]["conditions"] == {"temperature": {"matched": True, "actual_value": 78.5}}


def test_the_first_level_is_a_start_not_an_edge() -> None:
    rule = Rule("r", conditions=(Compare(A, ">", 5.0),), actions=(ALARM, LogEvent("x")))
    report = backtest(rule, {A: series((0, 9.0), (10, 1.0), (20, 9.0))})
    assert edges(report) == [("rise", 0, "startup"), ("fall", 10, "sample"), ("rise", 20, "sample")]
    # The alarm is raised at the start, too; what acts is not.
    assert report.alarms == 2 and report.actions == {"log_event": 1}


@pytest.mark.parametrize("is_vectorised", [True, False])
def test_with_on_bad_false_unknown_is_a_level_and_what_follows_an_edge(is_vectorised: bool) -> None:
    rows = Series.of([0, 10], [9.0, 9.0], [2, 0])
    for on_bad, cause in (("false", "sample"), ("hold", "startup")):
        rule = Rule("r", conditions=(Compare(A, ">", 5.0),), on_bad=on_bad)
        assert edges(backtest(rule, {A: rows}, is_vectorised=is_vectorised)) == [("rise", 10, cause)]


@pytest.mark.parametrize("is_vectorised", [True, False])
def test_delays_cooldown_and_time_behind_the_last_sample(is_vectorised: bool) -> None:
    rule = Rule("r", conditions=(Compare(A, ">", 5.0),), for_ms=60_000, off_delay_ms=5_000, cooldown_ms=100_000)
    rows = series((0, 1.0), (1_000, 9.0), (90_000, 1.0), (92_000, 9.0), (93_000, 1.0))
    found = backtest(rule, {A: rows}, until_ms=500_000, is_vectorised=is_vectorised)
    assert edges(found) == [("rise", 61_000, "timer"), ("fall", 98_000, "timer")]
    assert found.active_ms == 37_000
    assert edges(backtest(rule, {A: rows}, is_vectorised=is_vectorised)) == [("rise", 61_000, "timer")]


@pytest.mark.parametrize("is_vectorised", [True, False])
def test_a_source_that_falls_silent_neither_fires_nor_resolves(is_vectorised: bool) -> None:
    rule = Rule("r", conditions=(Compare(A, ">", 5.0),), for_ms=60_000)
    rows = {A: series((0, 1.0), (1_000, 9.0), (200_000, 9.0), (201_000, 9.0))}
    report = backtest(rule, rows, ages={A: 30_000}, until_ms=300_000, is_vectorised=is_vectorised)
    # 30 s of the delay were over when it fell silent; it has 1 s + 30 s until it does again.
    assert edges(report) == [("rise", 230_000, "timer")]
    assert edges(backtest(rule, rows, is_vectorised=is_vectorised)) == [("rise", 61_000, "timer")]


def test_sources_of_the_same_time_are_judged_together() -> None:
    rule = Rule("r", conditions=(Compare(A, ">", 5.0), Compare(B, "<", 5.0)))
    rows = {A: series((0, 1.0), (10, 9.0), (20, 1.0)), B: series((0, 1.0), (10, 9.0), (20, 1.0))}
    for is_vectorised in (True, False):
        assert edges(backtest(rule, rows, is_vectorised=is_vectorised)) == []


def test_samples_may_come_in_any_order_and_bad_ones_hold() -> None:
    rule = Rule("r", conditions=(Range(A, 1.0, 5.0),))
    rows = Series.of([30, 10, 20, 40], [9.0, 3.0, float("nan"), 9.0], [2, 0, 0, 0])
    assert edges(backtest(rule, {A: rows})) == [("rise", 10, "startup"), ("fall", 40, "sample")]


def test_latched_and_repeated_alarms_are_counted_as_they_would_stand() -> None:
    rows = {A: series((0, 1.0), (10, 9.0), (20, 1.0), (30, 9.0))}
    conditions = (Compare(A, ">", 5.0),)
    latched = backtest(Rule("r", conditions=conditions, actions=(ALARM,), latched=True), rows)
    assert (latched.alarms, latched.raised) == (1, 2)
    twice = backtest(Rule("r", conditions=conditions, actions=(ALARM, ALARM)), rows)
    assert (twice.alarms, twice.raised) == (2, 4)
    at_fall = backtest(Rule("r", conditions=conditions, actions=(CreateAlarm("Low", "x", on="fall"),)), rows)
    assert (at_fall.alarms, at_fall.raised) == (1, 1)
    changes = Rule("r", conditions=(Change(A),), actions=(ALARM,))
    assert (backtest(changes, rows).alarms, backtest(changes, rows).raised) == (1, 3)


def test_long_lists_are_cut_but_counted() -> None:
    rows = Series.of(np.arange(100), np.arange(100) % 2)
    report = backtest(Rule("r", conditions=(Compare(A, ">", 0.5),)), {A: rows}, max_events=5)
    assert report.is_cut and len(report.events) == 5 and report.rises == 50 and report.falls == 49


@pytest.mark.parametrize(
    "condition",
    [
        Formula("a > 5", {"a": A}),
        Window(A, "avg", 1, ">", 5.0),
        Compare(A, ">", 5.0, for_ms=1),
        Compare(A, "regex", "9"),
    ],
)
def test_what_is_not_simple_goes_through_the_live_evaluator(condition: Any) -> None:
    report = backtest(Rule("r", conditions=(condition,)), {A: series((0, 1.0), (10, 9.0), (20, 9.0))})
    assert not report.is_vectorised and report.rises == 1


def test_an_expression_without_a_value_says_why() -> None:
    report = backtest(Rule("r", conditions=(Formula("1 / a > 5", {"a": A}),)), {A: series((0, 0.0))})
    assert report.rises == 0 and "expression" in report.error


def test_sources_without_samples_are_named() -> None:
    rule = Rule("r", conditions=(Compare(A, ">", 5.0), Compare(B, ">", 5.0)))
    report = backtest(rule, {A: series((0, 9.0)), "comsrv:9:m:9": series((0, 1.0))})
    assert report.silent == [B] and report.events == [] and report.samples == 1
    nothing = backtest(rule, {})
    assert nothing.silent == [A, B] and nothing.samples == 0 and nothing.to_json()["from"] is None


def test_bad_input_is_refused() -> None:
    for times, values in (([1, 2], [1.0]), ([-1], [1.0]), (["x"], [1.0]), ([2**60], [1.0])):
        with pytest.raises(Invalid):
            Series.of(times, values)
    with pytest.raises(Invalid, match="reads no samples"):
        backtest(Rule("r", conditions=(Schedule("* * * * *"),)), {})


async def test_history_is_read_for_the_rule_s_sources_and_period() -> None:
    rule = Rule("r", conditions=(Compare(A, ">", 5.0), Compare(B, ">", 5.0)), logic="any", for_ms=1_000)
    asked: list[Any] = []

    async def read(addresses: Sequence[str], from_ms: int, until_ms: int) -> Mapping[str, Series]:
        asked.append((tuple(addresses), from_ms, until_ms))
        return {A: series((100, 1.0), (200, 9.0))}

    report = await backtest_history(rule, read, 50, 5_000)
    assert asked == [((A, B), 50, 5_000)] and edges(report) == [("rise", 1_200, "startup")]
    assert report.until_ms == 5_000
    with pytest.raises(Invalid):
        await backtest_history(rule, read, 50, 40)
