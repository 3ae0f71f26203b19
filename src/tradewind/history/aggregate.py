"""From samples to cells to buckets: the arithmetic of history, on arrays. No I/O.

A cell sums up the samples of one stretch of time so that neighbouring cells can be folded into a bigger one; a bucket
is what a question about such a cell answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tradewind.history.sink import GAP_MS, Bucket

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Cells: TypeAlias = npt.NDArray[np.void]

#: `m2` is the sum of squared distances from the mean, `inner` the integral between the first and the last sample.
CELL = np.dtype(
    [
        ("first_ms", "<i8"),
        ("last_ms", "<i8"),
        ("n", "<u4"),
        ("good", "<u4"),
        ("first", "<f8"),
        ("last", "<f8"),
        ("low", "<f8"),
        ("high", "<f8"),
        ("total", "<f8"),
        ("m2", "<f8"),
        ("inner", "<f8"),
    ]
)
NO_CELLS: Cells = np.empty(0, CELL)
_FIELDS = {"count": "n", "min": "low", "max": "high"}


class Line(NamedTuple):
    """The samples of one series: times ascending, no two alike."""

    ts: Ints
    value: Floats
    quality: Bytes

    def between(self, from_ms: int, to_ms: int) -> Line:
        a, b = np.searchsorted(self.ts, (from_ms, to_ms))
        return self.cut(int(a), int(b))

    def cut(self, begin: int, end: int) -> Line:
        return Line(self.ts[begin:end], self.value[begin:end], self.quality[begin:end])

    def rows(self) -> list[tuple[int, float, int]]:
        return list(zip(self.ts.tolist(), self.value.tolist(), self.quality.tolist(), strict=True))


NO_LINE = Line(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.uint8))


def join_lines(lines: Sequence[Line]) -> Line:
    """One after the other; nothing is sorted."""
    if len(lines) < 2:
        return lines[0] if lines else NO_LINE
    ts, value, quality = zip(*lines, strict=True)
    return Line(np.concatenate(ts), np.concatenate(value), np.concatenate(quality))


def merge_lines(lines: Sequence[Line]) -> Line:
    """All samples in order; for one time the last of the later line stays. The lines themselves may be unsorted."""
    joined = join_lines(lines)
    if len(joined.ts) < 2 or bool(np.all(joined.ts[1:] > joined.ts[:-1])):
        return joined
    order = np.argsort(joined.ts, kind="stable")
    ts = joined.ts[order]
    order = order[np.append(ts[1:] != ts[:-1], True)]
    return Line(joined.ts[order], joined.value[order], joined.quality[order])


def line_of(samples: Sequence[tuple[int, float, int]]) -> Line:
    """From (ts_ms, value, quality), in any order."""
    if not samples:
        return NO_LINE
    ts, value, quality = zip(*samples, strict=True)
    return merge_lines([Line(np.array(ts, np.int64), np.array(value, np.float64), np.array(quality, np.uint8))])


def cells_of(line: Line, width_ms: int, gap_ms: int = GAP_MS, owner: Ints | None = None) -> Cells:
    """A cell for each stretch of `width_ms` that has samples.

    With `owner` (ascending, one per sample) the line holds several series one after the other: cells never mix them.
    """
    ts, value, quality = line
    if not len(ts):
        return NO_CELLS
    stretch = ts // width_ms
    cut = stretch[1:] != stretch[:-1]
    if owner is not None:
        cut |= owner[1:] != owner[:-1]
    starts = np.append(0, np.flatnonzero(cut) + 1)
    ends = np.append(starts[1:], len(ts)) - 1
    cells = np.empty(len(starts), CELL)
    n = ends - starts + 1
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduceat(value, starts)
        off = value - np.repeat(total / n, n)
        held = np.append(value[:-1] * np.minimum(np.diff(ts), gap_ms) / 1000, 0.0)
        held[ends] = 0.0
        cells["m2"] = np.add.reduceat(off * off, starts)
        cells["inner"] = np.add.reduceat(held, starts)
    cells["first_ms"], cells["last_ms"] = ts[starts], ts[ends]
    cells["first"], cells["last"] = value[starts], value[ends]
    cells["low"], cells["high"] = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
    cells["n"], cells["total"] = n, total
    cells["good"] = np.add.reduceat((quality == 0).astype(np.int64), starts)
    return cells


def fold(cells: Cells, width_ms: int, gap_ms: int = GAP_MS, owner: Ints | None = None) -> Cells:
    """Cells of `width_ms` from smaller ones, which must be in order and apart in time; `owner` as in `cells_of`."""
    if len(cells) < 2:
        return cells
    stretch = cells["first_ms"] // width_ms
    cut = stretch[1:] != stretch[:-1]
    if owner is not None:
        cut |= owner[1:] != owner[:-1]
    if bool(np.all(cut)):
        return cells
    starts = np.append(0, np.flatnonzero(cut) + 1)
    ends = np.append(starts[1:], len(cells)) - 1
    out = np.empty(len(starts), CELL)
    n = np.add.reduceat(cells["n"].astype(np.int64), starts)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduceat(cells["total"], starts)
        off = cells["total"] / cells["n"] - np.repeat(total / n, ends - starts + 1)
        between = np.minimum(cells["first_ms"][1:] - cells["last_ms"][:-1], gap_ms)
        held = np.append(cells["last"][:-1] * between / 1000, 0.0)
        held[ends] = 0.0
        out["m2"] = np.add.reduceat(cells["m2"] + cells["n"] * off * off, starts)
        out["inner"] = np.add.reduceat(cells["inner"] + held, starts)
    for name in ("first_ms", "first"):
        out[name] = cells[name][starts]
    for name in ("last_ms", "last"):
        out[name] = cells[name][ends]
    out["low"] = np.minimum.reduceat(cells["low"], starts)
    out["high"] = np.maximum.reduceat(cells["high"], starts)
    out["n"], out["total"] = n, total
    out["good"] = np.add.reduceat(cells["good"].astype(np.int64), starts)
    return out


def answer(
    cells: Cells,
    bucket_ms: int,
    aggs: Sequence[str],
    limit: int,
    to_ms: int,
    gap_ms: int = GAP_MS,
    before: tuple[int, int, float] | None = None,
) -> list[Bucket]:
    """The first `limit` buckets of a series, from its cells within the range, smaller than or equal to `bucket_ms`.

    `before`, needed for the integral only: (from_ms, ts_ms, value), the last sample before the range that begins at
    from_ms.
    """
    cells = fold(cells, bucket_ms, gap_ms)
    starts: Ints = cells["first_ms"] // bucket_ms * bucket_ms
    if "integral" not in aggs:
        cells, starts = cells[:limit], starts[:limit]
        return _rows(starts, [_column(cells, agg) for agg in aggs])
    at, held = _held(cells, bucket_ms, limit, to_ms, gap_ms, before)
    every, place = np.unique(np.concatenate((starts, at)), return_inverse=True)
    integral = np.zeros(len(every))
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(integral, place[: len(starts)], cells["inner"])
        np.add.at(integral, place[len(starts) :], held)
    spread: list[list[Any]] = []
    for agg in aggs:
        if agg == "integral":
            spread.append(_finite(integral[:limit]))
            continue
        column: list[Any] = [0 if agg in ("count", "good") else 0.0 if agg == "sum" else None] * len(every)
        for index, value in zip(place[: len(starts)].tolist(), _column(cells, agg), strict=True):
            column[index] = value
        spread.append(column[:limit])
    return _rows(every[:limit], spread)


def _held(
    cells: Cells, bucket_ms: int, limit: int, to_ms: int, gap_ms: int, before: tuple[int, int, float] | None
) -> tuple[Ints, Floats]:
    """Bucket starts and what the last value of each cell adds there until the next cell: the integral between cells."""
    begin, value = cells["last_ms"], cells["last"]
    end = np.minimum(begin + gap_ms, np.append(cells["first_ms"][1:], to_ms))
    end = np.minimum(end, to_ms)
    if before is not None:
        from_ms, ts_ms, carried = before
        until = min(ts_ms + gap_ms, to_ms, int(cells["first_ms"][0]) if len(cells) else to_ms)
        if until > from_ms:
            begin, end = np.append(from_ms, begin), np.append(until, end)
            value = np.append(carried, value)
    kept = end > begin
    begin, end, value = begin[kept], end[kept], value[kept]
    first = begin // bucket_ms
    count = (end - 1) // bucket_ms - first + 1
    # Two of these stretches touch one bucket at most: this many are enough for `limit` buckets, however long they last.
    room = 2 * limit + 2 - np.append(0, np.cumsum(np.minimum(count, 2 * limit + 2)))[:-1]
    count = np.clip(np.minimum(count, room), 0, None)
    index = np.repeat(np.arange(len(count)), count)
    step = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    at = (first[index] + step) * bucket_ms
    lasts = np.minimum(end[index], at + bucket_ms) - np.maximum(begin[index], at)
    with np.errstate(over="ignore"):
        return at, value[index] * lasts / 1000


def _column(cells: Cells, agg: str) -> list[Any]:
    match agg:
        case "mean":
            # Rounding must not carry the mean of equal values past them.
            mean = np.clip(cells["total"] / cells["n"], cells["low"], cells["high"])
            return _finite(mean, cells["total"])
        case "stddev":
            return _finite(np.sqrt(cells["m2"] / np.maximum(cells["n"].astype(np.int64) - 1, 1)))
        case "sum":
            return _finite(cells["total"])
        case _:
            return list(cells[_FIELDS.get(agg, agg)].tolist())


def _finite(column: Floats, source: Floats | None = None) -> list[Any]:
    sound = np.isfinite(column if source is None else source)
    if bool(np.all(sound)):
        return list(column.tolist())
    return [value if good else None for value, good in zip(column.tolist(), sound.tolist(), strict=True)]


def _rows(starts: Ints, columns: list[list[Any]]) -> list[Bucket]:
    return list(zip(starts.tolist(), *columns, strict=True))
