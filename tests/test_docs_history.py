"""docs/history.md and the history of the READMEs are so: files and commands on a real station."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import station_process
from tests.docs_reader import ROOT, Reader, blocks
from tradewind.history.question import FILLS
from tradewind.history.sink import AGGREGATES


def test_the_walk_through_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in blocks("docs/history.md"):
            reader.do(kind, text)


def test_every_aggregate_and_fill_is_told() -> None:
    text = (ROOT / "docs" / "history.md").read_text(encoding="utf-8").partition("\n## Questions\n")[2]
    told = set(re.findall(r"`(\w+)`", text))
    assert told >= set(AGGREGATES) | set(FILLS)


@pytest.mark.parametrize(("page", "section"), [("README.md", "History"), ("README.zh-CN.md", "历史")])
def test_the_history_of_the_readme(page: str, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = blocks(page, section)
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in shown:
            reader.do(kind, text)
    assert [kind for kind, _ in shown] == ["console"]
