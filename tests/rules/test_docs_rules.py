"""docs/rules.md is so: its files and commands on a real station, its tables against the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from tests.cli.conftest import station_process
from tests.docs_reader import ROOT, Reader, blocks
from tradewind.api.rule_room import STATES
from tradewind.models.fields import Report
from tradewind.rules.action_reading import MAX_ACTIONS, ActionReader
from tradewind.rules.condition_reading import MAX_CONDITIONS, MAX_DEPTH, ConditionReader
from tradewind.rules.document import RULE_FIELDS
from tradewind.rules.regex import MAX_PATTERN
from tradewind.rules.spec import FUNCTIONS, OPERATORS, Action, Condition, Group, Leaf
from tradewind.rules.template import COMMON

TEXT = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")


def rows(section: str) -> dict[str, str]:
    """The first cell of each row of the section's tables, its words, and the rest of the row."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return {
        word: rest
        for cell, rest in re.findall(r"^\| (`[^|]*) \|(.*)$", text, re.M)
        for word in re.findall(r"\w+", cell)
    }


def test_the_page_on_a_station(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in blocks("docs/rules.md"):
            if kind == "csv":  # the first line names the file and is not of it
                name, _, rows_of_it = text.partition("\n")
                (tmp_path / name.removeprefix("# ")).write_text(rows_of_it)
            else:
                reader.do(kind, text)


@pytest.mark.parametrize(
    ("page", "sections"),
    [
        ("README.md", ("Points, models, commands", "Rules, alarms, notifications")),
        ("README.zh-CN.md", ("点位、模型、命令", "规则、告警、通知")),
    ],
)
def test_the_rule_of_the_readme(
    page: str, sections: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, judged = (blocks(page, section) for section in sections)
    assert [kind for kind, _ in judged] == ["yaml", "console"]
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in (*plant, *judged):
            reader.do(kind, text)


def test_every_field_of_a_rule_is_described() -> None:
    assert set(rows("The document")) - {"also"} == set(RULE_FIELDS)
    assert f"at most {MAX_CONDITIONS}, groups nested up to {MAX_DEPTH} deep" in rows("The document")["conditions"]
    assert f"at most {MAX_ACTIONS}" in rows("The document")["actions"]


def test_every_condition_is_described_with_its_fields() -> None:
    told, known = rows("Conditions"), ConditionReader(Report(), 0.0)._kinds
    assert set(told) - {"type"} == {*known, "group", "not"} and len(get_args(Leaf)) == len(known)
    assert Group in get_args(Condition)
    for kind, (fields, _) in known.items():
        missing = [each for each in fields if each not in ("hysteresis", "deadband") and f"`{each}`" not in told[kind]]
        assert not missing, kind
    assert all(f"`{operator}`" in told["compare"] for operator in OPERATORS)
    assert all(f"`{function}`" in told["window"] for function in FUNCTIONS)
    assert f"may have {MAX_PATTERN} characters" in TEXT


def test_every_action_is_described_with_its_parameters_and_every_name_of_templates() -> None:
    told, known = rows("Actions"), ActionReader(Report(), (), latched=False)._kinds
    assert set(told) - {"type"} == set(known) and len(get_args(Action)) == len(known)
    for kind, (fields, _) in known.items():
        assert [field for field in fields if f"`{field}`" not in told[kind]] == [], kind
    assert {name for name in COMMON if f"{{{name}}}" not in TEXT} == set()


def test_every_state_is_described() -> None:
    assert set(rows("What it did")) == set(STATES)
