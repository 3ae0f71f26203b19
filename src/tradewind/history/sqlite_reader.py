"""The reading side of the embedded sink: connections of its own, one question at a time, in any thread or process.

A question looks at the tail first and at the files after it: what the writer moves meanwhile is seen twice, never not
at all. Within a question each file is seen as it was at one moment.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

import numpy as np

from tradewind.history.aggregate import CELL, NO_CELLS, Cells, Line, answer, cells_of, merge_lines
from tradewind.history.rollup import aligned, levels_for, stretches
from tradewind.history.sink import Bucket, Sample
from tradewind.history.sqlite_connections import Connections
from tradewind.history.sqlite_files import DAY_MS, HOUR_MS, MAX_MS, MINUTE_MS, Partition
from tradewind.history.sqlite_parts import hours_not_rolled, last_before, read_parts
from tradewind.history.sqlite_pieces import PIECE, first_cells, joined_parts

#: Rollups are read for so long a time at once: of minutes, 4 MB.
ROLLED_MS = 32 * DAY_MS


class Reader(Connections):
    """Answers what the sink is asked. Raises SinkAway."""

    def read(self, addresses: Sequence[str], from_ms: int, to_ms: int, limit: int) -> dict[str, list[Sample]]:
        with self.asking("read") as main:
            ids, tail = self.look_up(main, addresses)
            recent = tail.lines(list(ids.values()), from_ms, to_ms)
            found: dict[str, list[Sample]] = {}
            for address in addresses:
                rows: list[Sample] = []
                if address in ids:
                    id_ = ids[address]
                    with closing(self.raw(id_, recent.get(id_, []), from_ms, to_ms, min(limit, PIECE))) as lines:
                        for line in lines:
                            rows += line.cut(0, limit - len(rows)).rows()
                            if len(rows) >= limit:
                                break
                found[address] = rows
            return found

    def buckets(
        self,
        addresses: Sequence[str],
        from_ms: int,
        to_ms: int,
        bucket_ms: int,
        aggs: Sequence[str],
        limit: int,
        gap_ms: int,
    ) -> dict[str, list[Bucket]]:
        area = "integral" in aggs
        levels = levels_for(bucket_ms, gap_ms if area else None)
        with self.asking("read") as main:
            ids, tail = self.look_up(main, addresses)
            recent = tail.lines(list(ids.values()), from_ms - gap_ms, to_ms)
            found: dict[str, list[Bucket]] = {}
            for address in addresses:
                cells, before = NO_CELLS, None
                if address in ids and from_ms < to_ms:
                    id_ = ids[address]
                    lines = recent.get(id_, [])
                    with closing(self._cells(id_, lines, from_ms, to_ms, bucket_ms, levels, gap_ms)) as pieces:
                        cells = first_cells(pieces, bucket_ms, limit, gap_ms)
                    last = self._before(id_, lines, from_ms, gap_ms) if area else None
                    before = None if last is None else (from_ms, *last)
                found[address] = answer(cells, bucket_ms, aggs, limit, to_ms, gap_ms, before)
            return found

    def latest(self, addresses: Sequence[str]) -> dict[str, Sample | None]:
        with self.asking("read") as main:
            ids, tail = self.look_up(main, addresses)
            recent = tail.lines(list(ids.values()), 0, MAX_MS)
            newest: dict[int, Sample] = {}
            wanted = set(ids.values())
            for partition in reversed(self.files.partitions("raw")):
                if not wanted:
                    break
                for id_, sample in self._extents(partition, wanted).items():
                    newest[id_] = sample
                    wanted.discard(id_)
            for id_, lines in recent.items():
                ts, value, quality = (column[-1].item() for column in merge_lines(lines))
                if id_ not in newest or ts >= newest[id_][0]:
                    newest[id_] = ts, value, quality
            return {address: newest.get(ids.get(address, 0)) for address in addresses}

    def _extents(self, partition: Partition, wanted: set[int]) -> dict[int, Sample]:
        found: dict[int, Sample] = {}
        with self.fenced(partition):
            db = self.file(partition.name)
            query = "SELECT last_ms, value, quality FROM extent WHERE series = ?"
            for id_ in wanted if db is not None else ():
                row = db.execute(query, (id_,)).fetchone() if db is not None else None
                if row is not None:
                    found[id_] = row
        return found

    def raw(self, id_: int, recent: list[Line], from_ms: int, to_ms: int, size: int) -> Generator[Line, None, None]:
        """The samples of a series in order, about `size` at a time; close it when no more is wanted. `recent` is what
        the tail has."""
        late, at = merge_lines(recent), from_ms
        for partition in self.files.partitions("raw"):
            if partition.end_ms <= from_ms or partition.start_ms >= to_ms:
                continue
            until = min(partition.end_ms, to_ms)
            with self.fenced(partition):
                db = self.file(partition.name)
                if db is not None:
                    notice = self.notice_of(partition)
                    parts = read_parts(db, partition.start_ms, id_, from_ms, to_ms, notice)
                    for line in joined_parts(parts, size):
                        end = int(line.ts[-1]) + 1
                        self.spend(len(line.ts))
                        between = late.between(at, end)
                        yield merge_lines([line, between]) if len(between.ts) else line
                        at = end
            yield late.between(at, until)
            at = until
        if at < to_ms:
            yield late.between(at, to_ms)

    def _cells(
        self,
        id_: int,
        recent: list[Line],
        from_ms: int,
        to_ms: int,
        bucket_ms: int,
        levels: tuple[int, ...],
        gap_ms: int,
    ) -> Generator[Cells, None, None]:
        """Cells of a range in order: from rollups where they tell the truth, from samples elsewhere."""
        if from_ms >= to_ms:
            return
        inner = aligned(from_ms, to_ms, levels[0]) if levels else None
        if inner is None and levels:
            yield from self._cells(id_, recent, from_ms, to_ms, bucket_ms, levels[1:], gap_ms)
        elif inner is None:
            for line in self.raw(id_, recent, from_ms, to_ms, PIECE):
                yield cells_of(line, bucket_ms, gap_ms)
        else:
            begin, end = inner
            yield from self._cells(id_, recent, from_ms, begin, bucket_ms, levels[1:], gap_ms)
            hours = self._hours_of_samples(id_, recent, begin, end)
            files = self._rollups(levels[0], begin, end)
            # Whoever asks for all that there is does not pay for the years in which there is nothing.
            known = [(each.start_ms, each.end_ms) for each in files]
            known += [(hour * HOUR_MS, (hour + 1) * HOUR_MS) for hour in (min(hours), max(hours))] if hours else []
            at = max(begin, min((low for low, _ in known), default=end) // DAY_MS * DAY_MS)
            last = min(end, max((-(-high // DAY_MS) * DAY_MS for _, high in known), default=begin))
            while at < last:
                until = min(at + ROLLED_MS, last)
                rolled = self._rolled(id_, files, at, until)
                for start, stop in [*stretches(hours, at, until), (until, until)]:
                    a, b = np.searchsorted(rolled["first_ms"], (at, start))
                    yield rolled[a:b]
                    yield from self._cells(id_, recent, start, stop, bucket_ms, (), gap_ms)
                    at = stop
            yield from self._cells(id_, recent, end, to_ms, bucket_ms, levels[1:], gap_ms)

    def _hours_of_samples(self, id_: int, recent: list[Line], from_ms: int, to_ms: int) -> set[int]:
        """The hours for which rollups do not tell the whole."""
        hours: set[int] = set()
        for line in recent:
            hours.update(np.unique(line.ts // HOUR_MS).tolist())
        for partition in self.files.partitions("raw"):
            if partition.end_ms > from_ms and partition.start_ms < to_ms:
                with self.fenced(partition):
                    db = self.file(partition.name)
                    if db is not None:
                        hours.update(hours_not_rolled(db, id_))
        return hours

    def _rollups(self, width_ms: int, from_ms: int, to_ms: int) -> list[Partition]:
        files = self.files.partitions("hour" if width_ms == HOUR_MS else "minute")
        return [each for each in files if each.end_ms > from_ms and each.start_ms < to_ms]

    def _rolled(self, id_: int, files: Sequence[Partition], from_ms: int, to_ms: int) -> Cells:
        blobs: list[bytes] = []
        low, high = id_ << 22 | from_ms // HOUR_MS, id_ << 22 | (to_ms - 1) // HOUR_MS
        for partition in files:
            if partition.end_ms > from_ms and partition.start_ms < to_ms:
                with self.fenced(partition):
                    db = self.file(partition.name)
                    if db is not None:
                        query = "SELECT data FROM cell WHERE key BETWEEN ? AND ? ORDER BY key"
                        blobs += [data for (data,) in db.execute(query, (low, high))]
        return np.frombuffer(b"".join(blobs), CELL)

    def _before(self, id_: int, recent: list[Line], ts_ms: int, gap_ms: int) -> tuple[int, float] | None:
        """The last sample before `ts_ms`, if it is younger than `gap_ms` then."""
        from_ms = max(ts_ms - gap_ms, 0)
        lines = [line.between(from_ms, ts_ms) for line in recent]
        for partition in reversed(self.files.partitions("raw")):
            if partition.end_ms > from_ms and partition.start_ms < ts_ms:
                with self.fenced(partition):
                    db = self.file(partition.name)
                    if db is None:
                        continue
                    part = last_before(db, partition.start_ms, id_, ts_ms, self.notice_of(partition))
                    if part is not None:
                        lines.insert(0, part.between(from_ms, ts_ms))
                        break
        line = merge_lines(lines)
        if len(line.ts):
            return int(line.ts[-1]), float(line.value[-1])
        for width in (MINUTE_MS, HOUR_MS):  # raw samples may be gone already
            cells = self._rolled(id_, self._rollups(width, from_ms, ts_ms), from_ms, ts_ms)
            cells = cells[(cells["last_ms"] >= from_ms) & (cells["last_ms"] < ts_ms)]
            if len(cells):
                return int(cells["last_ms"][-1]), float(cells["last"][-1])
        return None
