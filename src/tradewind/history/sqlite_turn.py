"""Whose turn it is: who only tidies up lets those go first that have samples to write, in whatever process.

SQLite gives its lock to whoever asks at the right moment, so one that works in many short steps keeps others out for
as long as it likes. Best effort: where the file cannot be locked all go on as if there was none.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "main.lock"


class Turn:
    """Of one writer; the others have their own, on the same file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lock = threading.Lock()
        self._file = -1
        self._is_writing = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within it the others know that somebody writes, or waits to."""
        with self._lock:
            self._is_writing = True
            self._try(fcntl.LOCK_SH)
        try:
            yield
        finally:
            with self._lock:
                self._is_writing = False
                self._try(fcntl.LOCK_UN)

    def is_ours(self) -> bool:
        """Whether no other writer has something to write."""
        with self._lock:
            found = self._try(fcntl.LOCK_EX)
            self._try(fcntl.LOCK_SH if self._is_writing else fcntl.LOCK_UN)
            return found

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _try(self, how: int) -> bool:
        """False: another one has it otherwise."""
        try:
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True
