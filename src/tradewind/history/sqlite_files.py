"""The folder of the embedded sink: which file holds which time, their tables, and what their errors mean.

`main.db` has the names of the series and the runs just written; `raw-20261116.db` a day of samples;
`minute-202611.db` and `hour-2026.db` a month and a year of rollups.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tradewind.clock import now_ms
from tradewind.history.sample import MAX_TS_MS
from tradewind.history.sink import SinkAway
from tradewind.history.sqlite_columns import Damaged
from tradewind.private_files import make_file, make_folder

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
#: Behind every time there can be.
MAX_MS = MAX_TS_MS + 1
MAIN = "main.db"
VERSION = 1
BUSY_S = 10.0

#: FULL: a commit is on the disk when `write` answers, for the recorder moves its cursor by that. A run is one append to
#: the write-ahead log and one fsync; NORMAL would lose every run since the last checkpoint in a power cut.
#: Deleted content is not overwritten with zeros, which would double what moving a run costs.
_PRAGMAS = ("synchronous=FULL", "secure_delete=OFF", "journal_size_limit=16777216", "wal_autocheckpoint=4000")

_NAMES = "CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, address TEXT NOT NULL UNIQUE)"
# Keys are series id << 27 | ms since the day began, or series id << 22 | hour since 1970: a series lies together.
_CELLS = "CREATE TABLE IF NOT EXISTS cell (key INTEGER PRIMARY KEY, data BLOB NOT NULL)"
_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
_KEPT = (
    "CREATE TABLE IF NOT EXISTS kept (kind TEXT, series INTEGER, from_ms INTEGER NOT NULL, PRIMARY KEY (kind, series))"
    " WITHOUT ROWID"
)
_SCHEMAS = {
    "main": (
        _META,
        _NAMES.replace("KEY,", "KEY AUTOINCREMENT,"),
        "CREATE TABLE IF NOT EXISTS run (id INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER NOT NULL,"
        " first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL, data BLOB NOT NULL)",
        _KEPT,
    ),
    "raw": (
        _META,
        _NAMES,
        "CREATE TABLE IF NOT EXISTS part (key INTEGER PRIMARY KEY, last INTEGER NOT NULL, n INTEGER NOT NULL,"
        " data BLOB NOT NULL)",
        "CREATE TABLE IF NOT EXISTS extent (series INTEGER PRIMARY KEY, first_ms INTEGER NOT NULL,"
        " last_ms INTEGER NOT NULL, n INTEGER NOT NULL, value REAL NOT NULL, quality INTEGER NOT NULL)",
        "CREATE TABLE IF NOT EXISTS hour (hour INTEGER PRIMARY KEY, state INTEGER NOT NULL)",
        "CREATE TABLE IF NOT EXISTS dirty (hour INTEGER, series INTEGER, PRIMARY KEY (hour, series)) WITHOUT ROWID",
    ),
    "minute": (_NAMES, _CELLS),
    "hour": (_NAMES, _CELLS),
}
_NAME = re.compile(r"(raw|minute|hour)-(\d{4})(\d\d)?(\d\d)?\.db")
_LENGTH = {"raw": 8, "minute": 6, "hour": 4}


class Partition(NamedTuple):
    """A file of samples or rollups for the times [start_ms, end_ms). `kind` is raw, minute or hour."""

    kind: str
    start_ms: int
    end_ms: int
    name: str


class Files:
    """`folder` need not be there yet; it is made with the first file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def connect(self, name: str, *, create: bool = False) -> sqlite3.Connection | None:
        """None: there is no such file, or it was never finished. Raises SinkAway, sqlite3.Error."""
        path = self.folder / name
        if create:
            make_folder(self.folder)
            with suppress(OSError):  # SQLite says what is wrong
                make_file(path)  # what SQLite makes beside it gets the same rights
        elif not path.exists():
            return None
        uri = f"file:{quote(str(path.absolute()))}?mode={'rwc' if create else 'rw'}"
        try:
            connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError:
            if not create and not path.exists():  # dropped just now
                return None
            raise
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > VERSION:
                hint = "run the version of tradewind that wrote it, or a newer one"
                raise SinkAway(f"{path} has format {version}, this program knows {VERSION}", hint=hint)
            if version == 0 and not create:
                connection.close()
                return None
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            if version == 0:
                _lay_out(connection, name.partition("-")[0].removesuffix(".db"))
            elif create and name == MAIN:
                connection.execute(_KEPT)  # files of older versions have none
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.OperationalError) and not create and not path.exists():
                return None  # dropped or set aside between two looks at it
            raise
        return connection

    def partitions(self, kind: str) -> list[Partition]:
        """Those that are there, oldest first."""
        found = []
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                match = _NAME.fullmatch(path.name)
                if match and match[1] == kind and len(match[2] + (match[3] or "") + (match[4] or "")) == _LENGTH[kind]:
                    start = datetime(int(match[2]), int(match[3] or 1), int(match[4] or 1), tzinfo=UTC)
                    found.append(partition_at(kind, round(start.timestamp()) * 1000))
        return sorted(found)

    def size(self) -> int:
        total = 0
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                with suppress(FileNotFoundError):
                    total += path.stat().st_size
        return total

    def size_of(self, name: str) -> int:
        total = 0
        for path in self._trio(name):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def remove(self, name: str) -> None:
        """The caller has closed it. Who still reads it keeps reading what was there."""
        for path in self._trio(name):
            path.unlink(missing_ok=True)

    def set_aside(self, name: str) -> str:
        """Out of the way under a name that says why; for a person to look at. Returns the new name."""
        aside = f"{name}.damaged-{now_ms()}"
        for path in self._trio(name):
            with suppress(FileNotFoundError):
                path.rename(self.folder / path.name.replace(name, aside))
        return aside

    def aside(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        names = (path.name for path in self.folder.iterdir() if ".db.damaged-" in path.name)
        return sorted(name for name in names if not name.endswith(("-wal", "-shm")))

    def _trio(self, name: str) -> tuple[Path, Path, Path]:
        return self.folder / name, self.folder / f"{name}-wal", self.folder / f"{name}-shm"


class OpenFile:
    """A file of a day or of rollups, open for writing, with what the writer remembers of it."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self.db = db
        self.inode = path.stat().st_ino
        self.names = {id_ for (id_,) in db.execute("SELECT id FROM series")}


def meta_of(db: sqlite3.Connection, key: str) -> int:
    """0: it was never set."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return int(row[0]) if row else 0


def set_meta(db: sqlite3.Connection, key: str, value: int) -> None:
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def partition_at(kind: str, ts_ms: int) -> Partition:
    """The one that holds this time."""
    moment = datetime.fromtimestamp(ts_ms // 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if kind == "raw":
        start_ms = ts_ms // DAY_MS * DAY_MS
        return Partition(kind, start_ms, start_ms + DAY_MS, f"raw-{moment:%Y%m%d}.db")
    if kind == "minute":
        start = moment.replace(day=1)
        end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        name = f"minute-{start:%Y%m}.db"
    else:
        start = moment.replace(month=1, day=1)
        end = start.replace(year=start.year + 1)
        name = f"hour-{start:%Y}.db"
    return Partition(kind, round(start.timestamp()) * 1000, round(end.timestamp()) * 1000, name)


def is_damage(error: BaseException) -> bool:
    """The file itself is at fault, not the moment."""
    if isinstance(error, Damaged):
        return True
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, sqlite3.Error) and code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def files_errors(doing: str, folder: Path) -> Iterator[None]:
    """Whatever SQLite or the system raises inside becomes SinkAway."""
    try:
        yield
    except (sqlite3.Error, OSError, Damaged) as error:
        low = str(error).lower()
        hint = "see the log; `tradewind history stats` names files that are damaged"
        if "full" in low or "no space" in low or "disk i/o" in low:
            hint = "free some space on the disk of the data folder"
        elif "locked" in low or "busy" in low:
            hint = "another process has written for long: it is tried again"
        elif isinstance(error, PermissionError) or "readonly" in low or "unable to open" in low:
            hint = "check that this user may write in the folder"
        raise SinkAway(f"cannot {doing} in {folder}: {error}", hint=hint) from error


def _lay_out(connection: sqlite3.Connection, kind: str) -> None:
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # tidying gives room back in small steps
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMAS[kind]:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")
