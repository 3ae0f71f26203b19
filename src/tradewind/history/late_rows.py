"""Rows of a recorder that was deposed: of them only those are written that the sink has not got.

The recorder after it has read the same part of the feed and more of it, so what the sink has under the key of such a
row is the same value or a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tradewind.history.columns import Columns
from tradewind.history.sample import Row
from tradewind.history.sink import Sink

#: Rows that lie further apart in time are asked for separately.
APART_MS = 60_000
#: Samples of one series that are asked for at a time.
READ_ROWS = 10_000
#: Keys that are remembered as written here: the next rows may correct them.
REMEMBERED = 200_000

Key = tuple[str, int]


class LateRows:
    """Of one spool, or one hand full of rows; in the order in which they were read from the feed."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._ours: set[Key] = set()

    async def missing(self, rows: Sequence[Row]) -> Columns:
        """Those to write. Raises SinkAway."""
        there: set[Key] = set()
        for part in _near_each_other(rows):
            there |= await self._keys_of(part)
        kept = Columns(row for row in rows if (row[0], row[1]) not in there or (row[0], row[1]) in self._ours)
        if len(self._ours) + len(kept) > REMEMBERED:
            self._ours.clear()
        self._ours.update(zip(kept.series, kept.ts, strict=True))
        return kept

    async def _keys_of(self, rows: Sequence[Row]) -> set[Key]:
        series = sorted({row[0] for row in rows})
        from_ms, to_ms = min(row[1] for row in rows), max(row[1] for row in rows) + 1
        found: set[Key] = set()
        answer = await self._sink.read(series, from_ms, to_ms, READ_ROWS)
        for name, samples in answer.items():
            found.update((name, sample[0]) for sample in samples)
            while len(samples) == READ_ROWS:
                samples = (await self._sink.read([name], samples[-1][0] + 1, to_ms, READ_ROWS))[name]
                found.update((name, sample[0]) for sample in samples)
        return found


def _near_each_other(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows by time, cut where nothing lies for APART_MS."""
    part: list[Row] = []
    for row in sorted(rows, key=lambda row: row[1]):
        if part and row[1] - part[-1][1] > APART_MS:
            yield part
            part = []
        part.append(row)
    if part:
        yield part
