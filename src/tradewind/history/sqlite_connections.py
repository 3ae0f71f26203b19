"""The files of the embedded sink as a question sees them: connections that are kept between questions, each file as it
was at one moment within one, damage fenced off, and how much a question may go through."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tradewind.history.sqlite_files import MAIN, Files, Partition, files_errors, is_damage
from tradewind.history.sqlite_tail import Tail, TailCache

#: Files that stay open between questions.
OPEN_FILES = 64


class TooLong(Exception):
    """A question goes through more samples than it may."""


class Connections:
    """`on_damage(name, what)` is told of files that cannot be read; the question is answered from the others."""

    def __init__(self, folder: Path, cache: TailCache, on_damage: Callable[[str, str], None]) -> None:
        self.files = Files(folder)
        self._cache = cache
        self._on_damage = on_damage
        self._open: dict[str, tuple[int, sqlite3.Connection]] = {}
        self._touched: set[str] = set()
        #: Samples that the question under way may still go through; None: any number.
        self._room: int | None = None

    def close(self) -> None:
        for _, db in self._open.values():
            db.close()
        self._open.clear()

    @contextmanager
    def asking(self, doing: str) -> Iterator[sqlite3.Connection | None]:
        """The connection to `main.db`, None if nothing was written yet. Raises SinkAway."""
        with files_errors(doing, self.files.folder):
            try:
                yield self.file(MAIN)
            except BaseException as error:
                self.close()
                if is_damage(error):
                    self._on_damage(MAIN, str(error))
                raise
            finally:
                for name in self._touched:
                    if name in self._open:
                        self._open[name][1].execute("COMMIT")
                self._touched.clear()
                while len(self._open) > OPEN_FILES:
                    self._open.pop(next(iter(self._open)))[1].close()

    @contextmanager
    def bounded(self, room: int | None) -> Iterator[None]:
        """Within, a question that goes through more than `room` samples ends with TooLong; None: none does."""
        self._room = room
        try:
            yield
        finally:
            self._room = None

    def spend(self, count: int) -> None:
        if self._room is not None:
            self._room -= count
            if self._room < 0:
                raise TooLong

    def look_up(self, main: sqlite3.Connection | None, addresses: Sequence[str]) -> tuple[dict[str, int], Tail]:
        """The ids of those that are known, and the tail. Before any other file is looked at!"""
        if main is None:
            return {}, Tail([])
        tail = self._cache.load(main)
        ids: dict[str, int] = {}
        for at in range(0, len(addresses), 500):
            some = addresses[at : at + 500]
            marks = ",".join("?" * len(some))
            ids.update(main.execute(f"SELECT address, id FROM series WHERE address IN ({marks})", list(some)))
        return ids, tail

    def file(self, name: str) -> sqlite3.Connection | None:
        """A connection in the transaction of this question."""
        inode, db = self._open.pop(name, (0, None))
        path = self.files.folder / name
        try:
            if db is None or (name not in self._touched and path.stat().st_ino != inode):
                if db is not None:
                    db.close()
                db = self.files.connect(name)
                if db is None:
                    return None
                db.execute("PRAGMA query_only=ON")
                inode = path.stat().st_ino
        except FileNotFoundError:  # dropped just now
            if db is not None:
                db.close()
            return None
        self._open[name] = inode, db
        if name not in self._touched:
            db.execute("BEGIN")
            self._touched.add(name)
        return db

    @contextmanager
    def fenced(self, partition: Partition) -> Iterator[None]:
        """A damaged file is reported; what was not read of it yet counts as empty."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            _, db = self._open.pop(partition.name, (0, None))
            self._touched.discard(partition.name)
            if db is not None:
                db.close()
            self._on_damage(partition.name, str(error))

    def notice_of(self, partition: Partition) -> Callable[[str], None]:
        return lambda what: self._on_damage(partition.name, what)
