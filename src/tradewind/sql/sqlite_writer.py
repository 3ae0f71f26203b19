"""The one thread through which a process writes much to a SQLite file: plain sqlite3, no hop per statement."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: FULL, not NORMAL: both survive `kill -9`, but with NORMAL a power cut takes back every commit since the last
#: checkpoint, and by then their only other copy is trimmed from Redis. It costs one fsync per batch, off the loop.
WRITE_PRAGMAS = ("PRAGMA synchronous=FULL", "PRAGMA journal_size_limit=67108864")


class SqliteWriter:
    """Runs functions one after the other, each in its own transaction, on a connection of its own.

    The connection is opened at the first use and again after an error. A cancelled caller may find its work committed.
    """

    def __init__(self, path: Path, *, busy_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-writer")

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Commit what `work` did, or nothing. Raises what `work` raises, and sqlite3.Error."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)

    async def close(self) -> None:
        """After the work that is already waiting."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._connection or self._open()
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            self._drop()  # closing rolls back, and a connection that saw an I/O error is not to be trusted
            raise
        return result

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._busy_s, isolation_level=None)
        self._connection = connection
        for pragma in WRITE_PRAGMAS:
            connection.execute(pragma)
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
