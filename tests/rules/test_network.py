"""Rules together: only what a change touches is judged, and the way there is no matter."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.rule_strategies import ALARM, START, TICK, A, B, events, leaves, rules, steps, values
from tests.soak import repeats
from tradewind.points.feed import FeedEntry
from tradewind.rules.network import RuleNetwork
from tradewind.rules.open_alarms import LeftOpen
from tradewind.rules.program import RuleProgram, Sample
from tradewind.rules.spec import AlarmOpen, Change, Compare, Formula, Rule, Window
from tradewind.rules.verdict import BAD

FOREVER = 10**15
#: Ids of entries only grow.
IDS = itertools.count(1)


def entry(at: int, key: str = "comsrv:1:m", q: str = "", late: bool = False, p: str = "", **values: float) -> FeedEntry:
    """Fields as `_1=…`; `at` in seconds after START."""
    data = ",".join(f"{name.lstrip('_')}:{value:.6f}" for name, value in values.items())
    return FeedEntry(f"{next(IDS)}-0", key, START + at * 1000, data, q, late, "", p)


def hot(name: str, source: str = A, **fields: Any) -> Rule:
    return Rule(name, conditions=(Compare(source, ">", 75.0),), **fields)


def started(*rules: Rule, samples: dict[str, Sample] | None = None, stale_ms: int = FOREVER) -> RuleNetwork:
    network = RuleNetwork(rules, stale_ms)
    network.start(samples or {}, START)
    return network


def edges(network: RuleNetwork) -> list[tuple[str, str, int]]:
    return [(item.rule.id, item.verdict.edge, (item.verdict.at_ms - START) // 1000) for item in network.take()]


def test_only_rules_that_read_the_point_are_judged() -> None:
    network = started(hot("a"), hot("b", B), hot("c", "comsrv:2:m:1"))
    network.apply(entry(1, _1=70, _2=70, _3=99))
    network.apply(entry(1, "comsrv:2:m", _1=70))
    judged, checks = network.judged, network.checks
    network.apply(entry(2, _1=80))
    network.apply(entry(2, "comsrv:9:m", _1=80))
    assert (network.judged, network.checks) == (judged + 1, checks + 1)
    assert edges(network) == [("a", "rise", 2)]
    assert set(network.take_states()) == {"a", "b", "c"} and network.take_states() == {}


def test_changes_that_cross_no_limit_are_not_looked_at_closely() -> None:
    network = started(hot("a"))
    network.apply(entry(1, _1=70))
    judged = network.judged
    for i in range(2, 100):
        network.apply(entry(i, _1=70 + i % 5))
    assert (network.judged, network.checks) == (judged, 99)
    network.take_states()
    network.apply(entry(100, _1=76))
    [fired] = network.take()
    assert fired.verdict.conditions_result == {A: {"matched": True, "actual_value": 76.0}}


def test_higher_priority_goes_first_within_one_entry() -> None:
    given = (("low", A, 1), ("high", B, 9), ("mid", A, 5), ("also", A, 5))
    network = started(*(hot(name, source, priority=priority) for name, source, priority in given))
    network.apply(entry(1, _1=70, _2=70))
    network.apply(entry(2, _1=80, _2=80))
    assert [name for name, _, _ in edges(network)] == ["high", "also", "mid", "low"]


def test_disabled_rules_are_left_out() -> None:
    assert list(started(hot("a", enabled=False), hot("b")).programs) == ["b"]


def test_late_entries_and_older_values_change_nothing() -> None:
    network = started(hot("a"))
    network.apply(entry(5, _1=70))
    network.apply(entry(6, late=True, _1=99))
    network.apply(entry(4, _1=99))
    assert edges(network) == []


def test_each_value_may_have_its_own_time() -> None:
    network = started(hot("a", for_ms=10_000), hot("b", B, for_ms=10_000))
    network.apply(entry(1, _1=70, _2=70))
    network.apply(entry(9, p=f"{START + 5000},{START + 9000}", _1=80, _2=80))
    network.due(START + 60_000)
    assert edges(network) == [("a", "rise", 15), ("b", "rise", 19)]


def test_qualities_without_values_count() -> None:
    network = started(hot("a", on_bad="true"))
    network.apply(entry(1, _1=70))
    network.apply(entry(2, _1=71))
    network.take()
    network.apply(entry(3, q="1:bad"))
    assert [(f.verdict.edge, f.verdict.cause) for f in network.take()] == [("rise", "bad")]
    network.apply(entry(4, q="1:good"))
    assert edges(network) == [("a", "fall", 4)]
    assert network.states["a"].values == [71.0]
    network.apply(entry(5, q="1:bad", _1=70))
    assert edges(network) == [("a", "rise", 5)]


def test_timers_come_in_the_order_of_their_time() -> None:
    network = started(hot("a", for_ms=30_000), hot("b", B, for_ms=10_000, priority=-1))
    network.apply(entry(1, _1=70, _2=70))
    assert network.next_due() == 0
    network.apply(entry(2, _1=80, _2=80))
    assert network.next_due() == START + 12_000
    network.due(START + 11_999)
    assert edges(network) == []
    network.due(START + 100_000)
    assert edges(network) == [("b", "rise", 12), ("a", "rise", 32)]
    assert network.next_due() == 0


def test_a_timer_that_was_stopped_does_not_fire() -> None:
    network = started(hot("a", for_ms=10_000))
    for at, value in ((1, 70), (2, 80), (3, 70), (4, 80)):
        network.apply(entry(at, _1=value))
    assert network.next_due() == START + 14_000
    network.due(START + 13_999)
    assert edges(network) == []


def test_alarms_of_other_rules_are_shown() -> None:
    network = started(Rule("a", conditions=(AlarmOpen("other"), AlarmOpen("x", A, ("New",)))))
    assert list(network.alarm_conditions) == [ALARM, f"alarm:x|{A}|New"] and network.addresses == []
    network.show({ALARM: Sample(1.0, START), f"alarm:x|{A}|New": Sample(0.0, START)}, START)
    network.show({f"alarm:x|{A}|New": Sample(1.0, START + 5000)}, START + 5000)
    assert edges(network) == [("a", "rise", 5)]


def test_controls_of_models_may_be_words() -> None:
    address = "modsrv:m:control:mode"
    network = started(Rule("a", conditions=(Compare(address, "==", "eco"),)))
    assert network.control_addresses == [address]
    network.show({address: Sample("comfort", START)}, START)
    network.show({address: Sample("eco", START + 1000)}, START + 9000)
    assert edges(network) == [("a", "rise", 1)]


# --- starts


def test_new_rules_begin_with_the_board_and_others_where_they_stood() -> None:
    """The board is ahead of the cursor: what rose and fell in between is not lost for the rule that goes on."""
    before = started(hot("old"))
    before.apply(entry(1, _1=70))
    network = RuleNetwork([hot("old"), hot("new")], FOREVER)
    assert network.restore(before.take_states()) == ["new"]
    network.start({A: Sample(71.0, START + 3000)}, START + 4000)
    assert edges(network) == []
    network.apply(entry(2, _1=80))
    network.apply(entry(3, _1=71))
    assert edges(network) == [("old", "rise", 2), ("old", "fall", 3)]


def test_the_first_level_is_told_as_a_start() -> None:
    network = started(hot("a"), samples={A: Sample(80.0, START - 5000)})
    [fired] = network.take()
    assert (fired.verdict.edge, fired.verdict.cause) == ("rise", "startup")


def test_timers_go_on_after_a_restart() -> None:
    before = started(hot("a", for_ms=60_000))
    before.apply(entry(0, _1=70))
    before.apply(entry(1, _1=80))
    network = RuleNetwork([hot("a", for_ms=60_000)], FOREVER)
    assert network.restore(before.take_states()) == []
    network.start({A: Sample(80.0, START + 1000)}, START + 30_000)
    assert network.next_due() == START + 61_000
    network.due(START + 60_999)
    assert edges(network) == []
    network.due(START + 61_000)
    assert edges(network) == [("a", "rise", 61)]


# --- ages


def test_a_value_that_stops_arriving_neither_fires_nor_resolves() -> None:
    network = started(hot("a", for_ms=60_000), hot("b", B, off_delay_ms=60_000), stale_ms=30_000)
    network.apply(entry(0, _1=70, _2=80))
    network.take()
    network.apply(entry(1, _1=80, _2=70))
    for at in range(2, 300):
        now = START + at * 1000
        assert network.overdue(now) == ({"1"} if at > 31 else set())
        network.age(now, {"1": START + 1000})
        network.due(now)
    assert edges(network) == [] and network.next_due() == 0
    network.apply(entry(300, _1=81, _2=71))
    network.due(START + 329_999)
    assert edges(network) == []
    network.due(START + 330_000)
    assert edges(network) == [("a", "rise", 330), ("b", "fall", 330)]


def test_a_channel_that_answers_keeps_its_unchanged_points_fresh() -> None:
    network = started(hot("a", for_ms=60_000), stale_ms=30_000)
    network.apply(entry(0, _1=70))
    network.apply(entry(1, _1=80))
    for at in range(2, 70):
        now = START + at * 1000
        network.age(now, {"1": now - 500} if network.overdue(now) else {})
        network.due(now)
    assert edges(network) == [("a", "rise", 61)]


def test_a_stale_point_is_known_again_when_its_channel_answers() -> None:
    network = started(hot("a", on_bad="true"), stale_ms=30_000)
    network.apply(entry(0, _1=70))
    network.take()
    network.age(START + 40_000, {})
    assert edges(network) == [("a", "rise", 30)]
    state = network.take_states()
    again = RuleNetwork([hot("a", on_bad="true")], 30_000)
    again.restore(state)
    again.start({A: Sample(70.0, START)}, START + 41_000)
    again.age(START + 42_000, {"1": START + 41_500})
    assert edges(again) == [("a", "fall", 41)]


def test_a_timer_waits_until_it_is_known_whether_its_value_is_stale() -> None:
    for seen, expected in ((START + 33_000, [("a", "rise", 33)]), (0, [])):
        network = started(hot("a", for_ms=32_000), stale_ms=30_000)
        network.apply(entry(0, _1=70))
        network.apply(entry(1, _1=80))
        network.due(START + 33_500)
        assert edges(network) == [] and network.next_due() == 0
        network.age(START + 34_000, {"1": seen})
        network.due(START + 34_000)
        assert edges(network) == expected


def test_the_deadline_beats_stale_in_the_same_millisecond() -> None:
    network = started(hot("a", for_ms=30_000), stale_ms=30_000)
    network.apply(entry(0, _1=70))
    network.apply(entry(1, _1=80))
    network.age(START + 40_000, {})
    assert edges(network) == [("a", "rise", 31)]


def test_a_new_rule_does_not_trust_a_stale_board() -> None:
    network = started(hot("a"), samples={A: Sample(80.0, START - 60_000)}, stale_ms=30_000)
    network.show({A: Sample(80.0, START - 60_000)}, START)
    assert edges(network) == []
    network.age(START + 1000, {"1": START})
    [fired] = network.take()
    assert fired.verdict.cause == "startup"


def test_a_rule_whose_source_was_never_known_is_false_by_on_bad_and_its_first_true_is_an_edge() -> None:
    network = started(hot("false", on_bad="false"), hot("hold"))
    assert set(network.take_states()) == {"false", "hold"}, "where they begin is remembered, also without a level"
    network.apply(entry(1, _1=80))
    assert [(fired.rule.id, fired.verdict.cause) for fired in network.take()] == [
        ("false", "sample"),
        ("hold", "startup"),
    ]


def test_a_rule_that_is_true_when_it_is_first_judged_starts_so_whatever_on_bad_says() -> None:
    for on_bad in ("hold", "false", "true"):
        network = started(hot("a", on_bad=on_bad), samples={A: Sample(80.0, START)})
        assert [fired.verdict.cause for fired in network.take()] == ["startup"]


@pytest.mark.parametrize(
    ("on_bad", "seen", "expected"),
    [
        ("false", START, [("rise", "startup")]),  # the channel answers: the old value is good, and was so at the start
        ("true", START, [("rise", "startup")]),
        ("false", 0, []),
        ("true", 0, [("rise", "bad")]),
    ],
)
def test_on_bad_does_not_decide_before_it_is_known_whether_an_old_value_is_stale(
    on_bad: str, seen: int, expected: list[tuple[str, str]]
) -> None:
    network = started(hot("a", on_bad=on_bad), samples={A: Sample(80.0, START - 60_000)}, stale_ms=30_000)
    assert edges(network) == []
    network.age(START, {"1": seen})
    assert [(fired.verdict.edge, fired.verdict.cause) for fired in network.take()] == expected
    if not seen and on_bad == "false":
        network.apply(entry(1, _1=80))
        assert [fired.verdict.cause for fired in network.take()] == ["sample"]


@pytest.mark.parametrize(("on_bad", "is_cleared"), [("false", True), ("hold", False), ("true", False)])
def test_an_alarm_that_was_left_open_is_cleared_when_its_rule_is_known_to_be_false(
    on_bad: str, is_cleared: bool
) -> None:
    """Unknown is false with `on_bad: false` only. A rule that is true and waits may yet turn out to be false."""
    network = started(hot("a", on_bad=on_bad, for_ms=60_000))
    left = LeftOpen({("a", A)})
    assert bool(left.steps(network)) is is_cleared
    left = LeftOpen({("a", A)})
    network.apply(entry(1, _1=80))
    assert left.steps(network) == []
    network.apply(entry(2, _1=70))
    assert len(left.steps(network)) == 1 and left.steps(network) == []


def test_points_have_ages_of_their_own_and_other_kinds_none() -> None:
    sources = [A, "comsrv:1:s:1", "comsrv:1:a:1", "modsrv:m:measurement:x"]
    rules = [hot(f"r{i}", source, on_bad="true") for i, source in enumerate(sources)]
    network = RuleNetwork(rules, 30_000, {A: 5_000})
    network.start({source: Sample(70.0, START) for source in sources}, START)
    network.age(START + 10_000, {})
    assert edges(network) == [("r0", "rise", 5)]
    network.age(START + 100_000, {})
    assert edges(network) == [("r1", "rise", 30), ("r3", "rise", 30)], "outputs of models that nobody computes"


# --- the way there


@settings(max_examples=repeats(80), deadline=None)
@given(st.lists(rules(), min_size=1, max_size=4), steps, st.sets(st.integers(0, 25)), st.booleans())
def test_the_network_says_what_each_rule_says_by_itself(
    drawn_rules: list[Rule], drawn: Any, restarts: set[int], has_timers: bool
) -> None:
    """Whatever it skips, and with restarts from what it stored."""
    named = [Rule(**{**_fields(rule), "id": f"r{i}"}) for i, rule in enumerate(drawn_rules)]
    found = events(drawn)
    end = (found[-1][0] if found else START) + 20 * TICK
    expected = {rule.id: _alone(rule, found, end) for rule in named}
    network = started(*named)
    stored = network.take_states()
    told: dict[str, list[tuple[str, int]]] = {rule.id: [] for rule in named}
    _tell(network, told)
    for i, (at, address, value) in enumerate(found):
        if i in restarts:
            network = RuleNetwork(named, FOREVER)
            network.restore(stored)
            network.start({}, START)
        if has_timers:
            network.due(at)
        if address in (A, B):
            network.apply(_told_by_the_feed(at, address, value))
        else:
            network.show({address: Sample(0.0, at, BAD) if value is None else Sample(value, at)}, at)
        stored |= network.take_states()
        _tell(network, told)
    network.due(end)
    _tell(network, told)
    assert told == expected


#: Without delays, so with many edges.
bare = st.builds(Rule, st.just("r"), conditions=st.tuples(leaves), on_bad=st.sampled_from(("hold", "true")))
#: Often several values of one time: read again, only the place in the feed tells them from new ones.
crowded = st.lists(
    st.tuples(st.sampled_from((0, 0, 1)), st.sampled_from((A, A, A, B, ALARM)), values | st.none()), max_size=25
)


@settings(max_examples=repeats(100), deadline=None)
@given(
    st.lists(rules() | bare, min_size=1, max_size=4),
    crowded,
    st.lists(st.sampled_from(("", "tick", "crash", "crash")), min_size=25, max_size=25),
)
def test_a_crash_between_an_edge_and_the_cursor_neither_loses_nor_repeats_an_edge(
    drawn_rules: list[Rule], drawn: Any, breaks: list[str]
) -> None:
    """With each entry only what is urgent is stored. `breaks`: before each entry it may be that all is stored, with the
    cursor, or that the process dies, and another one reads the feed again from the cursor on."""
    named = [Rule(**{**_fields(rule), "id": f"r{i}"}) for i, rule in enumerate(drawn_rules)]
    found = events(drawn)
    end = (found[-1][0] if found else START) + 20 * TICK
    expected = {rule.id: _alone(rule, found, end) for rule in named}
    network = started(*named)
    stored = network.take_states()
    told: dict[str, list[tuple[str, int]]] = {rule.id: [] for rule in named}
    _tell(network, told)
    behind: list[FeedEntry] = []
    for i, (at, address, value) in enumerate(found):
        if breaks[i] == "tick":
            stored |= network.take_states()
            behind.clear()
        elif breaks[i] == "crash":
            network = RuleNetwork(named, FOREVER)
            network.restore(stored)
            network.start({}, START)
            for entry in behind:
                network.apply(entry)
        network.due(at)
        if address in (A, B):
            behind.append(_told_by_the_feed(at, address, value))
            network.apply(behind[-1])
        else:
            network.show({address: Sample(0.0, at, BAD) if value is None else Sample(value, at)}, at)
        stored |= network.take_states(is_all=False)
        _tell(network, told)
    network.due(end)
    _tell(network, told)
    assert told == expected


def _told_by_the_feed(at: int, address: str, value: float | None) -> FeedEntry:
    data, quality = f"{address[-1]}:{value or 0:.6f}", f"{address[-1]}:bad" if value is None else ""
    return FeedEntry(f"{next(IDS)}-0", "comsrv:1:m", at, data, quality)


def test_only_what_the_feed_cannot_tell_again_is_stored_with_an_edge() -> None:
    network = started(hot("a"), hot("b"), Rule("w", conditions=(Window(A, "avg", 60_000, ">", 75.0),)))
    network.take_states()
    network.apply(entry(1, _1=70))
    assert network.take_states(is_all=False) == {}, "no edge, and the feed has it"
    network.apply(entry(2, _1=76))
    assert set(network.take_states(is_all=False)) == {"a", "b"}
    network.age(START + 10**15 + 3000, {})
    assert set(network.take_states(is_all=False)) == {"a", "b", "w"}, "the feed does not tell of ages"
    network.apply(entry(3, _1=71))
    assert set(network.take_states()) == {"a", "b", "w"} and network.take_states() == {}


def test_a_mark_that_was_seen_is_not_taken_again() -> None:
    rule = hot("a", on_bad="true")
    network = started(rule)
    read = [entry(1, _1=70), entry(2, q="1:bad"), entry(3, q="1:good")]
    for one in read:
        network.apply(one)
    assert edges(network)[2:] == [("a", "rise", 2), ("a", "fall", 3)]
    again = RuleNetwork([rule], FOREVER)
    again.restore(network.take_states(is_all=False))
    again.start({}, START)
    for one in (*read, entry(4, q="1:bad")):
        again.apply(one)
    assert edges(again) == [("a", "rise", 4)]


def test_programs_of_rules_that_stay_are_taken_over() -> None:
    stays, goes = hot("stays"), hot("goes")
    before = started(stays, goes)
    after = RuleNetwork([stays, hot("goes", priority=3)], former=before.programs)
    assert after.programs["stays"] is before.programs["stays"]
    assert after.programs["goes"] is not before.programs["goes"] and after.programs["goes"].rule.priority == 3


def _fields(rule: Rule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in rule.__struct_fields__}


def _tell(network: RuleNetwork, told: dict[str, list[tuple[str, int]]]) -> None:
    for fired in network.take():
        told[fired.rule.id].append((fired.verdict.edge, fired.verdict.at_ms))


def _alone(rule: Rule, found: list[tuple[int, str, float | None]], end: int) -> list[tuple[str, int]]:
    program = RuleProgram(rule)
    state = program.fresh()
    verdicts = [program.judge(state, {}, START)]
    for at, address, value in found:
        sample = Sample(0.0, at, BAD) if value is None else Sample(value, at)
        verdicts += program.run(state, {address: sample}, at)
    verdicts += program.run(state, {}, end)
    return [(verdict.edge, verdict.at_ms) for verdict in verdicts if verdict.edge]


def test_a_change_costs_the_same_however_many_rules_there_are() -> None:
    """Counted, not timed: what is looked at for one change."""
    for count in (10, 1_000):
        network = started(*(hot(f"r{i}", f"comsrv:{i}:m:1") for i in range(count)))
        network.apply(entry(1, "comsrv:5:m", _1=70))
        checks, judged = network.checks, network.judged
        network.apply(entry(2, "comsrv:5:m", _1=80))
        assert (network.checks - checks, network.judged - judged) == (1, 1)


def test_errors_of_expressions_are_told() -> None:
    network = started(Rule("a", conditions=(Formula("1 / x > 2", {"x": A}),)))
    network.apply(entry(1, _1=0))
    assert "division by zero" in network.errors()["a"]
    network.apply(entry(2, _1=1))
    assert network.errors() == {}


def test_a_change_between_two_values_is_not_judged_for_others() -> None:
    network = started(Rule("a", conditions=(Change(A, before=5.0, after=10.0),)))
    network.apply(entry(1, _1=1))
    judged = network.judged
    for at, value in enumerate((2, 3, 4.9), 2):
        network.apply(entry(at, _1=value))
    assert network.judged == judged
    for at, value in enumerate((5, 10, 7, 10, 5, 7, 10, 5, 10), 5):
        network.apply(entry(at, _1=value))
    assert edges(network) == [("a", "rise", 6), ("a", "fall", 7), ("a", "rise", 13)]


@pytest.mark.parametrize("leaf", [Change(A), Window(A, "avg", 5000, ">", 75.0)])
def test_conditions_with_a_memory_see_every_sample(leaf: Any) -> None:
    network = started(Rule("a", conditions=(leaf,)))
    for at in range(1, 10):
        network.apply(entry(at, _1=70 + at))
    assert edges(network) and network.judged == network.checks


def test_each_input_of_an_expression_is_watched_by_itself() -> None:
    network = started(Rule("a", conditions=(Formula("a > b", {"a": A, "b": B}),)))
    network.apply(entry(1, _1=5))
    network.apply(entry(2, _2=1))
    network.apply(entry(3, _2=5))
    assert edges(network) == [("a", "rise", 2), ("a", "fall", 3)]
