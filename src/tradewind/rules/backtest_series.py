"""Recorded samples of several sources on one time line, as arrays. Pure.

Rows of the same time are judged together, as those of one entry of the feed; a second value of a source at the same
time comes after them. A source that is silent for longer than its age becomes stale by a row of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tradewind.errors import Invalid
from tradewind.rules.verdict import BAD, SUBSTITUTED

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
#: Up to here milliseconds are exact in every language that may read them.
MAX_TS_MS = 2**53


class Series(msgspec.Struct, frozen=True, eq=False):
    """Samples of one source, ordered by time; of one time in the order in which they came. NaN, or a quality of bad (2)
    or worse, is unknown."""

    ts_ms: Ints
    values: Floats
    is_known: Flags

    @classmethod
    def of(cls, ts_ms: ArrayLike, values: ArrayLike, quality: ArrayLike | None = None) -> Series:
        """Of anything that numpy takes, in any order. Raises Invalid."""
        try:
            times, found = np.asarray(ts_ms, np.int64), np.asarray(values, np.float64)
            words = np.zeros(len(times), np.uint8) if quality is None else np.asarray(quality, np.uint8)
        except (TypeError, ValueError, OverflowError) as error:
            raise _bad(f"the samples are no numbers: {error}") from error
        if not times.ndim == found.ndim == words.ndim == 1 or not len(times) == len(found) == len(words):
            raise _bad("times, values and qualities differ in number")
        if len(times) and not (times.min() >= 0 and times.max() <= MAX_TS_MS):
            raise _bad("a time is negative or too large")
        known = ((words < BAD) | (words == SUBSTITUTED)) & ~np.isnan(found)
        if np.any(times[1:] < times[:-1]):
            order = np.argsort(times, kind="stable")
            times, found, known = times[order], found[order], known[order]
        return cls(times, found, known)

    def __len__(self) -> int:
        return len(self.ts_ms)


class Timeline(msgspec.Struct, frozen=True, eq=False):
    """All rows in the order in which they are judged. `place`: of the source among the addresses; `sampled_ms`: the
    time of the value, before `ts_ms` only in rows that tell that it is stale. `batch`: rows judged together have the
    same number; `batch_ms`: the time of each batch. `samples`: rows that were given."""

    ts_ms: Ints
    sampled_ms: Ints
    place: NDArray[np.intp]
    values: Floats
    is_known: Flags
    batch: NDArray[np.intp]
    batch_ms: Ints
    samples: int
    until_ms: int

    def rows_of(self, place: int) -> NDArray[np.intp]:
        return np.flatnonzero(self.place == place)


def timeline(
    addresses: Sequence[str],
    samples: Mapping[str, Series],
    ages: Mapping[str, int] | None = None,
    until_ms: int | None = None,
) -> Timeline:
    """`ages`: address → ms after which a source without a sample is stale; the others never are. `until_ms`: how far
    the time goes; later samples are left out."""
    parts = [(place, samples[address]) for place, address in enumerate(addresses) if address in samples]
    end = max((int(each.ts_ms[-1]) for _, each in parts if len(each)), default=0) if until_ms is None else until_ms
    if until_ms is not None:
        parts = [(place, _until(each, end)) for place, each in parts]
    rows = [_rows(place, each, (ages or {}).get(addresses[place], 0), end) for place, each in parts]
    count = sum(len(each) for _, each in parts)
    columns: list[Any] = [np.concatenate(column) for column in zip(*rows, strict=True)] if rows else _nothing()
    ts_ms, turn, place = columns[0], columns[1], columns[3]
    if len(rows) > 1 or (len(rows) == 1 and len(ts_ms) > count):  # of one source without gaps all is in order
        order = np.lexsort((place, turn, ts_ms))
        columns = [column[order] for column in columns]
        ts_ms, turn = columns[0], columns[1]
    is_first = np.ones(len(ts_ms), np.bool_)
    is_first[1:] = (ts_ms[1:] != ts_ms[:-1]) | (turn[1:] != turn[:-1])
    batch = np.cumsum(is_first) - 1
    return Timeline(ts_ms, columns[2], columns[3], columns[4], columns[5], batch, ts_ms[is_first], count, end)


def _until(series: Series, end: int) -> Series:
    count = int(np.searchsorted(series.ts_ms, end, "right"))
    return Series(series.ts_ms[:count], series.values[:count], series.is_known[:count])


def _rows(place: int, series: Series, age_ms: int, end: int) -> tuple[Any, ...]:
    """ts, turn among those of its time, time of the value, place, value, whether it is known."""
    ts_ms, count = series.ts_ms, len(series)
    is_again = np.zeros(count, np.bool_)
    is_again[1:] = ts_ms[1:] == ts_ms[:-1]
    at = np.arange(count)
    turn = at - np.maximum.accumulate(np.where(is_again, 0, at)) if count else at
    places = np.full(count, place, np.intp)
    found = (ts_ms, turn, ts_ms, places, series.values, series.is_known)
    if not age_ms or not count:
        return found
    late_ms = ts_ms + age_ms
    # The last moment at which it is fresh; one that comes just then is in time.
    silent = np.flatnonzero((late_ms < np.append(ts_ms[1:], end)) & series.is_known)
    # After all rows of that moment, one source after the other.
    last = np.full(len(silent), np.iinfo(np.int64).max - 10_000 + place)
    more = (
        late_ms[silent],
        last,
        ts_ms[silent],
        places[silent],
        series.values[silent],
        np.zeros(len(silent), np.bool_),
    )
    return tuple(np.concatenate(pair) for pair in zip(found, more, strict=True))


def _nothing() -> list[Any]:
    whole, flags = np.empty(0, np.int64), np.empty(0, np.bool_)
    return [whole, whole, whole, np.empty(0, np.intp), np.empty(0, np.float64), flags]


def _bad(message: str) -> Invalid:
    hint = "give as many times (ms since the epoch) as values and qualities (0 good … 3 stale, 4 substituted)"
    return Invalid(message, code="bad_samples", hint=hint)
