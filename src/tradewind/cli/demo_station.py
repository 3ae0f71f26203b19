"""A station as a child process on a temporary data folder, for `tradewind demo`. Gone with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from tradewind.cli.http import Http
from tradewind.errors import TradewindError, Unavailable

DEFAULT_PORT = 8400
PORTS_TRIED = 100
START_S = 60.0
STOP_S = 30.0
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class DemoStation:
    """`with DemoStation(None) as station: station.http…`; its log is shown when it does not start."""

    def __init__(self, port: int | None) -> None:
        self.port = port if port is not None else free_port(DEFAULT_PORT)
        self._folder = tempfile.TemporaryDirectory(prefix="tradewind-demo-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "station.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.http = Http(f"http://127.0.0.1:{self.port}")

    def __enter__(self) -> DemoStation:
        data = Path(self._folder.name) / "data"
        command = [sys.executable, "-m", "tradewind.cli", "up", "--port", str(self.port), "--data-dir", str(data)]
        command += ["--host", "127.0.0.1", "--import", "tradewind.cli.demo_tasks"]
        # A demo is the embedded default, whatever this shell is set up for.
        env = {name: value for name, value in os.environ.items() if not name.upper().startswith("TRADEWIND_")}
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder.name,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops the station in good order
                preexec_fn=_end_with_parent,
            )
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _wait(self) -> None:
        """Until it is in full health: a leader and a worker are there."""
        assert self._process is not None
        end = time.monotonic() + START_S
        while True:
            if self._process.poll() is not None:
                raise self._failed(f"ended with {self._process.returncode}")
            try:
                if self.http.health()["status"] == "ok":
                    return
            except TradewindError:
                pass
            if time.monotonic() > end:
                raise self._failed(f"is not in good health after {START_S:g} s")
            time.sleep(0.05)

    def _failed(self, what: str) -> Unavailable:
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        return Unavailable(f"the station of the demo {what}:\n{tail}", code="demo_station", hint="see its log above")

    def _stop(self) -> None:
        self.http.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()


def free_port(first: int) -> int:
    """`first`, or the next port that nobody listens on. Raises Unavailable."""
    for port in range(first, first + PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Unavailable(f"ports {first} to {first + PORTS_TRIED - 1} are all in use", hint="name a free one with --port")


def _end_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
