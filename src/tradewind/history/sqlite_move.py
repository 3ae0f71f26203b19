"""The tail on its way into the files of its days: a portion at a time, so that no write waits long behind it.

A move is of the runs that are there when it begins; `main.db` names it until the last of them is gone. A portion is
committed in the file of its day together with how far the move has come there. The runs go when all of them is in
files, the oldest first: one that is left must not hide a newer one that is gone. After a crash the same move goes on;
what is in both places is the same sample.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing

import numpy as np

from tradewind.history.sink import SinkAway
from tradewind.history.sqlite_columns import Block, decode_run, sort_block
from tradewind.history.sqlite_files import DAY_MS, meta_of, partition_at, set_meta
from tradewind.history.sqlite_parts import add_block
from tradewind.history.sqlite_rescue import samples_damaged
from tradewind.history.sqlite_writer import Writer

#: A portion ends after so long, or so long when the tail grows faster than it is moved.
PORTION_S = 0.06
LONG_PORTION_S = 0.8
TAIL_ROWS_HIGH = 4_000_000
#: Series that are added at a time, by their ids.
SLICE = 250
#: Behind every series: the move is done with a day.
ALL = 2**62


class Frozen:
    """The runs of a move, decoded, by day. `token` names the move, `upto` is the last run."""

    def __init__(self, token: int, upto: int) -> None:
        self.token = token
        self.upto = upto
        self.days: dict[int, list[Block]] = {}
        self.done: set[int] = set()
        self._loaded = 0

    def load(self, main: sqlite3.Connection, until: float) -> bool:
        """False: the time was up before the last run. Raises Damaged."""
        query = "SELECT id, n, data FROM run WHERE id > ? AND id <= ? ORDER BY id"
        with closing(main.execute(query, (self._loaded, self.upto))) as rows:
            for id_, n, data in rows:
                self._add(decode_run(data, n))
                self._loaded = id_
                if time.monotonic() > until:
                    return bool(id_ == self.upto)
        return True

    def portion(self, day: int, after: int) -> tuple[Block, int] | None:
        """What the series behind `after`, some of them, have in a day, and the last of these; None: there are none."""
        blocks = self.days[day]
        begins = [int(np.searchsorted(block.series, after, side="right")) for block in blocks]
        firsts = [int(block.series[at]) for block, at in zip(blocks, begins, strict=True) if at < len(block.series)]
        if not firsts:
            return None
        last = min(firsts) + SLICE - 1
        ends = [int(np.searchsorted(block.series, last, side="right")) for block in blocks]
        cuts = [block.cut(a, b) for block, a, b in zip(blocks, begins, ends, strict=True) if a < b]
        return sort_block(cuts), last

    def _add(self, block: Block) -> None:
        days = block.ts // DAY_MS
        if days.min() == days.max():
            self.days.setdefault(int(days[0]), []).append(block)
            return
        order = np.argsort(days, kind="stable")
        block, days = block.pick(order), days[order]
        starts = np.append(0, np.flatnonzero(days[1:] != days[:-1]) + 1)
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(days)], strict=True):
            self.days.setdefault(int(days[begin]), []).append(block.cut(begin, end))


class Mover:
    """Works through `writer`, in its thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._frozen: Frozen | None = None
        self._idle: list[str] = []
        self._lost = 0

    def moves(self, before_ms: int | None = None) -> Generator[None, None, None]:
        """Moves what the tail has now, a portion before each yield. `before_ms`: only if it has something older."""
        writer = self._writer
        with writer.held("move the tail") as main:
            if before_ms is not None and not _has_older(main, before_ms):
                return
            last = writer.runs[-1][0] if writer.runs else 0
        while True:
            with writer.held("move the tail") as main:
                if not self._idle and (not writer.runs or writer.runs[0][0] > last):
                    return
                self.portion(main)
            yield

    def rest(self, main: sqlite3.Connection, before_ms: int | None = None) -> None:
        """Empties the tail at one go, if it has something older; after `moves` there is little in it."""
        if before_ms is None or _has_older(main, before_ms):
            while self._writer.runs:
                self.portion(main, LONG_PORTION_S)

    def portion(self, main: sqlite3.Connection, budget_s: float | None = None) -> bool:
        """Begins a move or goes on with it. False: it is done, or there is nothing to move."""
        writer = self._writer
        if self._idle:
            writer.put_away(self._idle.pop())
            return bool(self._idle)
        if not writer.runs:
            self._frozen = None
            return False
        if budget_s is None:
            budget_s = PORTION_S if writer.tail_size < TAIL_ROWS_HIGH else LONG_PORTION_S
        until = time.monotonic() + budget_s
        if not self._is_begun(main):
            return True
        frozen = self._frozen_runs(main)
        if not frozen.load(main, until):
            return True
        for day in sorted(set(frozen.days) - frozen.done):
            if not self._fill(frozen, day, until) or time.monotonic() > until:
                return True
        return not self._empty(main, frozen, until) or bool(self._idle)

    def _is_begun(self, main: sqlite3.Connection) -> bool:
        """If not it is now; committed before anything else, so that the same move goes on after a crash."""
        if meta_of(main, "move"):
            return True
        self._writer.moving = self._writer.runs[-1][0]
        set_meta(main, "move", secrets.randbits(62) | 1)
        set_meta(main, "move_run", self._writer.moving)
        return False

    def _frozen_runs(self, main: sqlite3.Connection) -> Frozen:
        token, writer = meta_of(main, "move"), self._writer
        if self._frozen is None or self._frozen.token != token:
            self._frozen = Frozen(token, meta_of(main, "move_run"))
        if self._lost != writer.set_aside:  # maybe a file that was done with, and the runs are still there
            self._lost = writer.set_aside
            self._frozen.done.clear()
        return self._frozen

    def _fill(self, frozen: Frozen, day: int, until: float) -> bool:
        """Some series into the file of a day. False: there are more."""
        try:
            return self._fill_once(frozen, day, until)
        except SinkAway as error:
            if error.code != "set_aside":
                raise
            return self._fill_once(frozen, day, until)  # into a new file, from the first series on

    def _fill_once(self, frozen: Frozen, day: int, until: float) -> bool:
        partition, writer = partition_at("raw", day * DAY_MS), self._writer
        with writer.changing(partition) as file:
            done = meta_of(file.db, "move_series") if meta_of(file.db, "move") == frozen.token else 0
            while done < ALL:
                found = frozen.portion(day, done)
                if found is None:
                    done = ALL
                    break
                block, done = found
                writer.name_series(file, np.unique(block.series).tolist())
                add_block(file.db, partition.start_ms, block, lambda what: samples_damaged(partition, what))
                if time.monotonic() > until:
                    break
            for key, value in (("move", frozen.token), ("move_run", frozen.upto), ("move_series", done)):
                set_meta(file.db, key, value)
        writer.unrolled.add(partition)
        writer.changed.add(partition.name)
        if done < ALL:
            return False
        frozen.done.add(day)
        return True

    def _empty(self, main: sqlite3.Connection, frozen: Frozen, until: float) -> bool:
        """Remove runs, all of which is in files. False: there are more."""
        writer = self._writer
        newest = max((int(block.ts.max()) for blocks in frozen.days.values() for block in blocks), default=0)
        set_meta(main, "newest_ms", max(newest, meta_of(main, "newest_ms")))
        while writer.runs and writer.runs[0][0] <= frozen.upto:
            id_, _ = writer.runs.pop(0)
            main.execute("DELETE FROM run WHERE id = ?", (id_,))
            if time.monotonic() > until and id_ < frozen.upto:
                return False
        main.execute("DELETE FROM meta WHERE key IN ('move', 'move_run')")
        writer.moving, self._frozen = 0, None
        touched = {partition_at("raw", day * DAY_MS).name for day in frozen.days}
        self._idle = [name for name in writer.open_files() if name not in touched]
        return True


def _has_older(main: sqlite3.Connection, before_ms: int) -> bool:
    (oldest,) = main.execute("SELECT min(first_ms) FROM run").fetchone()
    return oldest is not None and oldest < before_ms
