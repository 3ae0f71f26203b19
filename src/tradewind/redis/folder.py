"""The data folder of an embedded server: its locks, its socket path, its configuration file. Starts nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

from tradewind.documents import short_name
from tradewind.errors import Unavailable
from tradewind.private_files import FOLDER, make_folder, write_text

SOCKET_PATH_MAX = 107 if sys.platform == "linux" else 103
LOG_MAX_BYTES = 5_000_000
_not_inherited: weakref.WeakSet[FileLock] = weakref.WeakSet()

# AOF holds every acknowledged write, so a stop need not write a snapshot, which could take longer than we wait.
CONFIG = """\
# Written at each start; changes are lost.
port 0
unixsocket {socket}
unixsocketperm 600
dir {folder}
logfile {log}
daemonize no
appendonly yes
appendfsync {appendfsync}
save 900 1 300 10 60 10000
shutdown-on-sigterm nosave
maxmemory-policy noeviction
"""


class FileLock:
    """An exclusive lock that the system drops when the last process that holds the file open is gone."""

    def __init__(self, path: Path, *, inherited: bool = False) -> None:
        self.path = path
        self.fd: int | None = None
        if not inherited:
            _not_inherited.add(self)

    def take(self) -> bool:
        """True if the lock is ours now; False if somebody else has it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        self.fd = fd
        return True

    def write_pid(self, pid: int) -> None:
        assert self.fd is not None
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, str(pid).encode(), 0)

    def read_pid(self) -> int | None:
        """What the holder wrote, if anything."""
        try:
            return int(self.path.read_text())
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)


def _close_in_child() -> None:
    # A forked process pool would otherwise keep the folder locked after its station was killed.
    for lock in list(_not_inherited):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


class ServerFolder:
    """`data_dir/redis`: redis.conf, server.log, server.lock, the AOF, and `socket`, which says where the socket is."""

    def __init__(self, data_dir: Path) -> None:
        self._given = data_dir
        self.data_dir = Path(os.path.realpath(data_dir))  # unlike resolve it lets a loop of links be
        self.path = self.data_dir / "redis"
        self.config = self.path / "redis.conf"
        self.log = self.path / "server.log"
        self.station_lock = FileLock(self.data_dir / "station.lock")
        self.server_lock = FileLock(self.path / "server.lock", inherited=True)
        self._socket_note = self.path / "socket"

    def create(self) -> None:
        try:
            make_folder(self.path)
            self.path.chmod(FOLDER)
            if self.log.exists() and self.log.stat().st_size > LOG_MAX_BYTES:
                self.log.replace(self.log.with_suffix(".log.1"))
        except OSError as error:
            hint = "choose a folder that this user may write with --data-dir"
            message = f"cannot use the data folder {short_name(self._given)}: {error.strerror}"
            raise Unavailable(message, code="data_dir", hint=hint) from error

    def socket(self) -> Path:
        """Where the running server listens, or the last one listened."""
        try:
            return Path(self._socket_note.read_text())
        except FileNotFoundError:
            return self.path / "redis.sock"

    def place_socket(self) -> Path:
        """Choose and note down a path that a socket address can hold; a long one moves to the temporary folder."""
        self.remove_socket()
        socket = self.path / "redis.sock"
        if len(os.fsencode(socket)) > SOCKET_PATH_MAX:
            socket = Path(tempfile.mkdtemp(prefix="tradewind-", dir="/tmp")) / "redis.sock"
        write_text(self._socket_note, str(socket))
        return socket

    def remove_socket(self) -> None:
        socket = self.socket()
        socket.unlink(missing_ok=True)
        if socket.parent != self.path and socket.parent.name.startswith("tradewind-"):
            shutil.rmtree(socket.parent, ignore_errors=True)
        self._socket_note.unlink(missing_ok=True)

    def write_config(self, socket: Path, appendfsync: str) -> None:
        text = CONFIG.format(
            socket=_quoted(socket), folder=_quoted(self.path), log=_quoted(self.log), appendfsync=appendfsync
        )
        write_text(self.config, text)

    def log_tail(self, lines: int = 5) -> str:
        if not self.log.exists():
            return ""
        with open(self.log, "rb") as file:
            file.seek(max(0, self.log.stat().st_size - 4000))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


def _quoted(path: Path) -> str:
    """As the configuration file reads strings: any byte may be written as \\xHH."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+@=,:~ "
    return '"' + "".join(chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in os.fsencode(path)) + '"'
