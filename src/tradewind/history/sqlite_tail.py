"""The tail: what was written last, as runs in `main.db`, until it is moved to the files of its days.

A run is immutable, so that a reader decodes each only once. A run with a higher id is newer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tradewind.history.aggregate import Line
from tradewind.history.sqlite_columns import Block, decode_run, encode_run, sort_block

#: Small runs that are joined into one, so that readers look into few.
MANY_RUNS = 256
BIG_RUN = 100_000
#: Rows that are joined at most: a write waits for it.
JOINED_ROWS = 200_000


def append_run(main: sqlite3.Connection, block: Block) -> int:
    """`block` is sorted. Returns the id."""
    cursor = main.execute(
        "INSERT INTO run (n, first_ms, last_ms, data) VALUES (?, ?, ?, ?)",
        (len(block.ts), int(block.ts.min()), int(block.ts.max()), encode_run(block)),
    )
    return int(cursor.lastrowid or 0)


def load_tail(main: sqlite3.Connection, since_id: int = 0) -> Block | None:
    """All runs from `since_id` on as one block. Raises Damaged."""
    rows = main.execute("SELECT data, n FROM run WHERE id >= ? ORDER BY id", (since_id,))
    blocks = [decode_run(data, n) for data, n in rows]
    return sort_block(blocks) if blocks else None


def join_small_runs(main: sqlite3.Connection, runs: list[tuple[int, int]], moving: int = 0) -> list[tuple[int, int]]:
    """`runs` are (id, n) in order, of which those up to `moving` stay as they are; returns them as they are afterwards.

    Only the last ones are joined, behind the last big one: the new run is the newest, and must not overtake any other.
    """
    start = max((at + 1 for at, (id_, n) in enumerate(runs) if n >= BIG_RUN or id_ <= moving), default=0)
    if len(runs) - start < MANY_RUNS:
        return runs
    rows = sum(n for _, n in runs[start:])
    while rows > JOINED_ROWS:
        rows -= runs[start][1]
        start += 1
    block = load_tail(main, runs[start][0])
    if block is None:
        return runs
    main.execute("DELETE FROM run WHERE id >= ?", (runs[start][0],))
    return [*runs[:start], (append_run(main, block), len(block.ts))]


class Run(NamedTuple):
    id: int
    first_ms: int
    last_ms: int
    block: Block


class TailCache:
    """The decoded runs, shared by the readers of a process."""

    def __init__(self) -> None:
        self._blocks: dict[int, Run] = {}
        self._lock = threading.Lock()

    def load(self, main: sqlite3.Connection) -> Tail:
        """As `main` sees it now. Raises Damaged."""
        ids = [id_ for (id_,) in main.execute("SELECT id FROM run ORDER BY id")]
        with self._lock:
            blocks = {id_: self._blocks[id_] for id_ in ids if id_ in self._blocks}
        for id_ in ids:
            if id_ not in blocks:
                row = main.execute("SELECT first_ms, last_ms, data, n FROM run WHERE id = ?", (id_,)).fetchone()
                blocks[id_] = Run(id_, row[0], row[1], decode_run(row[2], row[3]))
        with self._lock:
            self._blocks = blocks
        return Tail([blocks[id_] for id_ in ids])


class Tail:
    """The tail at one moment."""

    def __init__(self, runs: list[Run]) -> None:
        self._runs = runs

    def lines(self, ids: Sequence[int], from_ms: int, to_ms: int) -> dict[int, list[Line]]:
        """What it has of these series in [from_ms, to_ms), the newest writing last: for `merge_lines`."""
        found: dict[int, list[Line]] = {}
        wanted = np.array(sorted(ids), np.int64)
        for _, first_ms, last_ms, block in self._runs:
            if last_ms < from_ms or first_ms >= to_ms:
                continue
            begins = np.searchsorted(block.series, wanted)
            ends = np.searchsorted(block.series, wanted, side="right")
            for at in np.flatnonzero(ends > begins).tolist():
                line = block.line(int(begins[at]), int(ends[at]))
                if first_ms < from_ms or last_ms >= to_ms:
                    line = line.between(from_ms, to_ms)
                if len(line.ts):
                    found.setdefault(int(wanted[at]), []).append(line)
        return found

    def moved(self, run: int, series: int) -> Tail:
        """The part of it that a file already has of its day, if it says that it has the runs up to `run` and of these
        the series up to `series`."""
        runs = [each for each in self._runs if each.id <= run]
        ends = [int(np.searchsorted(each.block.series, series, side="right")) for each in runs]
        return Tail([each._replace(block=each.block.cut(0, end)) for each, end in zip(runs, ends, strict=True) if end])

    def rows(self, from_ms: int, to_ms: int) -> int:
        """How many it has in [from_ms, to_ms)."""
        count = 0
        for _, first_ms, last_ms, block in self._runs:
            if first_ms >= from_ms and last_ms < to_ms:
                count += len(block.ts)
            elif last_ms >= from_ms and first_ms < to_ms:
                count += int(np.count_nonzero((block.ts >= from_ms) & (block.ts < to_ms)))
        return count

    def span(self) -> tuple[int, int] | None:
        """The oldest and the newest time in it."""
        if not self._runs:
            return None
        return min(run.first_ms for run in self._runs), max(run.last_ms for run in self._runs)
