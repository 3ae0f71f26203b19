"""One private server process: free port, temporary folder, ready check, signals, and a sure end.

Start servers from the main thread: PDEATHSIG follows the thread that forked.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

# Below the range of outgoing ports: a client that redials a dead server's port must not end up connected to itself,
# and a server must find its port free again. Redis Cluster also takes port + 10000.
PORTS = range(12_000, 22_000)
START_S = 60.0
_chance = random.SystemRandom()  # hypothesis seeds the shared generator
ROOT = Path(__file__).resolve().parents[1]
#: For every child: the code under test comes from this tree, never from an installed copy.
CODE_PATH = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_live: set[Server] = set()
_pid = os.getpid()


class PortTaken(RuntimeError):
    pass


def code_path(*folders: str | Path) -> str:
    """A PYTHONPATH with `folders` before the code under test."""
    return os.pathsep.join([*map(str, folders), CODE_PATH])


def missing(program: str, package: str) -> NoReturn:
    message = f"{program} is not installed: apt-get install {package}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def find(program: str, package: str, *, also: str = "") -> str:
    """Path of a program on PATH, in the sbin folders, or matching the glob `also`; otherwise skip or fail."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None and also:
        found = next((str(path) for path in sorted(Path("/").glob(also), reverse=True)), None)
    return found or missing(program, package)


def free_port() -> int:
    for _ in range(200):
        port = _chance.choice(PORTS)
        with socket.socket() as tcp, contextlib.suppress(OSError):
            tcp.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port found")


def wait_for(is_true: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
    end = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {timeout_s} s")
        time.sleep(0.02)


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Server:
    """One server process. `kill` and `start` again keep port and data; `pause` is SIGSTOP."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        port: int,
        url: str,
        folder: Path,
        is_ready: Callable[[], bool],
        user: str = "",
        env: Mapping[str, str] | None = None,
        stop_signal: int = signal.SIGTERM,
    ) -> None:
        self.argv, self.port, self.url, self.dir = list(argv), port, url, folder
        self._is_ready, self._env, self._stop_signal = is_ready, dict(env or {}), stop_signal
        self._user = user if user and os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        path = self.dir / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        assert self._process is None, "already running"
        if self._user:
            own(self.dir, self._user)
        with open(self.dir / "output.log", "ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                cwd=self.dir,
                env={**os.environ, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self._user,
                group=pwd.getpwnam(self._user).pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
                preexec_fn=die_with_parent,
            )
        _live.add(self)
        try:
            wait_for(self._answers, f"start of {self.argv[0]}")
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            text = self.output
            kind = PortTaken if "ddress already in use" in text or "eaddrinuse" in text else RuntimeError
            raise kind(f"{self.argv[0]} ended with {self._process.returncode}:\n{text[-3000:]}")
        return self._is_ready()

    def stop(self, timeout_s: float = 15.0) -> None:
        """Graceful stop; killed when it takes too long. Does nothing when it is not running."""
        if self._process is None:
            return
        self.resume()
        self._signal(self._stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _live.discard(self)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def die_with_parent() -> None:
    # After Popen's change of user: a change of credentials would clear it.
    if _libc is not None:
        _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def own(folder: Path, user: str) -> None:
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, user)


@atexit.register
def _kill_all() -> None:
    for server in list(_live) if os.getpid() == _pid else ():  # a fork must not end its parent's servers
        server.kill()


@contextlib.contextmanager
def running(make: Callable[[Path], Server]) -> Iterator[Server]:
    """Start what `make` builds in a fresh folder; another try on another port if somebody was faster."""
    for attempt in range(5):
        folder = Path(tempfile.mkdtemp(prefix="tw-test-", dir="/tmp"))
        try:
            server = make(folder)
            try:
                server.start()
            except PortTaken:
                if attempt == 4:
                    raise
                continue
            try:
                yield server
            finally:
                server.stop()
            return
        finally:
            shutil.rmtree(folder, ignore_errors=True)
