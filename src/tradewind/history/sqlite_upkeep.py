"""Upkeep of the embedded sink: rollups of hours that are over, retention, and packing of days that are over.

Every step is short, so that writes come in between; `Upkeep.step` says whether there is more to do.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Sequence

from tradewind.clock import now_ms
from tradewind.history.aggregate import Line, join_lines
from tradewind.history.keeping import Keeping
from tradewind.history.policy import KINDS
from tradewind.history.rollup import GRACE_MS, rollups_of
from tradewind.history.sink import Retained
from tradewind.history.sqlite_files import DAY_MS, HOUR_MS, Partition, meta_of, partition_at, set_meta
from tradewind.history.sqlite_move import Mover
from tradewind.history.sqlite_parts import ROLLED, ROLLING, pack_some, read_parts
from tradewind.history.sqlite_rescue import samples_damaged
from tradewind.history.sqlite_trim import VACUUM_PAGES, Trimmer
from tradewind.history.sqlite_writer import Writer

#: Series whose rollups are made at a time.
SLICE = 200
#: A day is packed so long after its end.
PACK_AFTER_MS = 2 * HOUR_MS
#: Steps of `retain` end after so long; the rest is for the next call.
BUDGET_S = 2.0
#: A step of packing ends after so long.
STEP_S = 0.1


class Upkeep:
    """Works through `writer`, in its thread."""

    def __init__(self, writer: Writer, now: Callable[[], int] = now_ms) -> None:
        self._writer = writer
        self._now = now
        self._mover = Mover(writer)
        self._trimmer = Trimmer(
            writer, self._mover, lambda main, day: self._roll_some(main, day, day.end_ms // HOUR_MS)
        )

    def move_some(self) -> bool:
        """A portion of the tail into the files of its days. True: call again, there is more to do."""
        with self._writer.held("move the tail") as main:
            return self._mover.portion(main)

    def moves(self) -> Generator[None, None, None]:
        """The same with each step, until nothing is left of what the tail has now."""
        return self._mover.moves()

    def forget(self, addresses: Sequence[str]) -> int:
        return self._trimmer.forget(addresses)

    def step(self) -> bool:
        """Make the rollups of some series. True: call again, there is more to do."""
        with self._writer.held("make rollups") as main:
            newest = min(meta_of(main, "newest_ms"), self._now())
            for partition in sorted(self._writer.unrolled):
                if self._roll_some(main, partition, (newest - GRACE_MS) // HOUR_MS):
                    return True
                if partition.end_ms + GRACE_MS <= newest:
                    self._writer.unrolled.discard(partition)
        return False

    def retain(self, now: int, keeping: Keeping) -> Generator[None, None, Retained]:
        """Yields between steps, and stops early when they took too long: the rest is for the next call."""
        writer = self._writer
        with writer.held("retain") as main:
            moved = meta_of(main, "moved_ms")
        if self._dropped("raw", now, keeping) or not moved <= now < moved + HOUR_MS:
            yield from self._mover.moves()
            with writer.held("retain") as main:
                set_meta(main, "moved_ms", now)
        yield
        begun = time.monotonic()
        done = Retained()
        for kind in KINDS:
            for partition in self._dropped(kind, now, keeping):
                while kind == "raw" and self._roll_before_end(partition):
                    yield
                    if time.monotonic() - begun > BUDGET_S:
                        return done
                rows, size = self._drop(partition)
                done = Retained((done.rows or 0) + rows, done.bytes + size, (*done.names, partition.name))
                yield
        for rows in self._trimmer.steps(keeping, now):
            done = Retained((done.rows or 0) + rows, done.bytes, done.names)
            yield
            if time.monotonic() - begun > BUDGET_S:
                return done
        for partition in writer.files.partitions("raw"):
            if partition.end_ms + PACK_AFTER_MS <= now:
                while self._pack_some(partition):
                    yield
                    if time.monotonic() - begun > BUDGET_S:
                        return done
        return done

    def _dropped(self, kind: str, now: int, keeping: Keeping) -> list[Partition]:
        days = keeping.longest(kind)
        return [p for p in self._writer.files.partitions(kind) if days and p.end_ms <= now - days * DAY_MS]

    def _roll_before_end(self, partition: Partition) -> bool:
        with self._writer.held("make rollups") as main:
            return self._roll_some(main, partition, partition.end_ms // HOUR_MS)

    def _drop(self, partition: Partition) -> tuple[int, int]:
        writer = self._writer
        with writer.held("drop a file") as main:
            rows, key = 0, f"{partition.kind}_from_ms"
            if partition.kind == "raw":
                self._mover.rest(main, partition.end_ms)
                while self._roll_some(main, partition, partition.end_ms // HOUR_MS):
                    pass  # what came since the last step
                with writer.changing(partition) as file:
                    (rows,) = file.db.execute("SELECT ifnull(sum(n), 0) FROM extent").fetchone()
                writer.marks.raise_all(partition.end_ms)
            set_meta(main, key, max(partition.end_ms, meta_of(main, key)))
        # The mark is on the disk: what comes for this day from now on is refused, and nobody makes the file again.
        with writer.held("drop a file"):
            size = writer.files.size_of(partition.name)
            writer.close_file(partition.name)
            writer.unrolled.discard(partition)
            writer.files.remove(partition.name)
        return rows, size

    def _roll_some(self, main: sqlite3.Connection, partition: Partition, before_hour: int) -> bool:
        """One slice of the first hour that needs it: of those before `before_hour`. False if none did."""
        if not (self._writer.files.folder / partition.name).exists():
            return False
        with self._writer.changing(partition) as file:
            db = file.db
            row = db.execute(
                "SELECT hour FROM hour WHERE state < ? AND hour < ? ORDER BY hour LIMIT 1", (ROLLED, before_hour)
            ).fetchone()
            if row is not None:
                hour = int(row[0])
                done = meta_of(db, "rolled_series") if meta_of(db, "rolling_hour") == hour else 0
                db.execute("UPDATE hour SET state = ? WHERE hour = ?", (ROLLING, hour))
                ids = _series_in(db, hour, done)
            else:
                row = db.execute("SELECT hour FROM dirty ORDER BY hour LIMIT 1").fetchone()
                if row is None:
                    return False
                hour = int(row[0])
                rows = db.execute("SELECT series FROM dirty WHERE hour = ? LIMIT ?", (hour, SLICE)).fetchall()
                ids, done = [series for (series,) in rows], -1
            lines = {id_: _line(partition, db, id_, hour) for id_ in ids}
        # Rollups first, then the mark that they are true: a crash in between only means to do it again.
        self._store(main, hour, lines)
        with self._writer.changing(partition) as file:
            if done < 0:
                file.db.executemany("DELETE FROM dirty WHERE hour = ? AND series = ?", [(hour, id_) for id_ in ids])
            elif len(ids) < SLICE:
                file.db.execute("UPDATE hour SET state = ? WHERE hour = ?", (ROLLED, hour))
            else:
                set_meta(file.db, "rolling_hour", hour)
                set_meta(file.db, "rolled_series", ids[-1])
        return True

    def _store(self, main: sqlite3.Connection, hour: int, lines: dict[int, Line]) -> None:
        kept = {id_: line for id_, line in lines.items() if len(line.ts)}
        empty = [(id_ << 22 | hour,) for id_ in lines if id_ not in kept]
        cells = rollups_of(list(kept.values()))
        for at, kind in enumerate(("minute", "hour")):
            partition = partition_at(kind, hour * HOUR_MS)
            self._writer.changed.add(partition.name)
            with self._writer.changing(partition) as file:
                self._writer.name_series(file, kept)
                file.db.executemany("DELETE FROM cell WHERE key = ?", empty)
                file.db.executemany(
                    "INSERT OR REPLACE INTO cell (key, data) VALUES (?, ?)",
                    [(id_ << 22 | hour, pair[at].tobytes()) for id_, pair in zip(kept, cells, strict=True)],
                )

    def _pack_some(self, partition: Partition) -> bool:
        """Pack some series of a day that is over, then give back the room, a little at a time. False: all is done."""
        with self._writer.held("pack"):
            if not (self._writer.files.folder / partition.name).exists():
                return False
            with self._writer.changing(partition) as file:
                db, done = file.db, meta_of(file.db, "packed_series")
                if done == -1:
                    return False
                rows = db.execute(
                    "SELECT series FROM extent WHERE series > ? ORDER BY series LIMIT ?", (done, SLICE)
                ).fetchall()
                begun = time.monotonic()
                at: int | None = meta_of(db, "packed_part")  # how far the series after `done` is packed
                for (series,) in rows:
                    at = self._pack_pieces(partition, db, series, at or 0, begun + STEP_S)
                    if at is not None:
                        break
                    set_meta(db, "packed_series", series)
                    if time.monotonic() > begun + STEP_S:
                        break
                set_meta(db, "packed_part", at or 0)
            if not rows and self._writer.give_back(partition, VACUUM_PAGES) == 0:
                with self._writer.changing(partition) as file:
                    set_meta(file.db, "packed_series", -1)
                self._writer.put_away(partition.name)
            return True

    @staticmethod
    def _pack_pieces(partition: Partition, db: sqlite3.Connection, series: int, at: int, until: float) -> int | None:
        """One piece of the series at least, more while there is time; where to go on, None when it is done."""

        def notice(what: str) -> None:
            samples_damaged(partition, what)

        found: int | None = at
        while found is not None:
            found = pack_some(db, partition.start_ms, series, found, notice)
            if time.monotonic() > until:
                break
        return found


def _series_in(db: sqlite3.Connection, hour: int, after: int) -> Sequence[int]:
    rows = db.execute(
        "SELECT series FROM extent WHERE series > ? AND first_ms < ? AND last_ms >= ? ORDER BY series LIMIT ?",
        (after, (hour + 1) * HOUR_MS, hour * HOUR_MS, SLICE),
    )
    return [series for (series,) in rows]


def _line(partition: Partition, db: sqlite3.Connection, series: int, hour: int) -> Line:
    def notice(what: str) -> None:
        samples_damaged(partition, what)

    return join_lines(list(read_parts(db, partition.start_ms, series, hour * HOUR_MS, (hour + 1) * HOUR_MS, notice)))
