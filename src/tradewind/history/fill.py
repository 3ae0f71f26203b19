"""Buckets without samples put in, so that the rows of several series stand beside each other. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: What a bucket without samples has of these; of the others it has nothing.
_ZERO = {"count": 0, "good": 0, "sum": 0.0, "integral": 0.0}


def filled(
    rows: Sequence[Sequence[Any]],
    from_ms: int,
    to_ms: int,
    bucket_ms: int,
    aggs: Sequence[str],
    how: str,
) -> list[list[Any]]:
    """`how`: `none` leaves them out; `null` puts them in with nothing; `previous` with the values before them."""
    if how == "none" or from_ms >= to_ms:
        return [list(row) for row in rows]
    known = {row[0]: row for row in rows}
    empty: list[Any] = [_ZERO.get(agg) for agg in aggs]
    found: list[list[Any]] = []
    for start in range(from_ms // bucket_ms * bucket_ms, to_ms, bucket_ms):
        row = known.get(start)
        values = empty if row is None else list(row[1:])
        found.append([start, *values])
        if row is not None and how == "previous":
            empty = [_ZERO.get(agg, value) for agg, value in zip(aggs, values, strict=True)]
    return found
