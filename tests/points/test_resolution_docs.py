"""docs/seed-resolutions.md names every place of seed 001, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TEXT = (TESTS.parent / "docs" / "seed-resolutions.md").read_text(encoding="utf-8")
PLACES = 44


def test_every_place_of_the_shared_list_is_there() -> None:
    text = TEXT.partition("## Seed 001 in the shared list")[2].partition("\n## ")[0].partition("\n|")
    found = {int(number) for number in re.findall(r"\bB-(\d+)", text[2])}
    for first, last in re.findall(r"\bB-(\d+) to B-(\d+)", text[2]):
        found |= set(range(int(first), int(last) + 1))
    assert found == set(range(1, PLACES + 1))


def test_ids_are_used_once() -> None:
    ids = re.findall(r"^\| ([TFP]-\d+) \|", TEXT, re.M)
    assert len(ids) == len(set(ids))
    assert {"T-1", "F-1", "P-1"} <= set(ids)


def test_the_named_tests_exist() -> None:
    named = re.findall(r"`((?:\w+/)?test_\w+\.py)(?:::(\w+))?`", TEXT)
    assert len(named) > 40
    for file, name in named:
        text = (TESTS / file).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text, f"{file}::{name}"
