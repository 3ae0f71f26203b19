"""Retention within the files of the embedded sink: what classes that keep less than the longest one have done with.

Files go as a whole when they are past the longest class (`sqlite_upkeep`). A file is looked at once for each class and
time that it ends at, and again when something was added. Every step is short, so that writes come in between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tradewind.history.keeping import Keeping
from tradewind.history.policy import KINDS
from tradewind.history.sqlite_files import HOUR_MS, Partition
from tradewind.history.sqlite_marks import raise_marks
from tradewind.history.sqlite_move import Mover
from tradewind.history.sqlite_parts import forget_series
from tradewind.history.sqlite_writer import Writer

#: Series that lose something in one step.
SLICE = 200
#: Pages given back at a time: 4 MB.
VACUUM_PAGES = 1000
#: Room is given back when so much of a file is free; less is used again, or goes with the file.
FREE_SHARE = 1 / 8

#: (series id, where what is kept begins)
Ends: TypeAlias = Sequence[tuple[int, int]]


class Trimmer:
    """Works through `writer`, in its thread. `roll` makes some rollups of a day; False when none was missing."""

    def __init__(self, writer: Writer, mover: Mover, roll: Callable[[sqlite3.Connection, Partition], bool]) -> None:
        self._writer = writer
        self._mover = mover
        self._roll = roll
        self._done: dict[str, tuple[Keeping, dict[str, int]]] = {}

    def steps(self, keeping: Keeping, now: int) -> Iterator[int]:
        """Removes a little with each, and gives the number of samples in it. Samples before the rollups that they may
        still change; who stops early goes on with a new call."""
        for kind in KINDS:
            ends = keeping.shorter(kind, now)
            for partition in self._writer.files.partitions(kind) if ends else ():
                past = {name: min(end, partition.end_ms) for name, end in ends.items() if end > partition.start_ms}
                changed = self._writer.changed
                if past and (partition.name in changed or self._done.get(partition.name) != (keeping, past)):
                    changed.discard(partition.name)
                    self._done.pop(partition.name, None)
                    yield from self._partition(partition, keeping, past)
                    self._done[partition.name] = keeping, past

    def forget(self, addresses: Sequence[str]) -> int:
        """Everything of these series, rollups too. How many samples went."""
        writer, removed = self._writer, 0
        with writer.held("forget") as main:
            self._mover.rest(main)
            ids = [id_ for address in addresses if (id_ := writer.forget_name(main, address))]
            for kind in ("minute", "hour", "raw"):
                for partition in writer.files.partitions(kind) if ids else ():
                    with writer.changing(partition) as file:
                        file.names.difference_update(ids)
                        if kind == "raw":
                            removed += sum(forget_series(file.db, id_) for id_ in ids)
                            continue
                        keys = [(id_ << 22, (id_ + 1 << 22) - 1) for id_ in ids]
                        file.db.executemany("DELETE FROM cell WHERE key BETWEEN ? AND ?", keys)
                        file.db.executemany("DELETE FROM series WHERE id = ?", [(id_,) for id_ in ids])
        return removed

    def _partition(self, partition: Partition, keeping: Keeping, past: dict[str, int]) -> Iterator[int]:
        is_raw = partition.kind == "raw"
        for _ in self._mover.moves(partition.end_ms) if is_raw else ():
            yield 0
        while is_raw and self._roll_some(partition):
            yield 0
        ends = self._concerned(partition, keeping, past)
        for at in range(0, len(ends), SLICE):
            some = ends[at : at + SLICE]
            yield self._take_samples(partition, some) if is_raw else self._take_cells(partition, some)
        while ends and self._give_back_some(partition):
            yield 0

    def _exists(self, partition: Partition) -> bool:
        """Or opening it would make it anew."""
        return (self._writer.files.folder / partition.name).exists()

    def _roll_some(self, partition: Partition) -> bool:
        with self._writer.held("make rollups") as main:
            return self._exists(partition) and self._roll(main, partition)

    def _concerned(self, partition: Partition, keeping: Keeping, past: dict[str, int]) -> Ends:
        with self._writer.held("retain"):
            if not self._exists(partition):
                return []
            query = "SELECT id, address FROM series"
            if partition.kind == "raw":
                query += " WHERE id IN (SELECT series FROM extent)"
            with self._writer.changing(partition) as file:
                rows = file.db.execute(query).fetchall()
            classes = ((id_, keeping.class_of(address)) for id_, address in rows)
            return [(id_, past[name]) for id_, name in classes if name in past]

    def _take_samples(self, partition: Partition, ends: Ends) -> int:
        """Of a day, all that these series have: days go as a whole."""
        writer, removed = self._writer, 0
        with writer.held("retain") as main:
            self._mover.rest(main, partition.end_ms)
            while self._exists(partition) and self._roll(main, partition):
                pass  # what came since the last step
            writer.marks.raise_some(main, ends)
        # The marks are on the disk: what comes for this day from now on is refused, so that no rollup is made of less.
        with writer.held("retain"):
            if self._exists(partition):
                with writer.changing(partition) as file:
                    for id_, _ in ends:
                        removed += forget_series(file.db, id_)
                        file.names.discard(id_)
        return removed

    def _take_cells(self, partition: Partition, ends: Ends) -> int:
        writer = self._writer
        with writer.held("retain") as main:
            if not self._exists(partition):
                return 0
            with writer.changing(partition) as file:
                query = "SELECT 1 FROM cell WHERE key BETWEEN ? AND ? LIMIT 1"
                ends = [end for end in ends if file.db.execute(query, _keys(*end)).fetchone()]
            raise_marks(main, partition.kind, ends)
        with writer.held("retain"):
            if ends and self._exists(partition):
                with writer.changing(partition) as file:
                    file.db.executemany("DELETE FROM cell WHERE key BETWEEN ? AND ?", [_keys(*end) for end in ends])
        return 0

    def _give_back_some(self, partition: Partition) -> bool:
        """False when there is nothing left to give back, or not enough to be worth it."""
        with self._writer.held("give room back"):
            if not self._exists(partition):
                return False
            with self._writer.changing(partition) as file:
                (free,) = file.db.execute("PRAGMA freelist_count").fetchone()
                (pages,) = file.db.execute("PRAGMA page_count").fetchone()
            is_worth_it = free >= max(pages * FREE_SHARE, 1)
            if is_worth_it and self._writer.give_back(partition, VACUUM_PAGES):
                return True
            self._writer.put_away(partition.name)
            return False


def _keys(id_: int, end_ms: int) -> tuple[int, int]:
    """The first and the last key of the cells of a series that lie before."""
    return id_ << 22, (id_ << 22) + end_ms // HOUR_MS - 1
