"""Entries of the feed are read in several ways, by their size: all of them find the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.rule_strategies import START
from tests.soak import repeats
from tradewind.points.feed import FeedEntry
from tradewind.rules.network import RuleNetwork
from tradewind.rules.network_index import read_number, read_numbers
from tradewind.rules.program import RuleProgram, Sample
from tradewind.rules.spec import Change, Compare, Range, Rule, Window

#: With all of them an entry is too long to be read point by point.
POINTS = [str(1000 + n) for n in range(24)]
Sweep = list[float]

leaves: st.SearchStrategy[Any] = st.one_of(
    st.builds(Compare, st.just(""), st.sampled_from((">", "<", "==")), st.integers(0, 3), hysteresis=st.just(0.5)),
    st.builds(Range, st.just(""), st.just(1.0), st.just(2.0), st.booleans()),
    st.builds(Change, st.just(""), after=st.none() | st.just(1.0)),
    st.builds(Window, st.just(""), st.just("avg"), st.just(2_000), st.just(">"), st.just(1.0)),
)
#: Several rules may read a point; each has a band of its own.
placed = st.lists(st.tuples(st.sampled_from((0, 0, 0, 1, 2, 23)), leaves), min_size=1, max_size=6)
sweeps = st.lists(st.lists(st.integers(0, 6).map(lambda n: n / 2), min_size=24, max_size=24), min_size=1, max_size=12)


def rules_of(drawn: list[tuple[int, Any]]) -> list[Rule]:
    rules = []
    for number, (at, leaf) in enumerate(drawn):
        fields = {name: getattr(leaf, name) for name in leaf.__struct_fields__}
        rules.append(Rule(f"r{number}", conditions=(type(leaf)(**{**fields, "source": f"comsrv:1:m:{POINTS[at]}"}),)))
    return rules


def entries(drawn: list[Sweep], size: int) -> Iterator[FeedEntry]:
    ids = itertools.count(1)
    for number, values in enumerate(drawn):
        pairs = [f"{name}:{value:.6f}" for name, value in zip(POINTS, values, strict=True)]
        for first in range(0, len(pairs), size):
            data = ",".join(pairs[first : first + size])
            yield FeedEntry(f"{next(ids)}-0", "comsrv:1:m", START + number * 1000, data)


def found(rules: list[Rule], given: list[FeedEntry], at_once: int) -> tuple[dict[str, list[tuple[str, int]]], int, Any]:
    network = RuleNetwork(rules, 10**12)
    network.start({}, START - 1)
    edges: dict[str, list[tuple[str, int]]] = {}
    for first in range(0, len(given), at_once):
        network.apply_all(given[first : first + at_once])
    for fired in network.take():
        edges.setdefault(fired.rule.id, []).append((fired.verdict.edge, fired.verdict.at_ms))
    levels = {name: (state.is_active, list(state.levels)) for name, state in network.states.items()}
    return edges, network.checks, levels


def alone(rule: Rule, values: list[Sweep]) -> list[tuple[str, int]]:
    """What the rule says when it is given every sample."""
    program = RuleProgram(rule)
    state, place = program.fresh(), POINTS.index(rule.source.rpartition(":")[2])
    verdicts = [program.judge(state, {}, START - 1)]
    for number, sweep in enumerate(values):
        at = START + number * 1000
        verdicts += program.run(state, {rule.source: Sample(sweep[place], at)}, at)
    return [(verdict.edge, verdict.at_ms) for verdict in verdicts if verdict.edge]


@settings(max_examples=repeats(60), deadline=None)
@given(placed, sweeps)
def test_it_is_no_matter_how_many_points_an_entry_has(drawn: list[tuple[int, Any]], values: list[Sweep]) -> None:
    rules = rules_of(drawn)
    one_by_one = found(rules, list(entries(values, 1)), 1)
    assert one_by_one[0] == {rule.id: edges for rule in rules if (edges := alone(rule, values))}
    for size, at_once in ((1, 500), (3, 1), (3, 500), (24, 1), (24, 500)):
        assert found(rules, list(entries(values, size)), at_once) == one_by_one


def test_a_rule_that_wakes_another_band_does_not_hide_the_next_value() -> None:
    """Two rules on one point: after the edge of one the other's limit still counts, and its own new one."""
    source = "comsrv:1:m:1000"
    network = RuleNetwork([Rule(f"r{limit}", conditions=(Compare(source, ">", float(limit)),)) for limit in (10, 20)])
    network.start({}, START - 1)
    told = []
    for number, value in enumerate((5, 6, 15, 5, 6, 25, 6)):
        network.apply(FeedEntry(f"{number}-1", "comsrv:1:m", START + number, f"1000:{value}"))
        told.append([(fired.rule.id, fired.verdict.edge) for fired in network.take()])
    both = [[("r10", edge), ("r20", edge)] for edge in ("rise", "fall")]
    assert told == [[], [], [("r10", "rise")], [("r10", "fall")], [], *both]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_numbers_are_read_as_exactly_as_float_does(values: list[float]) -> None:
    texts = [f"{value:.6f}" if n % 2 else repr(value) for n, value in enumerate(values)]
    assert [x.hex() for x in read_numbers(texts)] == [float(text).hex() for text in texts]
    assert [read_number(text).hex() for text in texts] == [float(text).hex() for text in texts]


@pytest.mark.parametrize("text", ["007.5", ".5", "+5", "5.", "1e400", "-inf", "1_0", "0x1"])
def test_numbers_written_in_other_ways_are_read_as_before(text: str) -> None:
    try:
        wanted = float(text)
    except ValueError:
        for read in (lambda: read_number(text), lambda: read_numbers(["1", text])):
            with pytest.raises(ValueError, match="could not convert"):
                read()
        return
    assert read_number(text) == wanted and read_numbers(["1", text]) == [1.0, wanted]
