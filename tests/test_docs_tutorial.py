"""docs/tutorial-microgrid.md is so: every file and every command, in order, from an empty folder on."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import station_process
from tests.docs_reader import Reader, blocks


class Beginner(Reader):
    """Starts the station where the page says `tradewind up`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        super().__init__(monkeypatch)
        self._stack = stack

    def run(self, command: str) -> tuple[int, str]:
        if shlex.split(command, comments=True)[:2] == ["tradewind", "up"]:
            self.enter(self._stack.enter_context(station_process(Path.cwd())))
            return 0, ""
        return super().run(command)


def test_the_micro_grid_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        reader = Beginner(monkeypatch, stack)
        for kind, text in blocks("docs/tutorial-microgrid.md"):
            reader.do(kind, text)
        assert reader.station is not None
    assert (tmp_path / "grid" / "flows" / "dispatch.yaml").exists()
