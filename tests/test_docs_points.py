"""docs/troubleshooting.md, the points of api.md and of the READMEs are so: files and commands on a real station."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import station_process
from tests.docs_reader import ROOT, Reader, blocks
from tradewind.points import channel_runner
from tradewind.points.command_record import Result


def test_the_plant_in_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in blocks("docs/troubleshooting.md"):
            reader.do(kind, text)


def test_the_points_of_the_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in blocks("docs/api.md", "Points"):
            reader.do(kind, text)


def test_every_bad_end_of_a_command_is_explained() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").partition("| result |")[2]
    told = {word for row in re.findall(r"^\| (`[^|]+) \|", text, re.M) for word in re.findall(r"\w+", row)}
    assert {result.value for result in Result} - {"", "done", "verified", "cancelled"} <= told


def test_the_words_of_the_log_are_those_of_the_code() -> None:
    text = (
        (ROOT / "docs" / "troubleshooting.md")
        .read_text(encoding="utf-8")
        .partition("| the log | ")[2]
        .partition("\n")[0]
    )
    source = Path(channel_runner.__file__).read_text(encoding="utf-8")
    words = re.findall(r"`([^`]+)`", text)
    assert len(words) == 4
    assert all(f'"{word}"' in source for word in words)


@pytest.mark.parametrize(
    ("page", "section"), [("README.md", "Points, models, commands"), ("README.zh-CN.md", "点位、模型、命令")]
)
def test_the_plant_of_the_readme(page: str, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = blocks(page, section)
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in shown:
            reader.do(kind, text)
    assert [kind for kind, _ in shown] == ["yaml", "yaml", "console"]
