"""Every command that takes a path, with paths that no sane person gives: it ends at once and says what is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.conftest import Canned, Cli, Ran
from tradewind import process, sql
from tradewind.cli import examine, flow_once, history_file
from tradewind.cli.main import app
from tradewind.documents import reading, writing

LIMIT_S = 30
#: Imported before a test becomes nobody, who may not read everything, and before one is timed.
NEEDED = (examine, flow_once, process, sql)
#: Beyond what the process has: a document may be 64 MB, and its parser makes something of it.
MOST_MB = 300
NOWHERE = "http://127.0.0.1:1"

#: How to give a file to read to each command that takes one: `@` is the file.
READS = {
    "channel put files": ["channel", "put", "@"],
    "config show --config": ["config", "show", "--config", "@"],
    "doctor --config": ["doctor", "--config", "@"],
    "flow lint files": ["flow", "lint", "@"],
    "flow register files": ["flow", "register", "@"],
    "flow run --config": ["flow", "run", "{flow}", "--once", "--config", "@"],
    "flow run --with": ["flow", "run", "{flow}", "--once", "--with", "@"],
    "flow run target": ["flow", "run", "@", "--once"],
    "history import file": ["history", "import", "@"],
    "history policy --set": ["history", "policy", "--set", "@"],
    "model put files": ["model", "put", "@"],
    "notify set file": ["notify", "set", "@"],
    "rule backtest --csv": ["rule", "backtest", "x", "--csv", "@"],
    "rule backtest --file": ["rule", "backtest", "--file", "@", "--from", "1h"],
    "rule create files": ["rule", "create", "@"],
    "rule test --file": ["rule", "test", "--file", "@"],
    "rule update files": ["rule", "update", "@"],
    "run --config": ["run", "api", "--config", "@"],
    "task submit --file": ["task", "submit", "--file", "@"],
    "up --config": ["up", "--config", "@"],
}
#: Folders that are read or used.
FOLDERS = {
    "apply --file": ["apply", "-f", "@"],
    "doctor --data-dir": ["doctor", "--data-dir", "@"],
    "run --data-dir": ["run", "api", "--data-dir", "@"],
    "up --data-dir": ["up", "--data-dir", "@"],
}
WRITES = {
    "alarm export --output": ["alarm", "export", "-o", "@"],
    "config init file": ["config", "init", "@"],
    "history export --output": ["history", "export", "comsrv:1:m:1", "-o", "@"],
    "init folder": ["init", "@"],
}
MODULES = {
    "flow lint --import": ["flow", "lint", "{flow}", "--import", "@"],
    "flow run --import": ["flow", "run", "{flow}", "--once", "--import", "@"],
    "run --import": ["run", "api", "--import", "@"],
    "up --import": ["up", "--import", "@"],
}
#: Their help speaks of files, but they take none.
NO_PATHS = {"flow register --id", "history export --format", "history export --time", "rule backtest --to"}
#: A data folder that is not there is made.
MADE = ("missing.yaml", "nothing.yaml", os.fsdecode(b"\xff\xfe.yaml"))
STDIN = ["channel put files", "flow lint files", "flow register files", "history import file", "history policy --set"]
STDIN += ["model put files", "notify set file", "rule backtest --csv", "rule create files", "rule update files"]
STDIN += ["task submit --file"]


def path_parameters() -> set[str]:
    """Of all commands: those whose name, metavar or help speaks of a file, folder, path or module."""
    found = set()
    speaks = re.compile(r"\b(file|files|folder|dir|path|output|csv|config|data_dir|module)\b|FILE|DIR\b|MODULE", re.I)

    def walk(command: Any, names: list[str]) -> None:
        for name, below in getattr(command, "commands", {}).items():
            walk(below, [*names, name])
        for each in () if hasattr(command, "commands") else command.params:
            said = f"{each.name} {each.metavar or ''} {getattr(each, 'help', None) or ''}"
            if speaks.search(said) and not getattr(each, "is_flag", False):
                option = next((opt for opt in each.opts if opt.startswith("--")), each.name)
                found.add(f"{' '.join(names)} {option}")

    walk(typer.main.get_command(app), [])
    return found


def test_every_parameter_that_is_a_path_is_tried_here() -> None:
    known = {*READS, *FOLDERS, *WRITES, *MODULES}
    assert path_parameters() - NO_PATHS - known == set(), "new: add it to one of the tables above"
    assert known - path_parameters() == set(), "gone: take it out of the tables"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRADEWIND_URL", NOWHERE)


@pytest.fixture
def flow(tmp_path: Path) -> str:
    file = tmp_path / "good.yaml"
    file.write_text("id: good\ninterval: 1h\nnodes:\n- {id: a, type: constant, config: {value: 1}}\nedges: []\n")
    return str(file)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Not longer than LIMIT_S, and not more memory than MOST_MB."""

    # Ctrl-C, which also ends a station; SIGALRM is that of the test runner.
    late = threading.Timer(LIMIT_S, os.kill, (os.getpid(), signal.SIGINT))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    late.start()
    try:
        yield
    finally:
        late.cancel()
    assert _status("VmHWM") - before < MOST_MB * 1000


def _status(name: str) -> int:
    """In kB."""
    found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def refused(ran: Ran, named: str) -> None:
    """It ended badly, in words, and the words name the culprit."""
    told = ran.out + ran.err
    assert ran.code not in (0, 130), told
    assert "Traceback" not in told and "Error(" not in told, told
    assert len(told) < 5000
    assert named in told, (named, told)


def said(text: str) -> str:
    """As a message shows a name."""
    shown = reading.short_name(text).encode("utf-8", "backslashreplace").decode()
    return shown.replace("\0", "\\x00")


def tried(cli: Cli, command: list[str], flow: str, given: str, named: str | None = None) -> None:
    args = [flow if arg == "{flow}" else given if arg == "@" else arg for arg in command]
    with bounded():
        named = "null byte" if named is None and "\0" in given and _is_parsed(command) else named
        refused(cli(*args), said(given) if named is None else named)
        shown = cli("--json", *args)
        assert json.loads(shown.out)["error"]["code"] if shown.out.startswith('{"error"') else shown.code


def _is_parsed(command: list[str]) -> bool:
    """The parser of the command line itself refuses a NUL in these."""
    return command[-2] in ("--config", "--data-dir", "-f", "init")


def hostile_files(folder: Path) -> Iterator[str]:
    """Paths that are no readable file."""
    yield str(folder / "missing.yaml")
    yield str(folder)
    yield "/dev/zero"
    yield "/dev/tty0"
    os.mkfifo(folder / "pipe.yaml")
    yield str(folder / "pipe.yaml")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(folder / "sock.yaml"))
        yield str(folder / "sock.yaml")
    (folder / "nothing.yaml").symlink_to(folder / "nowhere")
    yield str(folder / "nothing.yaml")
    (folder / "round.yaml").symlink_to(folder / "round.yaml")
    yield str(folder / "round.yaml")
    (folder / "link.yaml").symlink_to("/dev/zero")
    yield str(folder / "link.yaml")
    with open(folder / "long.yaml", "wb") as file:
        file.truncate(1 << 40)
    yield str(folder / "long.yaml")
    yield "a\0b.yaml"
    yield "n" * 5000
    yield os.fsdecode(b"\xff\xfe.yaml")
    yield str(folder / "good.yaml" / "below")
    yield "/proc/self/mem"


def hostile_contents(folder: Path) -> Iterator[str]:
    """Files with something in them that is no text."""
    for name, data in {
        "nul": b"id: a\0b\n",
        "zeros": bytes(100_000),
        "latin": b"id: \xff\xff\n",
        "utf16": "id: a\n".encode("utf-16"),
        "binary": bytes(range(256)) * 10,
        "deep": b"[" * 100_000,
        "empty": b"",
    }.items():
        (folder / f"{name}.yaml").write_bytes(data)
        yield str(folder / f"{name}.yaml")


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("parameter", READS)
def test_what_is_no_file_is_refused(cli: Cli, tmp_path: Path, flow: str, parameter: str) -> None:
    for given in hostile_files(tmp_path):
        tried(cli, READS[parameter], flow, given)


@pytest.mark.parametrize("parameter", READS)
def test_a_file_that_one_may_not_read_is_refused(cli: Cli, tmp_path: Path, flow: str, parameter: str) -> None:
    file = tmp_path / "closed.yaml"
    file.write_text("id: a\n")
    file.chmod(0)
    with as_nobody():
        args = [flow if arg == "{flow}" else str(file) if arg == "@" else arg for arg in READS[parameter]]
        ran = cli(*args)
    refused(ran, "Permission denied" if "{flow}" not in READS[parameter] else "")


@pytest.mark.parametrize("parameter", READS)
def test_what_is_no_text_is_refused(cli: Cli, tmp_path: Path, flow: str, parameter: str) -> None:
    for given in hostile_contents(tmp_path):
        is_fine = given.endswith("empty.yaml") and re.search("--config|--csv|--set", parameter)
        if is_fine or (given.endswith("deep.yaml") and parameter == "rule backtest --csv"):
            continue  # settings without a line are settings; and text is text to a command that only hands it on
        if given.endswith("empty.yaml") and parameter == "task submit --file":
            continue
        named = "line 1" if parameter == "task submit --file" else None
        if parameter == "history import file":
            named = ""
        tried(cli, READS[parameter], flow, given, named)


@pytest.mark.parametrize("parameter", STDIN)
def test_a_stdin_that_never_ends_is_read_up_to_a_bound(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, flow: str, parameter: str
) -> None:
    monkeypatch.setattr(history_file, "MAX_STDIN_BYTES", 10_000_000)
    with open("/dev/zero", "rb") as endless, bounded():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(endless))
        args = [flow if arg == "{flow}" else "-" if arg == "@" else arg for arg in READS[parameter]]
        refused(cli(*args), "stdin")


@pytest.mark.parametrize("parameter", STDIN)
def test_a_closed_stdin_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch, flow: str, parameter: str) -> None:
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    monkeypatch.setattr(sys, "stdin", closed)
    refused(cli(*["-" if arg == "@" else arg for arg in READS[parameter]]), "stdin")


@pytest.mark.parametrize("parameter", FOLDERS)
def test_what_is_no_folder_is_refused(cli: Cli, tmp_path: Path, flow: str, parameter: str) -> None:
    for given in hostile_files(tmp_path):
        name = os.path.basename(given)
        if given == str(tmp_path) or (name in MADE and parameter != "apply --file"):
            continue
        named = "" if parameter.startswith(("doctor", "run")) else None
        tried(cli, FOLDERS[parameter], flow, given, named)


@pytest.mark.parametrize("name", ["channels.yaml", "models.yaml", "rules.yaml", "notify.yaml", "history.yaml"])
def test_a_file_of_a_station_folder_that_cannot_be_read_is_named_and_not_overlooked(
    cli: Cli, tmp_path: Path, flow: str, name: str
) -> None:
    """Otherwise `--prune` would remove what it says."""
    folder = tmp_path / "station"
    folder.mkdir()
    makers: list[Callable[[Path], Any]] = [
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.write_bytes(b"a: \0"),
    ]
    for make in makers:
        make(folder / name)
        tried(cli, ["apply", "-f", "@", "--prune"], flow, str(folder), name)
        (folder / name).rmdir() if (folder / name).is_dir() else (folder / name).unlink()


@pytest.mark.parametrize("name", ["channels", "models", "rules", "flows"])
def test_a_folder_of_a_station_folder_that_cannot_be_listed_is_named(
    cli: Cli, tmp_path: Path, flow: str, name: str
) -> None:
    folder = tmp_path / "station"
    folder.mkdir()
    (folder / name).write_text("no folder")
    tried(cli, ["apply", "-f", "@", "--prune"], flow, str(folder), f"{name}/")
    (folder / name).unlink()
    (folder / name).mkdir()
    os.mkfifo(folder / name / "one.yaml")
    tried(cli, ["apply", "-f", "@", "--prune"], flow, str(folder), f"{name}/one.yaml")


def hostile_outputs(folder: Path) -> Iterator[str]:
    yield str(folder)
    yield "/dev/full"
    os.mkfifo(folder / "pipe.csv")
    yield str(folder / "pipe.csv")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(folder / "sock.csv"))
        yield str(folder / "sock.csv")
    (folder / "round.csv").symlink_to(folder / "round.csv")
    yield str(folder / "round.csv")
    yield str(folder / "no" / "such" / "out.csv")
    yield str(folder / "new") + "/"
    yield "a\0b.csv"
    yield "n" * 5000
    (folder / "file").write_text("x")
    yield str(folder / "file" / "out.csv")
    yield "/proc/self/out.csv"
    yield ""


@pytest.mark.parametrize("parameter", WRITES)
def test_where_nothing_can_be_written_it_is_said(
    cli: Cli, canned: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow: str, parameter: str
) -> None:
    monkeypatch.setattr(writing, "PIPE_WAIT_S", 0.1)
    canned.answer("GET /api/v1/alarms/export", 200, b"id\n" + b"x\n" * 100_000)
    monkeypatch.setattr("tradewind.history.export_file.unframed", lambda pieces, step, note: iter([b"x" * 100_000]))
    for given in hostile_outputs(tmp_path):
        if (parameter == "init folder" and given in (str(tmp_path), str(tmp_path / "new") + "/", "")) or (
            parameter == "init folder" and "no/such" in given
        ):
            continue  # it makes folders
        if parameter == "config init file" and given in ("", str(tmp_path / "new") + "/"):
            continue  # a Path has no slash at its end
        tried(cli, WRITES[parameter], flow, given, said(given.rstrip("/")) if given.endswith("/") else None)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


@pytest.mark.parametrize("parameter", WRITES)
def test_where_one_may_not_write_it_is_said(
    cli: Cli, canned: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameter: str
) -> None:
    canned.answer("GET /api/v1/alarms/export", 200, b"id\n")
    monkeypatch.setattr("tradewind.history.export_file.unframed", lambda pieces, step, note: iter([b"x"]))
    closed = tmp_path / "closed"
    closed.mkdir()
    with as_nobody():
        ran = cli(*[str(closed / "out") if arg == "@" else arg for arg in WRITES[parameter]])
    refused(ran, "Permission denied")


def test_what_commands_write_is_for_their_user_alone(
    cli: Cli, canned: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned.answer("GET /api/v1/alarms/export", 200, b"id\n")
    monkeypatch.setattr("tradewind.history.export_file.unframed", lambda pieces, step, note: iter([b"x"]))
    (tmp_path / "made").mkdir()
    old = os.umask(0)
    try:
        for number, command in enumerate(WRITES.values()):
            ran = cli(*[str(tmp_path / "made" / f"{number}") if arg == "@" else arg for arg in command])
            assert ran.code == 0, ran
    finally:
        os.umask(old)
    for path in (tmp_path / "made").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert len(list((tmp_path / "made").rglob("*"))) > 6


def test_an_export_replaces_a_file_as_a_whole_and_keeps_its_rights(cli: Cli, canned: Canned, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")
    out.chmod(0o640)
    canned.refuse("GET /api/v1/alarms/export", 503, "redis_unavailable", "away")
    assert cli("alarm", "export", "-o", str(out)).code == 6
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]
    canned.answer("GET /api/v1/alarms/export", 200, b"new\n")
    assert cli("alarm", "export", "-o", str(out)).code == 0
    assert out.read_text() == "new\n" and stat.S_IMODE(out.stat().st_mode) == 0o640


@pytest.mark.parametrize("parameter", MODULES)
def test_modules_that_cannot_be_imported_are_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow: str, parameter: str
) -> None:
    monkeypatch.setenv("TRADEWIND_REDIS_URL", "redis://127.0.0.1:1")  # is not asked: modules come first
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "broken.py").write_text("raise GeneratorExit\n")
    (tmp_path / "nulled.py").write_bytes(b"a = 1\0\n")
    with open(tmp_path / "giant.py", "wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(tmp_path / "piped.py")
    (tmp_path / "folded.py").mkdir()
    names = ["leaves", "broken", "nulled", "giant", "piped", "folded.x", "/etc/passwd", "..", "a\0b", "n" * 5000]
    for given in names:
        for name in ("leaves", "broken", "nulled", "giant"):
            sys.modules.pop(name, None)
        tried(cli, MODULES[parameter], flow, given, "" if len(given) > 100 or "\0" in given else given)


def test_output_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        ran = _run_into(full)
    assert ran.code == 6 and "cannot write the output: " in ran.err and "Traceback" not in ran.err, ran
    ran = _run_into(None)
    assert ran.code == 0 and "Traceback" not in ran.err, ran


def _run_into(stdout: Any) -> Ran:
    import subprocess

    close = "" if stdout is not None else " >&-"
    command = f"exec {sys.executable} -m tradewind.cli config show{close}"
    done = subprocess.run(["sh", "-c", command], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)
    return Ran(done.returncode, "", done.stderr)


def test_a_watched_pipe_gets_the_export(cli: Cli, canned: Canned, tmp_path: Path) -> None:
    canned.answer("GET /api/v1/alarms/export", 200, b"id\n1\n")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    ran = cli("alarm", "export", "-o", str(tmp_path / "pipe"))
    assert ran.code == 0, ran
    assert os.read(reader, 100) == b"id\n1\n"
    os.close(reader)
