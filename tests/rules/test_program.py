"""From levels to edges: start-up, delays, cool-down, unknown data, and what a verdict tells."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.rule_strategies import START, A, B
from tradewind.rules.program import CATCH_UP, RuleProgram, RuleState, Sample, Verdict
from tradewind.rules.spec import Change, Compare, Rule, Schedule, Window
from tradewind.rules.verdict import BAD, STALE

HOT = Compare(A, ">", 75.0, "temperature")


class Room:
    """A rule with a clock; `at` is in seconds after START."""

    def __init__(self, *conditions: Any, **fields: Any) -> None:
        self.program = RuleProgram(Rule("r", conditions=conditions or (HOT,), **fields))
        self.state: RuleState = self.program.fresh()

    def give(self, at: float, value: Any, source: str = A, quality: int = 0) -> list[tuple[str, float, str]]:
        ms = START + round(at * 1000)
        return shown(self.program.run(self.state, {source: Sample(value, ms, quality)}, ms))

    def wait(self, at: float) -> list[tuple[str, float, str]]:
        return shown(self.program.run(self.state, {}, START + round(at * 1000)))

    def restart(self) -> None:
        state = self.program.load(self.program.dump(self.state))
        assert state is not None
        self.state = state


def shown(verdicts: list[Verdict]) -> list[tuple[str, float, str]]:
    return [(v.edge, (v.at_ms - START) / 1000, v.cause) for v in verdicts if v.edge]


def test_a_level_makes_an_edge_once() -> None:
    room = Room()
    assert room.give(0, 70.0) == []
    assert room.give(1, 76.0) == [("rise", 1, "sample")]
    assert room.give(2, 77.0) == []
    assert room.give(3, 75.0) == [("fall", 3, "sample")]


def test_the_first_level_is_no_edge_but_a_start() -> None:
    room = Room()
    assert room.give(0, 76.0) == [("rise", 0, "startup")]
    assert room.give(1, 70.0) == [("fall", 1, "sample")]
    assert room.give(2, 76.0) == [("rise", 2, "sample")]


def test_a_delay_makes_the_first_level_no_edge_either() -> None:
    room = Room(for_ms=60_000)
    assert room.give(0, 76.0) == []
    assert room.wait(100) == [("rise", 60, "startup")]
    room = Room(for_ms=60_000)
    room.give(0, 76.0)
    room.give(10, 70.0)
    room.give(20, 76.0)
    assert room.wait(100) == [("rise", 80, "timer")]


def test_an_old_value_on_the_board_has_lasted_already() -> None:
    room = Room(for_ms=60_000)
    verdict = room.program.judge(room.state, {A: Sample(76.0, START)}, START + 3_600_000)
    assert (verdict.edge, verdict.cause, verdict.at_ms) == ("rise", "startup", START + 60_000)


def test_for_duration_fires_at_its_deadline_whatever_is_restarted() -> None:
    room = Room(for_ms=60_000)
    room.give(-1, 70.0)
    room.give(0, 76.0)
    assert room.wait(30) == []
    room.restart()
    assert room.state.due_ms == START + 60_000
    assert room.wait(59.999) == []
    assert room.wait(60) == [("rise", 60, "timer")]


def test_a_sample_behind_the_deadline_does_not_undo_the_edge() -> None:
    """After an outage the feed brings both at once: it was true for so long, then it was not."""
    room = Room(for_ms=60_000)
    room.give(-1, 70.0)
    room.give(0, 76.0)
    assert room.give(61, 70.0) == [("rise", 60, "timer"), ("fall", 61, "sample")]
    room.give(100, 76.0)
    assert room.give(160, 70.0) == [("rise", 160, "timer"), ("fall", 160, "sample")]
    room.give(200, 76.0)
    assert room.give(259.999, 70.0) == []


def test_time_that_is_not_known_does_not_count() -> None:
    room = Room(for_ms=60_000)
    room.give(-1, 70.0)
    room.give(0, 76.0)
    assert room.give(20, 0.0, quality=BAD) == []
    room.restart()
    assert room.state.due_ms == 0
    assert room.wait(1000) == []
    assert room.give(1020, 76.0) == []
    assert room.state.due_ms == START + 1_060_000
    assert room.wait(2000) == [("rise", 1060, "timer")]


def test_unknown_neither_raises_nor_clears() -> None:
    room = Room(off_delay_ms=10_000)
    room.give(0, 70.0)
    room.give(1, 76.0)
    assert room.give(2, 0.0, quality=BAD) == [] and room.state.is_active
    assert room.give(3, 70.0) == []
    assert room.give(8, 70.0, quality=STALE) == []
    assert room.wait(500) == []
    assert room.give(501, 70.0) == []
    assert room.wait(600) == [("fall", 506, "timer")]


def test_stale_at_the_deadline_is_too_late() -> None:
    for at, expected in ((60, [("rise", 60, "timer")]), (59.999, [])):
        room = Room(for_ms=60_000)
        room.give(-1, 70.0)
        room.give(0, 76.0)
        ms = START + round(at * 1000)
        verdicts = room.program.run(room.state, {A: Sample(76.0, START, STALE)}, ms)
        assert shown(verdicts) == expected


@pytest.mark.parametrize(("on_bad", "edge"), [("true", "rise"), ("false", "")])
def test_bad_data_may_be_made_to_decide(on_bad: str, edge: str) -> None:
    room = Room(on_bad=on_bad)
    room.give(0, 70.0)
    assert room.give(1, 0.0, quality=BAD) == ([("rise", 1, "bad")] if edge else [])
    room.give(2, 76.0)
    assert room.state.is_active
    assert room.give(3, 0.0, quality=BAD) == ([] if edge else [("fall", 3, "bad")])


def test_missing_data_is_bad_from_the_start() -> None:
    room = Room(on_bad="true")
    assert room.program.judge(room.state, {}, START).cause == "bad" and room.state.is_active
    room = Room(on_bad="false")
    assert room.program.judge(room.state, {}, START).is_changed and not room.state.is_active
    assert room.give(1, 76.0) == [("rise", 1, "sample")], "it was false before, because on_bad says so"


def test_a_cool_down_delays_and_loses_nothing() -> None:
    room = Room(cooldown_ms=60_000)
    room.give(0, 70.0)
    assert room.give(1, 76.0) == [("rise", 1, "sample")]
    assert room.give(2, 70.0) == [("fall", 2, "sample")]
    assert room.give(3, 76.0) == []
    assert room.give(4, 70.0) == []
    assert room.give(5, 76.0) == []
    assert room.wait(100) == [("rise", 61, "timer")]


def test_late_samples_change_nothing_and_the_same_time_takes_the_place() -> None:
    room = Room()
    room.give(5, 70.0)
    assert room.give(4, 99.0) == []
    assert room.give(5, 99.0) == [("rise", 5, "sample")]
    assert room.state.values == [99.0]


def test_another_fitting_change_is_an_edge_again() -> None:
    room = Room(Change(A))
    room.give(0, 1.0)
    assert room.give(1, 2.0) == [("rise", 1, "sample")]
    assert room.give(2, 2.0) == []
    assert room.give(3, 3.0) == [("rise", 3, "sample")]
    room = Room(Change(A), for_ms=10_000)
    room.give(0, 1.0)
    room.give(1, 2.0)
    assert room.give(20, 3.0) == [("rise", 11, "timer"), ("fall", 20, "sample")]
    assert room.give(25, 4.0) == []
    assert room.wait(100) == [("rise", 35, "timer")]
    room = Room(Change(A), Compare(B, ">", 0.0), logic="any")
    room.give(0, 1.0, B)
    room.give(0, 1.0)
    assert room.give(1, 2.0) == []  # true for another reason all the while


def test_a_schedule_goes_by_itself() -> None:
    room = Room(Schedule("30 * * * *", 600_000), HOT)
    assert room.give(0, 76.0) == []
    edges = [("rise", 1800), ("fall", 2400), ("rise", 5400), ("fall", 6000)]
    assert room.wait(7200) == [(edge, at, "timer") for edge, at in edges]


def test_a_long_outage_is_not_made_up_for_without_end() -> None:
    room = Room(Schedule("* * * * *", 30_000))
    room.program.judge(room.state, {}, START)
    edges = room.wait(30 * 86_400 + 45)
    assert len(edges) <= CATCH_UP + 1
    assert not room.state.is_active and room.state.due_ms == START + (30 * 86_400 + 60) * 1000


def test_a_verdict_tells_what_the_history_needs() -> None:
    room = Room(HOT, Compare(B, "<", 1.0), Compare(A, "<", 100.0, "temperature"))
    room.give(0, 70.0)
    room.give(0, 0.5, B)
    ms = START + 1000
    [verdict] = room.program.run(room.state, {A: Sample(78.5, ms)}, ms)
    assert verdict.conditions_result == {
        "temperature": {"matched": True, "actual_value": 78.5},
        B: {"matched": True, "actual_value": 0.5},
        "temperature#2": {"matched": True, "actual_value": 78.5},
    }
    assert (verdict.source, verdict.field, verdict.value) == (A, "temperature", 78.5)


def test_conditions_results_are_made_only_for_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    calls: list[int] = []
    made = RuleProgram.results
    monkeypatch.setattr(RuleProgram, "results", lambda *args: calls.append(1) or made(*args))
    for i in range(100):
        room.give(i, 70.0 + i % 3)
    assert calls == []
    room.give(100, 76.0)
    assert calls == [1]


def test_the_state_is_stored_only_when_that_matters() -> None:
    room = Room()
    ms = START
    changed = []
    for value in (70.0, 71.0, 74.0, 76.0, 80.0, 76.0, 70.0):
        ms += 1000
        changed += [verdict.is_changed for verdict in room.program.run(room.state, {A: Sample(value, ms)}, ms)] or [
            False
        ]
    assert changed == [True, False, False, True, False, False, True]


def test_a_state_is_small_and_belongs_to_its_conditions() -> None:
    room = Room()
    room.give(0, 76.0)
    room.state.note = {"fired": [1, 2]}
    data = room.program.dump(room.state)
    assert len(data) < 80
    again = room.program.load(data)
    assert again is not None and again.is_active and again.note == {"fired": [1, 2]}
    rule = room.program.rule
    other = RuleProgram(Rule("r", conditions=(Compare(A, ">", 76.0, "temperature"),)))
    slower = RuleProgram(Rule("r", conditions=rule.conditions, for_ms=5, name="x", priority=3))
    assert other.load(data) is None
    assert slower.load(data) is not None


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", b"\x93\x01\x02\x03", b"\x01"])
def test_what_is_no_state_is_not_taken_back(data: bytes) -> None:
    assert Room().program.load(data) is None
    assert Room(Window(A, "avg", 1000, ">", 1.0)).program.load(data) is None
