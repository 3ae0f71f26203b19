"""The vectorised back-test against the evaluator sample by sample, and that against the network that judges live."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.rule_strategies import START, A, B, compares, conditions, logics, ranges, rules
from tests.soak import repeats
from tradewind.points.feed import FeedEntry
from tradewind.rules.backtest import BacktestEvent, Series, backtest
from tradewind.rules.network import RuleNetwork
from tradewind.rules.spec import AlarmOpen, Compare, Rule

Rows = list[tuple[int, float, int]]

limits = st.floats(-3, 3, allow_nan=False).map(lambda x: round(x, 2)) | st.sampled_from((-1.0, 0.0, 0.5, 1.0))
#: Gaps of 0 make equal times; the ages below are of the same size as the others.
gaps = st.sampled_from((0, 0, 1, 1, 2, 3, 5, 8, 13, 40))
values = st.integers(-6, 6).map(lambda n: n / 4) | st.sampled_from((math.nan, math.inf, -math.inf, 0.1 + 0.2, -0.0))
qualities = st.sampled_from((0, 0, 0, 0, 1, 2, 3))
recorded = st.lists(st.tuples(gaps, values, qualities), max_size=40)
delays = st.sampled_from((0, 0, 1, 2, 3, 7, 20))
leaves = st.one_of(
    st.builds(
        Compare,
        st.sampled_from((A, B)),
        st.sampled_from((">", "<", ">=", "<=", "==", "!=")),
        limits,
        hysteresis=st.sampled_from((0.0, 0.25, 0.7)),
    ),
    ranges.map(lambda each: type(each)(each.source, each.min, each.max, each.inside, hysteresis=each.hysteresis)),
    st.just(AlarmOpen("other")),
)
simple_rules = st.builds(
    Rule, st.just("r"), logic=logics, conditions=conditions(leaves), for_ms=delays, off_delay_ms=delays,
    cooldown_ms=delays, on_bad=st.sampled_from(("hold", "false", "true")),
)  # fmt: skip
ages = st.dictionaries(st.sampled_from((A, B)), st.sampled_from((1, 2, 5, 10)))


def dated(drawn: Rows) -> Rows:
    now, found = START, []
    for gap, value, quality in drawn:
        now += gap
        found.append((now, value, quality))
    return found


def of(rows: Rows) -> Series:
    times, found, words = zip(*rows, strict=True) if rows else ((), (), ())
    return Series.of(times, found, words)


def shown(events: list[BacktestEvent]) -> list[Any]:
    """Comparable: values are not NaN, for what is not a number is not known."""
    return [(e.edge, e.at_ms, e.cause, e.source, e.field, e.value, e.conditions) for e in events]


@settings(max_examples=repeats(300), deadline=None)
@given(simple_rules, recorded, recorded, recorded, ages, st.none() | st.integers(0, 120))
def test_vectorised_and_sample_by_sample_are_equal_event_by_event(
    rule: Rule, a: Rows, b: Rows, alarm: Rows, aged: dict[str, int], until: int | None
) -> None:
    samples = {A: of(dated(a)), B: of(dated(b)), "alarm:other": of(dated(alarm))}
    until_ms = None if until is None else START + until
    fast = backtest(rule, samples, ages=aged, until_ms=until_ms)
    slow = backtest(rule, samples, ages=aged, until_ms=until_ms, is_vectorised=False)
    assert fast.is_vectorised or not fast.samples
    assert shown(fast.events) == shown(slow.events)
    for name in ("rises", "falls", "active_ms", "is_active", "samples", "from_ms", "until_ms", "alarms", "actions"):
        assert getattr(fast, name) == getattr(slow, name)


def network_events(rule: Rule, rows: Rows, age_ms: int, until_ms: int) -> list[BacktestEvent]:
    """As the engine does it: ages, timers, entries of the feed."""
    network = RuleNetwork([rule], stale_ms=age_ms)
    network.start({}, START - 1)
    words = ("", "1:uncertain", "1:bad")
    for number, (at, value, quality) in enumerate(rows):
        network.age(at, {})
        network.due(at)
        network.apply(FeedEntry(f"{number}-1", "comsrv:1:m", at, f"1:{value!r}", words[quality]))
    network.age(until_ms, {})
    network.due(until_ms)
    return [BacktestEvent.of(fired.verdict) for fired in network.take()]


one_source = st.builds(
    lambda leaf, **more: Rule("r", conditions=(leaf,), on_bad="hold", **more),
    leaves.filter(lambda leaf: getattr(leaf, "source", "") == A),
    for_ms=delays,
    off_delay_ms=delays,
    cooldown_ms=delays,
)


@settings(max_examples=repeats(150), deadline=None)
@given(one_source, recorded, st.sampled_from((3, 10, 1_000_000)), st.integers(0, 60))
def test_a_back_test_finds_what_the_live_network_found(rule: Rule, drawn: Rows, age_ms: int, more: int) -> None:
    rows = [(at, value, min(quality, 2)) for at, value, quality in dated(drawn)]
    until = (rows[-1][0] if rows else START) + more
    report = backtest(rule, {A: of(rows)}, ages={A: age_ms}, until_ms=until)
    assert shown(report.events) == shown(network_events(rule, rows, age_ms, until))


@settings(max_examples=repeats(100), deadline=None)
@given(rules(compares | ranges, on_bad=("hold",)), recorded, recorded)
def test_conditions_with_delays_of_their_own_are_judged_too(rule: Rule, a: Rows, b: Rows) -> None:
    """Row by row or not, with the same outcome."""
    samples = {A: of(dated(a)), B: of(dated(b))}
    one, two = backtest(rule, samples), backtest(rule, samples, is_vectorised=False)
    assert shown(one.events) == shown(two.events)


@pytest.mark.parametrize("operator", [">", ">=", "<", "<="])
def test_values_next_to_the_limits_are_on_the_right_side(operator: str) -> None:
    limit, band = 75.0, 1.3
    near = [math.nextafter(x, to) for x in (limit, limit - band, limit + band) for to in (x, math.inf, -math.inf)]
    rows = [(START + i, value, 0) for i, value in enumerate([0.0, 200.0, *near, 200.0, *near, 0.0, *near])]
    for hysteresis in (0.0, band):
        rule = Rule("r", conditions=(Compare(A, operator, limit, hysteresis=hysteresis),))
        fast = backtest(rule, {A: of(rows)})
        assert shown(fast.events) == shown(backtest(rule, {A: of(rows)}, is_vectorised=False).events)
        assert fast.is_vectorised and fast.rises
