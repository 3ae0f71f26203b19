"""Rows as columns: thousands of them without an object each. Who wants rows can read it like a list of them. No I/O."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, overload

import numpy as np

from tradewind.history.aggregate import Bytes, Floats, Ints
from tradewind.history.sample import BAD, MAX_TS_MS, QUALITIES, Refused, Row, is_series, refusal

#: Row from a tuple, without a Python frame per row.
_row: Callable[[Any], Row] = partial(tuple.__new__, Row)
#: Of each column.
_TYPES: tuple[set[type], ...] = ({str}, {int}, {float, int}, {int})


class Columns(Sequence[Row]):
    """The four columns are equally long; those of numbers hold nothing else: float64, int64 and bytes. Whether a sink
    can store them is another question (`sort_out`)."""

    __slots__ = ("quality", "series", "ts", "value")

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """Raises TypeError, OverflowError, ValueError for what does not fit."""
        self.series: list[str] = []
        self.ts = array("q")
        self.value = array("d")
        self.quality = bytearray()
        self.extend(rows)

    def extend(self, rows: Iterable[Row]) -> None:
        if isinstance(rows, Columns):
            self.add(rows.series, rows.ts, rows.value, rows.quality)
        else:
            series, ts, value, quality = _lists(rows if isinstance(rows, Sequence) else list(rows))
            self.add(series, array("q", ts), array("d", value), bytes(quality))

    def add(self, series: Sequence[str], ts: array[int], value: array[float], quality: bytes | bytearray) -> None:
        """Columns of the same length."""
        self.series += series
        self.ts += ts
        self.value += value
        self.quality += quality

    def append(self, row: Row) -> None:
        self.extend((row,))

    def arrays(self) -> tuple[Ints, Floats, Bytes]:
        """Times, values and qualities, copied."""
        return np.array(self.ts, np.int64), np.array(self.value, np.float64), np.array(self.quality, np.uint8)

    def __len__(self) -> int:
        return len(self.series)

    def __iter__(self) -> Iterator[Row]:
        return map(_row, zip(self.series, self.ts, self.value, self.quality, strict=True))

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Columns: ...
    def __getitem__(self, at: int | slice) -> Row | Columns:
        if isinstance(at, int):
            return Row(self.series[at], self.ts[at], self.value[at], self.quality[at])
        part = Columns()
        part.add(self.series[at], self.ts[at], self.value[at], self.quality[at])
        return part

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (Columns, list)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Columns({list(self)!r})"


def sort_out(rows: Sequence[Row], known: Container[str] = ()) -> tuple[Columns, list[Refused]]:
    """What can be stored, and the rest. Series that are `known` need no second look.

    Looks at columns first: a look at each row, ten times as slow, is only for batches that have a bad one.
    """
    columns = rows if isinstance(rows, Columns) else _columns(rows)
    if columns is not None and _are_sound(columns, known):
        return columns, []
    kept, refused = [], []
    for row in rows:
        reason = refusal(row)
        if reason is None:
            kept.append(row)
        else:
            refused.append(Refused(row, reason))
    return Columns(kept), refused


def share_a_key(first: Columns, second: Columns) -> bool:
    """Whether some (series, time) stands in both. Neither is empty."""
    low, high = min(second.ts), max(first.ts)
    if low > high:  # as with what was recorded one after the other
        return False
    keys = {key for key in zip(first.series, first.ts, strict=True) if key[1] >= low}
    return not keys.isdisjoint(zip(second.series, second.ts, strict=True))


def _lists(rows: Sequence[Row]) -> tuple[list[str], list[int], list[float], list[int]]:
    """Not by `zip(*rows)`: that makes an iterator per row, which keeps the garbage collector busy."""
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], [row[3] for row in rows]


def _columns(rows: Sequence[Row]) -> Columns | None:
    """None when something has another type than it should, also one that would fit."""
    series, ts, value, quality = _lists(rows)
    lists: tuple[list[Any], ...] = series, ts, value, quality
    if not all(set(map(type, one)) <= allowed for one, allowed in zip(lists, _TYPES, strict=True)):
        return None
    columns = Columns()
    try:
        columns.add(series, array("q", ts), array("d", value), bytes(quality))
    except (OverflowError, ValueError):
        return None
    return columns


def _are_qualities(quality: Any) -> bool:
    return bool(quality.max() <= BAD) or QUALITIES.issuperset(np.unique(quality).tolist())


def _are_sound(columns: Columns, known: Container[str]) -> bool:
    if not columns:
        return True
    ts, value, quality = columns.arrays()
    if not (np.isfinite(value).all() and ts.min() >= 0 and ts.max() <= MAX_TS_MS and _are_qualities(quality)):
        return False
    series = columns.series
    return all(map(known.__contains__, series)) or all(is_series(one) for one in set(series) if one not in known)
