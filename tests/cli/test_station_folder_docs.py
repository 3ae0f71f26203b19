"""docs/station-folder.md: its folder is whole and valid, its problems and its difference are those that are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tradewind.cli.apply_plan import NOUNS, read_wanted
from tradewind.points.difference import diff

PAGE = Path(__file__).resolve().parents[2] / "docs" / "station-folder.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```(?:yaml|csv)\n# (\S+)\n(.*?)^```$", TEXT, re.M | re.S))
TOLD = re.findall(r"^```text\n(.*?)^```$", TEXT, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        if not name.startswith("bad/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    return tmp_path


def test_the_folder_of_the_page_is_valid(folder: Path, cli: Cli) -> None:
    wanted = read_wanted(folder)
    assert (wanted.problems, wanted.warnings) == ([], [])
    assert {kind: list(found) for kind, found in wanted.documents.items() if found} == {
        "channels": ["1001"],
        "models": ["pump"],
        "flows": ["enough"],
    }
    linted = cli("flow", "lint", str(folder / "flows" / "enough.yaml"))
    assert linted.code == 0, linted.out


def test_the_problems_of_the_page_are_told(tmp_path: Path) -> None:
    (tmp_path / "channels.yaml").write_text(FILES["bad/channels.yaml"])
    found = {problem.path: problem.hint for problem in read_wanted(tmp_path).problems}
    for line in TOLD[0].splitlines():
        path, _, hint = line.partition(" ")
        assert path in found, found
        assert hint.strip() in found[path]


def test_the_difference_of_the_page_is_shown(folder: Path) -> None:
    before = read_wanted(folder)
    for name, old, new in (("1001/telemetry.csv", "l/s,30", "l/s,60"), ("models.yaml", "max: 80", "max: 60")):
        (folder / name).write_text((folder / name).read_text().replace(old, new))
    after = read_wanted(folder)
    shown = [
        line for kind, noun in NOUNS.items() for line in diff(before.documents[kind], after.documents[kind]).lines(noun)
    ]
    assert shown == TOLD[1].splitlines()[:-1]
