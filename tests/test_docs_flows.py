"""docs/flows.md and the flows of the READMEs are so: files, commands and programs, in order, on a real station."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import StationProcess, clean_env, run_process, station_process
from tradewind.cli.main import main
from tradewind.redis.embedded import socket_of

ROOT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_EXIT = re.compile(r"\s+# exit (\d+)$")


def blocks(page: str, section: str = "") -> list[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return _FENCE.findall(text.partition(f"\n## {section}\n")[2].partition("\n## ")[0] if section else text)


def steps(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Each `$ command` of a console block, the exit code that it is said to have, and the lines shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        found = _EXIT.search(command)
        yield command[: found.start()] if found else command, int(found[1]) if found else 0, shown


def first_missing(shown: list[str], out: str) -> str | None:
    """The first line that does not stand in the output after the ones before it; `…` stands for anything in a line."""
    at = 0
    for line in shown:
        found = re.compile(r"[^\n]*".join(map(re.escape, line.split("…")))).search(out, at)
        if found is None:
            return line
        at = found.end()
    return None


def write_file(folder: Path, text: str) -> bool:
    """A block whose first line is a comment with a file's name is that file."""
    name = re.match(r"# ([\w-]+\.\w+)\n", text)
    if name:
        (folder / name[1]).write_text(text, encoding="utf-8")
    return name is not None


class Reader:
    """Does what a page says, on a station of its own."""

    def __init__(self, station: StationProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        self.station = station
        monkeypatch.chdir(station.folder)
        monkeypatch.setenv("TRADEWIND_URL", station.url)
        monkeypatch.setenv("COLUMNS", "200")

    def there(self, text: str) -> str:
        """With the addresses of the station instead of the default ones."""
        text = text.replace("http://127.0.0.1:8400", self.station.url).replace("localhost:8400", self.station.url)
        return text.replace("redis://127.0.0.1:6379", f"unix://{socket_of(self.station.data)}")

    def do(self, kind: str, text: str) -> None:
        if write_file(self.station.folder, text):
            return
        if kind == "python" and self.there(text) != text:
            exec(compile(self.there(text), "a page", "exec"), {"__name__": "page"})
        elif kind == "console":
            for command, code, shown in steps(text):
                self.check(command, code, shown)

    def check(self, command: str, code: int, shown: list[str]) -> None:
        """What is read from the record may come a moment later."""
        end = time.monotonic() + (10 if re.search(r"\b(logs|signals|why)\b", command) else 0)
        while True:
            got, out = self.run(command)
            missing = first_missing(shown, out)
            if (got == code and missing is None) or time.monotonic() > end:
                break
            time.sleep(0.1)
        assert got == code, f"$ {command}\n{out}"
        assert missing is None, f"$ {command}\nis not shown: {missing}\n{out}"

    def run(self, command: str) -> tuple[int, str]:
        words = shlex.split(self.there(command), comments=True)
        if words[0] != "tradewind":
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=clean_env())
            return done.returncode, done.stdout + done.stderr
        if "--once" in words:  # a station of its own, as a process
            ran = run_process(*words[1:], cwd=self.station.folder)
            return ran.code, ran.err + ran.out
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            got = main(words[1:])
        return got, out.getvalue()


def test_the_guide_to_flows_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with station_process(tmp_path) as station:
        reader = Reader(station, monkeypatch)
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
        reader = Reader(station, monkeypatch)
        for kind, text in shown:
            if kind == "console":
                reader.do(kind, text)
    assert [kind for kind, _ in shown].count("console") == 1
