"""Reads a page of the documentation as a person would: writes its files, types its commands, compares what is shown."""

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

from tests.cli.conftest import StationProcess, clean_env, run_process
from tradewind.cli.main import main
from tradewind.redis.embedded import socket_of

ROOT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_EXIT = re.compile(r"\s+# exit (\d+)$")
_NAME = re.compile(r"# ([\w-]+(?:/[\w-]+)*\.\w+)\n")
#: Commands that only look: what they show may come a moment later.
_LOOKS = re.compile(r"\b(history|stats|logs|signals|why|status|get|show|list|cycles|redis-cli)\b")
PATIENCE_S = 20.0


def blocks(page: str, section: str = "") -> list[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return _FENCE.findall(text.partition(f"\n## {section}\n")[2].partition("\n## ")[0] if section else text)


def steps(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Each `$ command` of a console block, the exit code that it is said to have, and the lines shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *shown = part.rstrip("\n").replace("\\\n", " ").split("\n")
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
    name = _NAME.match(text)
    if name:
        (folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
        (folder / name[1]).write_text(text, encoding="utf-8")
    return name is not None


class Reader:
    """Does what a page says, on a station of its own; `enter` says which."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, station: StationProcess | None = None) -> None:
        self._monkeypatch = monkeypatch
        self.station = station
        monkeypatch.setenv("COLUMNS", "200")
        if station is not None:
            self.enter(station)

    def enter(self, station: StationProcess) -> None:
        self.station = station
        self._monkeypatch.chdir(station.folder)
        self._monkeypatch.setenv("TRADEWIND_URL", station.url)

    def there(self, text: str) -> str:
        """With the addresses of the station instead of the default ones."""
        if self.station is None:
            return text
        text = text.replace("http://127.0.0.1:8400", self.station.url).replace("localhost:8400", self.station.url)
        if "redis://127.0.0.1:6379" in text:
            text = text.replace("redis://127.0.0.1:6379", f"unix://{socket_of(self.station.data)}")
        return text.replace("tradewind-data/", f"{self.station.data}/")

    def do(self, kind: str, text: str) -> None:
        if write_file(Path.cwd(), text):
            return
        if kind == "python" and self.there(text) != text:
            exec(compile(self.there(text), "a page", "exec"), {"__name__": "page"})
        elif kind == "console":
            for command, code, shown in steps(text):
                self.check(command, code, shown)

    def check(self, command: str, code: int, shown: list[str]) -> None:
        end = time.monotonic() + (PATIENCE_S if _LOOKS.search(command) else 0)
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
        if words[0] == "cd":
            self._monkeypatch.chdir(words[1])
            return 0, ""
        if words[0] != "tradewind":
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=clean_env())
            return done.returncode, done.stdout + done.stderr
        if "--once" in words:  # a station of its own, as a process
            ran = run_process(*words[1:], cwd=Path.cwd())
            return ran.code, ran.err + ran.out
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            got = main(words[1:])
        return got, out.getvalue()
