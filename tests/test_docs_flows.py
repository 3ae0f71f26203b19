"""docs/flows.md and the flows of the READMEs are so: files, commands and programs, in order, on a real station."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import station_process
from tests.docs_reader import Reader, blocks, write_file


def test_the_guide_to_flows_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in blocks("docs/flows.md"):
            reader.do(kind, text)
    said = capsys.readouterr().out
    assert "2 nodes completed" in said
    assert said.rstrip().endswith("completed")


@pytest.mark.parametrize(("page", "section"), [("README.md", "Flows"), ("README.zh-CN.md", "流程")])
def test_the_flow_of_the_readme_runs(page: str, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = blocks(page, section)
    for _, text in shown:
        write_file(tmp_path, text)
    flags = ["--import", "desk"] if (tmp_path / "desk.py").exists() else []
    with station_process(tmp_path, *flags) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in shown:
            if kind == "console":
                reader.do(kind, text)
    assert [kind for kind, _ in shown].count("console") == 1
