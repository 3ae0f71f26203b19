"""Stretches of time without samples. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: A silence is a gap when it lasts longer than so many times the usual interval.
TIMES_USUAL = 3
#: The most that one answer names.
MAX_GAPS = 1000


def find_gaps(
    times: Sequence[int], from_ms: int, to_ms: int, gap_ms: int | None = None, held_ms: int = 0
) -> list[list[int]]:
    """[from, to] of each silence in [from_ms, to_ms) that is longer than `gap_ms`, by default than three times the
    usual interval (the median). The begin and the end of the range count as samples of no duration.

    `held_ms`: how long each time stands for, the width of the buckets that they begin. With fewer than three times
    nothing is usual: only a range without any is a gap then.
    """
    if from_ms >= to_ms:
        return []
    if not times:
        return [[from_ms, to_ms]]
    at = np.asarray(times, np.int64)
    if gap_ms is None:
        if len(at) < 3:
            return []
        gap_ms = max(int(np.median(np.diff(at))) * TIMES_USUAL - held_ms, 0)
    begins = np.append(from_ms, np.minimum(at + held_ms, to_ms))
    ends = np.append(np.maximum(at, from_ms), to_ms)
    is_gap = ends - begins > gap_ms
    return [list(pair) for pair in zip(begins[is_gap].tolist(), ends[is_gap].tolist(), strict=True)][:MAX_GAPS]
