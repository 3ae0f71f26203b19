"""Rules against a slow oracle, and what must hold whatever happens."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules import oracle
from tests.rules.rule_strategies import START, TICK, A, compares, events, ranges, rules, steps
from tests.soak import repeats
from tradewind.rules.program import RuleProgram, RuleState, Sample, Verdict
from tradewind.rules.spec import Compare, Rule
from tradewind.rules.verdict import BAD

Events = list[tuple[int, str, float | None]]


def sample(at: int, value: float | None) -> Sample:
    return Sample(0.0, at, BAD) if value is None else Sample(value, at)


class Player:
    """Plays events to a rule; `restart` goes on from what was stored last, as a new process does."""

    def __init__(self, rule: Rule) -> None:
        self.program = RuleProgram(rule)
        self.state: RuleState = self.program.fresh()
        self.stored: bytes | None = None
        self.edges: list[tuple[str, int, list[Any]]] = []
        self._note([self.program.judge(self.state, {}, START)])

    def _note(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            if verdict.is_changed:
                self.stored = self.program.dump(self.state)
            if verdict.edge:
                levels = [found["matched"] for found in verdict.conditions_result.values()]
                self.edges.append((verdict.edge, verdict.at_ms, levels))

    def play(self, at: int, address: str, value: float | None) -> None:
        self._note(self.program.run(self.state, {address: sample(at, value)}, at))

    def wait(self, until: int) -> None:
        self._note(self.program.run(self.state, {}, until))

    def restart(self) -> None:
        if self.stored is None:
            self.state = self.program.fresh()
            self.program.judge(self.state, {}, START)
            return
        state = self.program.load(self.stored)
        assert state is not None
        self.state = state


@settings(max_examples=repeats(120), deadline=None)
@given(rules(), steps)
def test_edges_are_those_of_the_oracle(rule: Rule, drawn: Any) -> None:
    found = events(drawn)
    end = (found[-1][0] if found else START) + 20 * TICK
    player = Player(rule)
    for event in found:
        player.play(*event)
    player.wait(end)
    assert player.edges == oracle.edges(rule, found, START, end, TICK)


@settings(max_examples=repeats(100), deadline=None)
@given(rules(), steps, st.sets(st.integers(0, 25)))
def test_a_restart_at_any_moment_changes_nothing(rule: Rule, drawn: Any, restarts: set[int]) -> None:
    found = events(drawn)
    end = (found[-1][0] if found else START) + 20 * TICK
    steady, broken = Player(rule), Player(rule)
    for i, event in enumerate(found):
        if i in restarts:
            broken.restart()
        steady.play(*event)
        broken.play(*event)
    broken.restart()
    steady.wait(end)
    broken.wait(end)
    assert [edge[:2] for edge in broken.edges] == [edge[:2] for edge in steady.edges]


@settings(max_examples=repeats(80), deadline=None)
@given(rules(compares | ranges), steps, st.lists(st.integers(0, 25), max_size=10))
def test_a_repeated_sample_never_restarts_a_timer(rule: Rule, drawn: Any, repeated: list[int]) -> None:
    """Neither the very same one nor the same value again later, as a channel refreshes it."""
    found = events(drawn)
    end = (found[-1][0] if found else START) + 20 * TICK
    once, often = Player(rule), Player(rule)
    shown: dict[str, float | None] = {}
    for i, (at, address, value) in enumerate(found):
        once.play(at, address, value)
        often.play(at, address, value)
        shown[address] = value
        for _ in range(repeated.count(i)):
            often.play(at, address, value)
            for other, last in shown.items():
                often.play(at, other, last)
    once.wait(end)
    for at in range(found[-1][0] if found else START, end, TICK):
        for address, value in shown.items():
            often.play(at, address, value)
    often.wait(end)
    assert often.edges == once.edges


@settings(max_examples=repeats(50), deadline=None)
@given(
    st.sampled_from((">", ">=", "<", "<=")),
    st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=60),
    st.sampled_from((0, 500)),
)
def test_oscillation_within_the_deadband_is_one_rise(operator: str, noise: list[float], for_ms: int) -> None:
    sign = 1 if operator[0] == ">" else -1
    rule = Rule("r", conditions=(Compare(A, operator, 75.0, hysteresis=1.0),), for_ms=for_ms)
    player = Player(rule)
    player.play(START, A, 75.0 - 5 * sign)
    for i, offset in enumerate([0.1 * sign, *noise], 1):
        player.play(START + i * 100, A, 75.0 + offset)
    player.wait(START + 100_000)
    assert [edge[0] for edge in player.edges] == ["rise"]


@settings(max_examples=repeats(80), deadline=None)
@given(rules(on_bad=("hold",)), steps)
def test_unknown_never_causes_an_edge_under_hold(rule: Rule, drawn: Any) -> None:
    player = Player(rule)
    for at, address, value in events(drawn):
        # Timers first: only what the sample itself does is looked at.
        player.wait(at)
        before = len(player.edges)
        player.play(at, address, value)
        if player.program.level(player.state) is None:
            assert len(player.edges) == before
