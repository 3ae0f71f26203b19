"""Texts and values of actions."""

from __future__ import annotations

import pytest

from tradewind.errors import Invalid
from tradewind.models.fields import Report
from tradewind.rules.spec import Compare, Rule
from tradewind.rules.template import check, context, fill, fill_text, names_for, number_for
from tradewind.rules.verdict import Verdict

A = "comsrv:1001:m:10001"
RULE = Rule("r1", name="Hot", priority=5, conditions=(Compare(A, ">", 75.0, "temperature"),))
VERDICT = Verdict(
    "rise", True, "sample", 1_704_103_200_000, {"temperature": {"matched": True, "actual_value": 78.5}}, A,
    "temperature", 78.5,
)  # fmt: skip
NAMES = context(RULE, VERDICT)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{rule.name}: {value} > {threshold}", "Hot: 78.5 > 75"),
        ("{value:.2f} {value:g} {temperature:.0f}", "78.50 78.5 78"),
        ("{field} {source} {edge} {cause}", f"temperature {A} rise sample"),
        ("{time}", "2024-01-01T10:00:00.000Z"),
        ("{{{value}}}", "{78.5}"),
        ("plain", "plain"),
    ],
)
def test_texts_are_filled(text: str, shown: str) -> None:
    assert fill_text(text, NAMES) == shown
    report = Report()
    check(text, names_for({"temperature"}), "x", report)
    assert report.problems == []


def test_values_are_filled_all_the_way_down() -> None:
    given = {"a": ["=value * 2", {"b": "{rule.id}"}], "n": 3, "t": True, "z": None}
    assert fill(given, NAMES) == {"a": [157.0, {"b": "r1"}], "n": 3, "t": True, "z": None}


def test_a_control_value_is_a_number_or_nothing_is_sent() -> None:
    assert number_for(2.0, NAMES) == 2.0
    assert number_for("=temperature > threshold", NAMES) == 1.0
    with pytest.raises(Invalid):
        number_for("='much'", NAMES)
    with pytest.raises(Invalid):  # what is not known starts nothing
        number_for("=value * 2", {**NAMES, "value": None})
    assert fill_text("{value}", {**NAMES, "value": None}) == "unknown"


@pytest.mark.parametrize("text", ["{valu}", "{", "a } b", "{value:>900000000}", "{value.real}", "=1 +", "=open", "{}"])
def test_what_could_not_be_filled_is_refused(text: str) -> None:
    report = Report()
    check({"a": [text]}, names_for(()), "x", report)
    assert [problem.path for problem in report.problems] == ["x.a[0]"]
