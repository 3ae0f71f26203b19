"""Rules and events for property tests. All times are multiples of TICK, so that the oracle can go tick by tick."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tradewind.rules.spec import (
    AlarmOpen,
    Change,
    Compare,
    Condition,
    Formula,
    Group,
    Range,
    Rate,
    Rule,
    Schedule,
    Window,
)

TICK = 20_000
START = 1_699_999_200_000  # a full hour
A, B = "comsrv:1:m:1", "comsrv:1:m:2"
ALARM = "alarm:other"

values = st.integers(-4, 4).map(lambda n: n / 2)
sources = st.sampled_from((A, B))
operators = st.sampled_from((">", "<", ">=", "<=", "==", "!="))
bands = st.sampled_from((0.0, 0.0, 0.5, 1.0))


def delays(most: int) -> st.SearchStrategy[int]:
    return st.sampled_from((0, 0, 0, *range(1, most + 1))).map(lambda n: n * TICK)


compares = st.builds(Compare, sources, operators, values, hysteresis=bands, for_ms=delays(3))
ranges = st.builds(
    lambda source, low, size, inside, band, for_ms: Range(
        source, low, low + size, inside, hysteresis=min(band, 0.9 * size / 2), for_ms=for_ms
    ),
    sources, values, st.sampled_from((1.0, 2.0)), st.booleans(), bands, delays(3),
)  # fmt: skip
rates = st.builds(
    Rate,
    sources,
    operators,
    st.sampled_from((0.0, 0.025, -0.05)),
    over_ms=delays(4),
    hysteresis=bands,
    for_ms=delays(2),
)
windows = st.builds(
    Window, sources, st.sampled_from(("avg", "min", "max", "count", "stddev", "sum")),
    st.integers(1, 5).map(lambda n: n * TICK), operators, values, hysteresis=bands, for_ms=delays(2),
)  # fmt: skip
changes = st.builds(
    Change, sources, before=st.none() | values, after=st.none() | st.sampled_from((0.0, 1.0)), for_ms=delays(2)
)
schedules = st.builds(
    Schedule, st.sampled_from(("*/1 * * * *", "*/2 * * * *", "*/3 * * * *")),
    st.integers(1, 5).map(lambda n: n * TICK), for_ms=delays(2),
)  # fmt: skip
formulas = st.builds(Formula, st.just("a > b"), st.just({"a": A, "b": B}), for_ms=delays(2))
alarms = st.builds(AlarmOpen, st.just("other"), for_ms=delays(2))
leaves: st.SearchStrategy[Any] = st.one_of(
    compares, compares, ranges, rates, windows, changes, schedules, formulas, alarms
)
logics = st.sampled_from(("all", "any"))


def conditions(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Condition, ...]]:
    inner = st.builds(Group, logics, st.lists(leaf, min_size=1, max_size=3).map(tuple), st.booleans())
    group = st.builds(Group, logics, st.lists(leaf | inner, min_size=1, max_size=3).map(tuple), st.booleans())
    return st.lists(leaf | leaf | group, min_size=1, max_size=3).map(tuple)


def rules(leaf: st.SearchStrategy[Any] = leaves, on_bad: tuple[str, ...] = ("hold", "false", "true")) -> Any:
    return st.builds(
        Rule, st.just("r"), logic=logics, conditions=conditions(leaf), for_ms=delays(4), off_delay_ms=delays(3),
        cooldown_ms=delays(6), on_bad=st.sampled_from(on_bad),
    )  # fmt: skip


#: (ticks after the one before, source, value or None for bad data)
steps = st.lists(st.tuples(st.integers(0, 4), st.sampled_from((A, A, B, B, ALARM)), values | st.none()), max_size=25)


def events(drawn: list[tuple[int, str, float | None]]) -> list[tuple[int, str, float | None]]:
    """With times; alarms are open or not."""
    now, found = START, []
    for ticks, address, value in drawn:
        now += ticks * TICK
        shown = value if address != ALARM or value is None else float(value > 0)
        found.append((now, address, shown))
    return found
