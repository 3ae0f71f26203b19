"""The writing side of the embedded sink: rows into the tail, and the files of days and rollups open for changes. Runs
in one thread.

The write lock of `main.db` is held through every step, so that several processes may write, in turn. Each step can be
repeated after a crash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import structlog

from tradewind.history.columns import Columns, sort_out
from tradewind.history.policy import KINDS
from tradewind.history.sample import Refused, Row
from tradewind.history.sink import SinkAway, Written
from tradewind.history.sqlite_columns import Block, sort_block
from tradewind.history.sqlite_files import MAIN, Files, OpenFile, Partition, files_errors, is_damage, meta_of
from tradewind.history.sqlite_marks import RawMarks
from tradewind.history.sqlite_rescue import relearn, verdict_of
from tradewind.history.sqlite_tail import append_run, join_small_runs
from tradewind.history.sqlite_turn import Turn

log = structlog.get_logger(__name__)

#: The tail is moved at so many rows, or more with many series: a part that is written should have some samples.
TAIL_ROWS = 200_000
TAIL_ROWS_PER_SERIES = 32
TAIL_ROWS_MOST = 2_000_000
#: When moving fails again and again, writing stops here.
TAIL_ROWS_FULL = 8_000_000
#: How long emptying a log waits for readers.
PUT_AWAY_MS = 200
#: Files that stay open for writing.
OPEN_FILES = 32


class Writer:
    """`held` gives the lock and the connection to `main.db`; the methods that take `main` are called within it."""

    def __init__(self, folder: Path, *, tail_rows: int = TAIL_ROWS) -> None:
        self.files = Files(folder)
        self.turn = Turn(folder)
        self.tail_rows = tail_rows
        self._main: sqlite3.Connection | None = None
        self._version = -1
        self._open: dict[str, OpenFile] = {}
        self._ids: dict[str, int] = {}
        #: (id, rows) of the runs of the tail, in order; those up to `moving` are on their way into files.
        self.runs: list[tuple[int, int]] = []
        self.moving = 0
        self.marks = RawMarks()
        #: Files that were damaged.
        self.set_aside = 0
        #: Files of days that may hold hours without rollups.
        self.unrolled: set[Partition] = set()
        #: Files that may have got something since retention last looked into them.
        self.changed: set[str] = set()

    def write(self, rows: Sequence[Row]) -> tuple[Written, bool]:
        """The answer, and whether the tail should be moved now."""
        kept, refused = sort_out(rows, self._ids)
        if not kept:
            return Written(0, refused), False
        with self.turn.writing(), self.held("write") as main:
            if self.tail_size > TAIL_ROWS_FULL:
                raise SinkAway(f"the tail in {self.files.folder} cannot be moved", hint="see the log for what failed")
            block, late = self._block(main, kept)
            refused += late
            if block is None:
                return Written(0, refused), False
            self.runs.append((append_run(main, sort_block([block])), len(block.ts)))
            self.runs = join_small_runs(main, self.runs, self.moving)
        most = max(self.tail_rows, min(len(self._ids) * TAIL_ROWS_PER_SERIES, TAIL_ROWS_MOST))
        return Written(len(block.ts), refused), self.tail_size >= most

    @property
    def tail_size(self) -> int:
        """In rows."""
        return sum(n for _, n in self.runs)

    @contextmanager
    def held(self, doing: str) -> Iterator[sqlite3.Connection]:
        """The lock, a transaction on `main.db`, and memories that are true. Raises SinkAway; then nothing is kept."""
        with files_errors(doing, self.files.folder):
            try:
                main = self._main or self._open_main()
                main.execute("BEGIN IMMEDIATE")
                (version,) = main.execute("PRAGMA data_version").fetchone()
                if version != self._version:  # another process was here
                    self._remember(main)
                    self._version = version
                yield main
                main.execute("COMMIT")
            except BaseException as error:
                self.close()
                if is_damage(error):
                    self._rescue_main()
                raise

    @contextmanager
    def changing(self, partition: Partition) -> Iterator[OpenFile]:
        """A transaction on another file, made if need be. A damaged one is set aside, and SinkAway raised: again!"""
        try:
            file = self._opened(partition)
            file.db.execute("BEGIN IMMEDIATE")
            yield file
            file.db.execute("COMMIT")
        except BaseException as error:
            self.close_file(partition.name)  # rolls back
            if is_damage(error):
                self._set_aside(partition.name, error)
                raise SinkAway(f"{partition.name} is damaged and was set aside: {error}", code="set_aside") from error
            raise

    def give_back(self, partition: Partition, pages: int) -> int:
        """So many free pages of a file to the system; how many are left."""
        db = self._opened(partition).db
        db.executescript(f"PRAGMA incremental_vacuum({pages})")  # execute() would stop after one page
        return int(db.execute("PRAGMA freelist_count").fetchone()[0])

    def name_series(self, file: OpenFile, ids: Iterable[int]) -> None:
        """Each file can name its series without `main.db`. Within `held`."""
        new = set(ids).difference(file.names)
        if new:
            assert self._main is not None
            query = "SELECT id, address FROM series WHERE id BETWEEN ? AND ?"
            named = [row for row in self._main.execute(query, (min(new), max(new))) if row[0] in new]
            file.db.executemany("INSERT OR REPLACE INTO series (id, address) VALUES (?, ?)", named)
            file.names |= new

    def _set_aside(self, name: str, error: object) -> None:
        self.set_aside += 1
        aside = self.files.set_aside(name)
        log.error("history_file_damaged", file=name, set_aside_as=aside, error=str(error))

    def examine(self, name: str) -> bool:
        """A reader found this file damaged: set it aside if SQLite finds so, too. True: it is out of the way."""
        if name == MAIN:
            self.close()
            return self._rescue_main()
        with self.held("examine"):
            self.close_file(name)
            return self._check(name)

    def open_files(self) -> list[str]:
        return list(self._open)

    def forget_name(self, main: sqlite3.Connection, address: str) -> int:
        """The id that a series had; 0 if there is none."""
        row = main.execute("SELECT id FROM series WHERE address = ?", (address,)).fetchone()
        if row is None:
            return 0
        main.execute("DELETE FROM series WHERE id = ?", row)
        self.marks.forget(main, row[0])
        self._ids.pop(address, None)
        return int(row[0])

    def close_file(self, name: str) -> None:
        file = self._open.pop(name, None)
        if file is not None:
            file.db.close()

    def put_away(self, name: str) -> None:
        """Close a file that is not written for a while; empty its log, which readers would keep alive."""
        file = self._open.get(name)
        if file is not None:
            file.db.execute(f"PRAGMA busy_timeout={PUT_AWAY_MS}")
            with suppress(sqlite3.OperationalError):  # somebody reads right now
                file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.close_file(name)

    def close(self) -> None:
        for name in list(self._open):
            with suppress(sqlite3.Error):
                self.close_file(name)
        main, self._main, self._version = self._main, None, -1
        if main is not None:
            with suppress(sqlite3.Error):
                main.close()

    def _block(self, main: sqlite3.Connection, rows: Columns) -> tuple[Block | None, list[Refused]]:
        """The rows as a block, those aside that are older than what is kept."""
        rows, late = self.marks.part(rows, self._ids)
        if not rows:
            return None, late
        ids = list(map(self._ids.get, rows.series))
        if None in ids:
            for address in dict.fromkeys(rows.series):
                if address not in self._ids:
                    self._ids[address] = self._id_of(main, address)
            ids = list(map(self._ids.get, rows.series))
        return Block(np.array(ids, np.int64), *rows.arrays()), late

    def _id_of(self, main: sqlite3.Connection, address: str) -> int:
        row = main.execute("SELECT id FROM series WHERE address = ?", (address,)).fetchone()
        if row is None:
            return int(main.execute("INSERT INTO series (address) VALUES (?)", (address,)).lastrowid or 0)
        return int(row[0])

    def _opened(self, partition: Partition) -> OpenFile:
        path = self.files.folder / partition.name
        file = self._open.get(partition.name)
        if file is not None and (not path.exists() or path.stat().st_ino != file.inode):
            self.close_file(partition.name)  # another process has set it aside or dropped it
        file = self._open.pop(partition.name, None)
        if file is None:
            while len(self._open) >= OPEN_FILES:
                self.close_file(next(iter(self._open)))
            db = self.files.connect(partition.name, create=True)
            assert db is not None
            try:
                file = OpenFile(db, path)
            except BaseException:
                db.close()
                raise
        self._open[partition.name] = file  # last: used most lately
        return file

    def _open_main(self) -> sqlite3.Connection:
        fresh = not (self.files.folder / MAIN).exists()
        main = self.files.connect(MAIN, create=True)
        assert main is not None
        self._main, self._version = main, -1
        if fresh:
            relearn(self.files, main)
        return main

    def _remember(self, main: sqlite3.Connection) -> None:
        for name in list(self._open):
            self.close_file(name)
        self._ids = {address: id_ for id_, address in main.execute("SELECT id, address FROM series")}
        self.runs = list(main.execute("SELECT id, n FROM run ORDER BY id"))
        self.moving = meta_of(main, "move_run")
        self.marks.load(main)
        self.unrolled = set(self.files.partitions("raw"))
        self.changed = {partition.name for kind in KINDS for partition in self.files.partitions(kind)}

    def _rescue_main(self) -> bool:
        """Set `main.db` aside, unless somebody else has just done so."""
        with files_errors("examine", self.files.folder):
            return self._check(MAIN)

    def _check(self, name: str) -> bool:
        verdict = verdict_of(self.files, name)
        if verdict == "ok":
            return not (self.files.folder / name).exists()
        self._set_aside(name, verdict)
        return True
