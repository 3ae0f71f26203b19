"""The command line in this process (fast) or as a process of its own, a canned HTTP server, and a real station."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.servers import die_with_parent, free_port, wait_for
from tradewind.cli.main import main

USER_CODE = """
from tradewind import current, task

@task(retries=1, backoff=0.05)
async def flaky(word: str) -> str:
    current().progress({"done": 1, "total": 2})
    if current().attempt == 1:
        raise ConnectionError("not yet")
    return word * 2
"""


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TRADEWIND_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*args: str) -> Ran:
        capsys.readouterr()
        code = main(args)
        shown = capsys.readouterr()
        return Ran(code, shown.out, shown.err)

    return run


def clean_env(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TRADEWIND_")} | more


def run_process(*args: str, cwd: Path | None = None, timeout: float = 60, **env: str) -> Ran:
    command = [sys.executable, "-m", "tradewind.cli", *args]
    done = subprocess.run(command, cwd=cwd, env=clean_env(**env), capture_output=True, text=True, timeout=timeout)
    return Ran(done.returncode, done.stdout, done.stderr)


@dataclass
class Canned:
    """What a fake station answers: (status, body, headers) by `METHOD /path`; what it was asked."""

    url: str = ""
    answers: dict[str, tuple[int, Any, dict[str, str]]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def answer(self, call: str, status: int, body: Any, **headers: str) -> None:
        self.answers[call] = (status, body, headers)

    def refuse(
        self, call: str, status: int, code: str, message: str, hint: str = "", problems: Any = (), **headers: str
    ) -> None:
        error = {"code": code, "message": message, "hint": hint, "problems": list(problems)}
        self.answer(call, status, {"error": error}, **headers)


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Canned]:
    known = Canned()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            known.asked.append((f"{self.command} {self.path}", json.loads(body) if body else None))
            status, answer, headers = known.answers[f"{self.command} {self.path.partition('?')[0]}"]
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    known.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("TRADEWIND_URL", known.url)
    yield known
    server.shutdown()
    server.server_close()


class StationProcess:
    """`tradewind up` on a free port and its own data folder."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = folder / "data"
        self.log = folder / "station.log"
        command = [sys.executable, "-m", "tradewind.cli", "up", "--port", str(self.port), "--data-dir", str(self.data)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*command, *flags],
                cwd=folder,
                env=clean_env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def wait_ok(self) -> None:
        wait_for(self._is_ok, "the station in good health", 60)

    def _is_ok(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
            return bool(json.load(answer)["status"] == "ok")
        return False

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.terminate()
        return self.process.wait(30)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def station_process(folder: Path, *flags: str) -> Iterator[StationProcess]:
    station = StationProcess(folder, *flags)
    try:
        station.wait_ok()
        yield station
    finally:
        station.end()


@pytest.fixture(scope="session")
def shared_station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StationProcess]:
    folder = tmp_path_factory.mktemp("station")
    (folder / "user_code.py").write_text(USER_CODE)
    with station_process(folder, "--import", "user_code") as station:
        yield station


@pytest.fixture
def station(shared_station: StationProcess, monkeypatch: pytest.MonkeyPatch) -> StationProcess:
    monkeypatch.setenv("TRADEWIND_URL", shared_station.url)
    return shared_station
