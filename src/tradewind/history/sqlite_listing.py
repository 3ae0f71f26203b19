"""Which series the embedded sink has, and how much of what. On a `Reader`, within its rules."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tradewind.history.aggregate import Line, merge_lines
from tradewind.history.keeping import Keeping
from tradewind.history.policy import DEFAULT_CLASS
from tradewind.history.sink import ClassStats, KeptFrom, SeriesInfo, SinkStats, class_stats
from tradewind.history.sqlite_files import MAX_MS, meta_of
from tradewind.history.sqlite_marks import read_marks
from tradewind.history.sqlite_pieces import PIECE
from tradewind.history.sqlite_reader import Reader
from tradewind.history.sqlite_tail import Tail

#: Series times days whose rows are counted by class: some tenths of a second.
MAX_COUNTED = 200_000


def list_series(reader: Reader, pattern: str, limit: int, after: str) -> list[SeriesInfo]:
    glob = pattern.replace("[", "[[]").replace("?", "[?]")  # only the star is special
    with reader.asking("list series") as main:
        _, tail = reader.look_up(main, [])
        if main is None:
            return []
        rows = main.execute(
            "SELECT id, address FROM series WHERE address > ? AND address GLOB ? ORDER BY address LIMIT ?",
            (after, glob, limit),
        ).fetchall()
        ids = [id_ for id_, _ in rows]
        recent = tail.lines(ids, 0, MAX_MS)
        extents = _extents(reader, ids)
        return [_info(reader, id_, address, extents.get(id_), recent.get(id_, [])) for id_, address in rows]


def count_all(reader: Reader, problems: Sequence[str], keeping: Keeping | None) -> SinkStats:
    """Rows that wait in the tail to replace older ones count with them; those that a move has just copied do not."""
    with reader.asking("count") as main:
        _, tail = reader.look_up(main, [])
        rows, ends = tail.rows(0, MAX_MS), list(tail.span() or ())
        for partition in reader.files.partitions("raw"):
            with reader.fenced(partition):
                db = reader.file(partition.name)
                if db is not None:
                    n, first, last = db.execute("SELECT sum(n), min(first_ms), max(last_ms) FROM extent").fetchone()
                    rows += (n or 0) - _moved(tail, db).rows(partition.start_ms, partition.end_ms)
                    ends += [ms for ms in (first, last) if ms is not None]
        marks = {} if main is None else dict(main.execute("SELECT key, value FROM meta"))
        names = {} if main is None else dict(main.execute("SELECT id, address FROM series"))
        return SinkStats(
            rows=rows,
            bytes=reader.files.size(),
            oldest_ms=min(ends, default=None),
            newest_ms=max(ends, default=None),
            series=len(names),
            raw_from_ms=marks.get("raw_from_ms"),
            minute_from_ms=marks.get("minute_from_ms"),
            hour_from_ms=marks.get("hour_from_ms"),
            problems=tuple(problems),
            classes=_classes(reader, tail, names, keeping, rows) if keeping is not None else (),
        )


def marks_of(reader: Reader, series: Sequence[str]) -> dict[str, KeptFrom]:
    """Where retention has come to with each."""
    with reader.asking("read the marks") as main:
        return read_marks(main, series)


def _classes(
    reader: Reader, tail: Tail, names: dict[int, str], keeping: Keeping, all_rows: int
) -> tuple[ClassStats, ...]:
    """Their rows only if there is one, or if there are few series and days."""
    if keeping.is_plain:
        return class_stats(keeping, {DEFAULT_CLASS: len(names)}, {DEFAULT_CLASS: all_rows})
    classes = {id_: keeping.class_of(address) for id_, address in names.items()}
    partitions = reader.files.partitions("raw")
    rows: Counter[str] | None = None
    if len(names) * (len(partitions) + 1) <= MAX_COUNTED:
        rows = Counter()
        for id_, lines in tail.lines(list(names), 0, MAX_MS).items():
            rows[classes[id_]] += sum(len(line.ts) for line in lines)
        for partition in partitions:
            with reader.fenced(partition):
                db = reader.file(partition.name)
                if db is not None:
                    for id_, n in db.execute("SELECT series, n FROM extent"):
                        rows[classes.get(id_, DEFAULT_CLASS)] += n
                    copied = _moved(tail, db).lines(list(names), partition.start_ms, partition.end_ms)
                    for id_, lines in copied.items():
                        rows[classes[id_]] -= sum(len(line.ts) for line in lines)
    return class_stats(keeping, Counter(classes.values()), rows)


def _moved(tail: Tail, db: sqlite3.Connection) -> Tail:
    """What a file of a day has of the tail, of its day, while a move is under way."""
    return tail.moved(meta_of(db, "move_run"), meta_of(db, "move_series"))


def _extents(reader: Reader, ids: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """(first_ms, last_ms, n) over all days."""
    found: dict[int, tuple[int, int, int]] = {}
    for partition in reader.files.partitions("raw"):
        with reader.fenced(partition):
            db = reader.file(partition.name)
            for id_ in ids if db is not None else ():
                row = _extent(db, id_)
                if row is not None:
                    known = found.get(id_, (row[0], row[1], 0))
                    found[id_] = min(known[0], row[0]), max(known[1], row[1]), known[2] + row[2]
    return found


def _extent(db: sqlite3.Connection | None, id_: int) -> tuple[int, int, int] | None:
    if db is None:
        return None
    row: tuple[int, int, int] | None = db.execute(
        "SELECT first_ms, last_ms, n FROM extent WHERE series = ?", (id_,)
    ).fetchone()
    return row


def _info(
    reader: Reader, id_: int, address: str, extent: tuple[int, int, int] | None, recent: list[Line]
) -> SeriesInfo:
    times = merge_lines(recent).ts
    if not len(times):
        return SeriesInfo(address, *(extent or (None, None, 0)))
    first, last = int(times[0]), int(times[-1])
    if extent is None:
        return SeriesInfo(address, first, last, len(times))
    fresh = len(times)
    if first <= extent[1]:  # late or rewritten: which of them are there already?
        for line in reader.raw(id_, [], first, last + 1, PIECE):
            if len(line.ts):
                a, b = np.searchsorted(times, (line.ts[0], line.ts[-1] + 1))
                fresh -= int(np.isin(times[a:b], line.ts).sum())
    return SeriesInfo(address, min(first, extent[0]), max(last, extent[1]), extent[2] + fresh)
