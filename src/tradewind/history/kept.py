"""What retention has left of a range, so that an answer can say what it lacks. No I/O."""

from __future__ import annotations

from tradewind.history.rollup import aligned, levels_for
from tradewind.history.sink import KeptFrom
from tradewind.history.sqlite_files import HOUR_MS, MINUTE_MS


def available_from(kept: KeptFrom, from_ms: int, to_ms: int, bucket_ms: int, gap_ms: int | None) -> int:
    """The time from which on [from_ms, to_ms) can be answered as a whole; from_ms when nothing is missing.

    `bucket_ms` 0 is a question about samples. `gap_ms`: of an integral, None if none is asked for; a value from before
    the range holds into it, so nothing that is that old may be missing altogether. Follows the reader, which answers
    the whole cells of a range from rollups and what is left at its ends from finer ones.
    """
    lost_ms = min(mark or 0 for mark in kept)
    if gap_ms is not None and lost_ms:
        from_ms = max(from_ms, min(lost_ms + gap_ms, to_ms))
    if from_ms >= to_ms:
        return from_ms
    marks = {HOUR_MS: kept.hour_ms, MINUTE_MS: kept.minute_ms}
    levels = [(width, marks[width] or 0) for width in levels_for(bucket_ms, gap_ms)] if bucket_ms else []
    return _from([*levels, (1, kept.raw_ms or 0)], from_ms, to_ms)


def _from(levels: list[tuple[int, int]], from_ms: int, to_ms: int) -> int:
    (width, mark), *finer = levels
    inner = aligned(from_ms, to_ms, width)
    if inner is None:
        return _from(finer, from_ms, to_ms)
    begin, end = inner
    if end < to_ms and (tail := _from(finer, end, to_ms)) > end:
        return tail
    if mark > begin:
        return min(-(-mark // width) * width, end)
    return _from(finer, from_ms, begin) if from_ms < begin else from_ms
