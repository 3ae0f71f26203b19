"""A long series in pieces, so that a question holds little of it at once and stops when it has enough. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tradewind.history.aggregate import NO_CELLS, Cells, Line, fold, join_lines

#: Samples of a piece, about: what is worked on at once takes some megabytes. A day with one a second is one piece.
PIECE = 100_000


def joined_parts(parts: Iterable[Line], size: int) -> Iterator[Line]:
    """Neighbours joined until they have `size` samples; no more parts are taken than are asked for. None is empty."""
    lines: list[Line] = []
    count = 0
    for line in parts:
        if len(line.ts):
            lines.append(line)
            count += len(line.ts)
        if count >= size:
            yield join_lines(lines)
            lines, count = [], 0
    if lines:
        yield join_lines(lines)


def first_cells(pieces: Iterable[Cells], bucket_ms: int, limit: int, gap_ms: int) -> Cells:
    """Enough of them for the first `limit` buckets. One bucket more is begun, if there is one: only where it begins is
    it known that the one before is whole, and for how long its last value holds."""
    kept: list[Cells] = []
    count, last = 0, -1
    for piece in pieces:
        cells = fold(piece, bucket_ms, gap_ms)
        if not len(cells):
            continue
        count += len(cells) - (int(cells["first_ms"][0]) // bucket_ms == last)
        last = int(cells["first_ms"][-1]) // bucket_ms
        kept.append(cells)
        if count > limit:
            break
    return np.concatenate(kept) if kept else NO_CELLS
