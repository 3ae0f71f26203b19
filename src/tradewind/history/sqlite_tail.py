"""The tail: what was written last, as runs in `main.db`, until the writer moves it to the files of its days.

A run is immutable, so that a reader decodes each only once. A run with a higher id is newer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence

import numpy as np

from tradewind.history.aggregate import Line
from tradewind.history.sqlite_columns import Block, decode_run, encode_run, sort_block

#: Small runs that are joined into one, so that readers look into few.
MANY_RUNS = 256
BIG_RUN = 100_000


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


def join_small_runs(main: sqlite3.Connection, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """`runs` are (id, n) in order; returns them as they are afterwards.

    Only those behind the last big one are joined: the new run is the newest, and must not overtake any other.
    """
    start = max((at + 1 for at, (_, n) in enumerate(runs) if n >= BIG_RUN), default=0)
    if len(runs) - start < MANY_RUNS:
        return runs
    block = load_tail(main, runs[start][0])
    if block is None:
        return runs
    main.execute("DELETE FROM run WHERE id >= ?", (runs[start][0],))
    return [*runs[:start], (append_run(main, block), len(block.ts))]


class TailCache:
    """The decoded runs, shared by the readers of a process."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[int, int, Block]] = {}
        self._lock = threading.Lock()

    def load(self, main: sqlite3.Connection) -> Tail:
        """As `main` sees it now. Raises Damaged."""
        ids = [id_ for (id_,) in main.execute("SELECT id FROM run ORDER BY id")]
        with self._lock:
            blocks = {id_: self._blocks[id_] for id_ in ids if id_ in self._blocks}
        for id_ in ids:
            if id_ not in blocks:
                row = main.execute("SELECT first_ms, last_ms, data, n FROM run WHERE id = ?", (id_,)).fetchone()
                blocks[id_] = row[0], row[1], decode_run(row[2], row[3])
        with self._lock:
            self._blocks = blocks
        return Tail([blocks[id_] for id_ in ids])


class Tail:
    """The tail at one moment."""

    def __init__(self, runs: list[tuple[int, int, Block]]) -> None:
        self._runs = runs

    def lines(self, ids: Sequence[int], from_ms: int, to_ms: int) -> dict[int, list[Line]]:
        """What it has of these series in [from_ms, to_ms), the newest writing last: for `merge_lines`."""
        found: dict[int, list[Line]] = {}
        wanted = np.array(sorted(ids), np.int64)
        for first_ms, last_ms, block in self._runs:
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

    def series(self) -> list[int]:
        every = [block.series for _, _, block in self._runs]
        return [] if not every else list(np.unique(np.concatenate(every)).tolist())

    @property
    def rows(self) -> int:
        return sum(len(block.ts) for _, _, block in self._runs)

    def span(self) -> tuple[int, int] | None:
        """The oldest and the newest time in it."""
        if not self._runs:
            return None
        return min(first for first, _, _ in self._runs), max(last for _, last, _ in self._runs)
