"""Which stretches of a range rollups can answer, and the rollups of an hour. No I/O.

Rollups are cells of a minute and of an hour; the cells of an hour are made together, once it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tradewind.history.aggregate import Cells, Line, cells_of, fold, join_lines
from tradewind.history.sqlite_files import HOUR_MS, MINUTE_MS

#: Rollups of an hour are made so long after its end; what comes later is late, and they are made again.
GRACE_MS = 300_000


def rollups_of(lines: Sequence[Line]) -> list[tuple[Cells, Cells]]:
    """The cells of the minutes, and of the hour, for each line: samples of one series in one hour."""
    if not lines:
        return []
    owner = np.repeat(np.arange(len(lines)), [len(line.ts) for line in lines])
    joined = join_lines(lines)
    minutes = cells_of(joined, MINUTE_MS, HOUR_MS, owner)
    # The cells of a line are as many as its stretches; the owner of a cell is that of its first sample.
    stretch = joined.ts // MINUTE_MS
    fresh = np.append(True, (stretch[1:] != stretch[:-1]) | (owner[1:] != owner[:-1]))
    owner_of_minute = owner[fresh]
    hours = fold(minutes, HOUR_MS, HOUR_MS, owner_of_minute)
    ends = np.searchsorted(owner_of_minute, np.arange(len(lines)), side="right").tolist()
    begins = [0, *ends[:-1]]
    return [(minutes[a:b], hours[at : at + 1]) for at, (a, b) in enumerate(zip(begins, ends, strict=True))]


def levels_for(bucket_ms: int, gap_ms: int | None) -> tuple[int, ...]:
    """The widths of the rollups that can answer buckets of this size, widest first.

    `gap_ms`: of the integral, None if it is not asked for. A rollup knows no gap shorter than itself.
    """
    return tuple(
        width for width in (HOUR_MS, MINUTE_MS) if bucket_ms % width == 0 and (gap_ms is None or gap_ms >= width)
    )


def aligned(from_ms: int, to_ms: int, width_ms: int) -> tuple[int, int] | None:
    """The whole cells of `width_ms` in the range, None if there is none."""
    begin, end = -(-from_ms // width_ms) * width_ms, to_ms // width_ms * width_ms
    return (begin, end) if begin < end else None


def stretches(hours: Iterable[int], from_ms: int, to_ms: int) -> list[tuple[int, int]]:
    """These hours (numbers since 1970) as ranges within [from_ms, to_ms), neighbours joined."""
    found: list[tuple[int, int]] = []
    for hour in sorted(set(hours)):
        begin, end = max(hour * HOUR_MS, from_ms), min((hour + 1) * HOUR_MS, to_ms)
        if begin >= end:
            continue
        if found and found[-1][1] == begin:
            begin = found.pop()[0]
        found.append((begin, end))
    return found
