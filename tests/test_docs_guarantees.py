"""docs/guarantees.md: every promise names tests, and each of them exists."""

from __future__ import annotations

import re
from functools import cache

from tests.process import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "| promise |" not in line]


@cache
def names_in(file: str) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", (ROOT / file).read_text(), re.M))


def test_every_promise_names_a_test_that_exists() -> None:
    assert len(ROWS) > 20
    missing: list[str] = []
    for row in ROWS:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        found = re.findall(r"`([^`:]*)::(test_\w+)[^`]*`", cells[-1])
        if len(cells) != 3 or not found:
            missing.append(f"no test: {row[:80]}")
        file = ""
        for named, test in found:
            file = named.strip("…") or file
            if not (ROOT / file).is_file() or test not in names_in(file):
                missing.append(f"{file}::{test}")
    assert not missing


def test_both_readmes_lead_to_this_page_and_promise_as_much() -> None:
    english, chinese = (
        (ROOT / name).read_text().split(heading, 1)[1].split("\n## ", 1)[0]
        for name, heading in (("README.md", "## What it promises"), ("README.zh-CN.md", "## 承诺"))
    )
    assert "(docs/guarantees.md)" in english and "(docs/guarantees.md)" in chinese
    assert 0 <= english.count("\n- ") - chinese.count("\n- ") <= 3, "a few rows are joined in Chinese"
