"""Errors in words."""

from __future__ import annotations

import re
from pathlib import Path

from tradewind.errors import error_text

SOURCE = Path(__file__).parents[1] / "src" / "tradewind"


def test_an_error_that_says_nothing_is_told_by_its_kind() -> None:
    assert error_text(TimeoutError()) == "TimeoutError"
    assert error_text(ValueError("no")) == "no"


def test_no_log_line_takes_an_error_that_may_be_empty() -> None:
    bare = re.compile(r"log\.\w+\([^\n]*error=str\(error")
    assert [
        str(path) for path in SOURCE.rglob("*.py") if "sqlite_writer" not in path.name and bare.search(path.read_text())
    ] == []
