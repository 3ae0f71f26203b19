"""A day of raw samples in one file: parts of a series never overlap in time, so reading needs no sorting.

The functions run inside a transaction of the caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np

from tradewind.history.aggregate import Ints, Line, join_lines, merge_lines
from tradewind.history.sqlite_columns import Block, Damaged, decode_part, encode_part, is_packed, pack_part
from tradewind.history.sqlite_files import DAY_MS, HOUR_MS

#: Samples in a part at most: 48 kB, decoded as fast as SQLite can hand it over.
MAX_PART = 4096
#: Samples that are packed at a time: what that takes is some ten megabytes, and a few hundredths of a second.
PACK_ROWS = 32 * MAX_PART
#: An hour is open until its rollups are made; while they are made and later, late samples mark it as dirty.
OPEN, ROLLING, ROLLED = 0, 1, 2

#: Told of what was damaged and is skipped.
Notice: TypeAlias = Callable[[str], None]

_UPSERT = """
INSERT INTO extent (series, first_ms, last_ms, n, value, quality) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (series) DO UPDATE SET
    value = iif(excluded.last_ms >= last_ms, excluded.value, value),
    quality = iif(excluded.last_ms >= last_ms, excluded.quality, quality),
    first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms), n = n + excluded.n
"""
_OVERLAPPING = """
SELECT key, n, data FROM part
WHERE key BETWEEN ifnull((SELECT max(key) FROM part WHERE key BETWEEN ?1 AND ?2), ?2) AND ?3 AND last >= ?2 - ?1
ORDER BY key
"""
_INSERT = "INSERT OR REPLACE INTO part (key, last, n, data) VALUES (?, ?, ?, ?)"


def add_block(db: sqlite3.Connection, start_ms: int, block: Block, notice: Notice) -> None:
    """Store a block, all of it in the day that begins at `start_ms`. Most samples are newer than what is there of
    their series, and are appended without a look at it."""
    ends = int(block.series[0]), int(block.series[-1])
    lasts = dict(db.execute("SELECT series, last_ms FROM extent WHERE series BETWEEN ? AND ?", ends))
    parts: list[tuple[int, int, int, bytes]] = []
    extents = []
    gone: list[int] = []
    for series, begin, end in block.groups():
        line = block.line(begin, end)
        first, last = int(line.ts[0]), int(line.ts[-1])
        added = end - begin
        if first <= lasts.get(series, -1):
            old = list(_overlapping(db, start_ms, series, first, last + 1))
            gone += [key for key, _, _ in old]
            lines = [sound for key, n, data in old if (sound := _decoded(key, n, data, start_ms, notice)) is not None]
            line = merge_lines([*lines, line])
            added = len(line.ts) - sum(n for _, n, _ in old)
        extents.append((series, first, last, added, float(block.value[end - 1]), int(block.quality[end - 1])))
        parts += _parts_of(line, series, start_ms, encode_part)
    db.executemany("DELETE FROM part WHERE key = ?", ((key,) for key in gone))
    db.executemany(_INSERT, parts)
    db.executemany(_UPSERT, extents)
    _mark(db, block)


def read_parts(
    db: sqlite3.Connection, start_ms: int, series: int, from_ms: int, to_ms: int, notice: Notice
) -> Iterator[Line]:
    """The samples in [from_ms, to_ms), a part at a time, in order."""
    from_ms, to_ms = max(from_ms, start_ms), min(to_ms, start_ms + DAY_MS)
    if from_ms >= to_ms:
        return
    for key, n, data in _overlapping(db, start_ms, series, from_ms, to_ms):
        line = _decoded(key, n, data, start_ms, notice)
        if line is not None:
            inside = line.ts[0] >= from_ms and line.ts[-1] < to_ms
            yield line if inside else line.between(from_ms, to_ms)


def last_before(db: sqlite3.Connection, start_ms: int, series: int, ts_ms: int, notice: Notice) -> Line | None:
    """The samples before `ts_ms` in the part that holds the last of them."""
    until = min(ts_ms, start_ms + DAY_MS) - start_ms
    if until <= 0:
        return None
    low, high = series << 27, series << 27 | (until - 1)
    row = db.execute(
        "SELECT key, n, data FROM part WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1", (low, high)
    ).fetchone()
    line = None if row is None else _decoded(row[0], row[1], row[2], start_ms, notice)
    return None if line is None else line.between(start_ms, ts_ms)


def hours_not_rolled(db: sqlite3.Connection, series: int) -> list[int]:
    """Hours of the file whose rollups do not tell the whole of this series."""
    query = "SELECT hour FROM hour WHERE state < ? UNION SELECT hour FROM dirty WHERE series = ?"
    return [hour for (hour,) in db.execute(query, (ROLLED, series))]


def forget_series(db: sqlite3.Connection, series: int) -> int:
    row = db.execute("SELECT n FROM extent WHERE series = ?", (series,)).fetchone()
    db.execute("DELETE FROM part WHERE key BETWEEN ? AND ?", (series << 27, (series + 1 << 27) - 1))
    for table, column in (("extent", "series"), ("dirty", "series"), ("series", "id")):
        db.execute(f"DELETE FROM {table} WHERE {column} = ?", (series,))
    return int(row[0]) if row else 0


def pack_some(db: sqlite3.Connection, start_ms: int, series: int, begin: int, notice: Notice) -> int | None:
    """Few full parts in place of many small ones, compressed: of the parts that begin `begin` ms after the start of the
    day or later, about PACK_ROWS samples. Where to go on, in ms; None: the series is done."""
    low = series << 27
    rows, count = [], 0
    for row in db.execute(
        "SELECT key, n, data FROM part WHERE key BETWEEN ? AND ? ORDER BY key", (low | begin, low + (1 << 27) - 1)
    ):
        rows.append(row)
        count += row[1]
        if count >= PACK_ROWS:
            break
    is_end = count < PACK_ROWS
    last = rows[-1][0] & ((1 << 27) - 1) if rows else begin
    if not rows or (all(is_packed(data) for _, _, data in rows) and len(rows) <= 2 * count / MAX_PART):
        return None if is_end else last + 1
    lines = [line for key, n, data in rows if (line := _decoded(key, n, data, start_ms, notice)) is not None]
    db.executemany("DELETE FROM part WHERE key = ?", ((key,) for key, _, _ in rows))
    parts = _parts_of(join_lines(lines), series, start_ms, pack_part) if lines else []
    db.executemany(_INSERT, parts)
    if is_end:
        return None
    # What did not fill its part goes with the next ones.
    is_short = bool(parts) and parts[-1][2] < MAX_PART
    return (parts[-1][0] & ((1 << 27) - 1)) if is_short else last + 1


def _overlapping(
    db: sqlite3.Connection, start_ms: int, series: int, from_ms: int, to_ms: int
) -> Iterable[tuple[int, int, bytes]]:
    low = series << 27
    return db.execute(_OVERLAPPING, (low, low + from_ms - start_ms, low + to_ms - start_ms - 1))


def _parts_of(
    line: Line, series: int, start_ms: int, encode: Callable[[Line, int], bytes]
) -> list[tuple[int, int, int, bytes]]:
    parts = []
    for at in range(0, len(line.ts), MAX_PART):
        piece = line.cut(at, at + MAX_PART)
        first, last = int(piece.ts[0]) - start_ms, int(piece.ts[-1]) - start_ms
        parts.append((series << 27 | first, last, len(piece.ts), encode(piece, start_ms)))
    return parts


def _decoded(key: int, n: int, data: bytes, start_ms: int, notice: Notice) -> Line | None:
    try:
        return decode_part(data, n, start_ms)
    except Damaged as error:
        notice(f"{n} samples of series {key >> 27} are damaged: {error}")
        return None


def _mark(db: sqlite3.Connection, block: Block) -> None:
    hours: Ints = block.ts // HOUR_MS
    touched = np.unique(hours).tolist()
    db.executemany("INSERT OR IGNORE INTO hour (hour, state) VALUES (?, ?)", [(hour, OPEN) for hour in touched])
    begun = {hour for (hour,) in db.execute("SELECT hour FROM hour WHERE state > ?", (OPEN,))}
    for hour in begun.intersection(touched):
        late = np.unique(block.series[hours == hour]).tolist()
        db.executemany("INSERT OR IGNORE INTO dirty (hour, series) VALUES (?, ?)", [(hour, series) for series in late])
