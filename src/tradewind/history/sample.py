"""One recorded value, and which values may be recorded. No I/O."""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import isfinite
from typing import NamedTuple

from tradewind.errors import Invalid
from tradewind.points.address import Address

GOOD, UNCERTAIN, BAD = 0, 1, 2
#: What InfluxDB's 64 bits of nanoseconds can hold, for every sink alike: the years 1970 to 2262.
MAX_TS_MS = 9_223_372_036_854
_MOST = 2**1023  # of an integer: more is no float


class Row(NamedTuple):
    """`series` is a point's address. (series, ts_ms) is the key: of two rows with one key the later one stays."""

    series: str
    ts_ms: int
    value: float
    quality: int = GOOD


class Refused(NamedTuple):
    """A row that no retry will store. `reason` is a short word for counters: `not_finite`, `bad_series`, …"""

    row: Row
    reason: str


def refusal(row: Row) -> str | None:
    """Why a row can be stored in no sink; None if it can."""
    series, ts_ms, value, quality = row
    if type(value) is not float and (type(value) is not int or abs(value) > _MOST):
        return "not_a_number"
    if not isfinite(value):
        return "not_finite"
    if type(ts_ms) is not int or not 0 <= ts_ms <= MAX_TS_MS:
        return "bad_time"
    if type(quality) is not int or not GOOD <= quality <= BAD:
        return "bad_quality"
    return None if is_series(series) else "bad_series"


def is_series(text: str) -> bool:
    if type(text) is not str:
        return False
    try:
        Address.parse(text)
    except Invalid:
        return False
    return True


def sort_out(rows: Sequence[Row], known: Container[str] = ()) -> tuple[Sequence[Row], list[Refused]]:
    """What can be stored, and the rest. Series that are `known` need no second look.

    Looks at columns first: a look at each row, ten times as slow, is only for batches that have a bad one.
    """
    if not rows or _are_sound(*columns_of(rows), known=known):
        return rows, []
    kept, refused = [], []
    for row in rows:
        reason = refusal(row)
        if reason is None:
            kept.append(row)
        else:
            refused.append(Refused(row, reason))
    return kept, refused


def columns_of(rows: Sequence[Row]) -> tuple[list[str], list[int], list[float], list[int]]:
    """Not by `zip(*rows)`: that makes an iterator per row, which keeps the garbage collector busy."""
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], [row[3] for row in rows]


def _are_sound(
    series: Sequence[str], ts: Sequence[int], value: Sequence[float], quality: Sequence[int], *, known: Container[str]
) -> bool:
    kinds = set(map(type, value))
    return (
        kinds <= {float, int}
        and (int not in kinds or max(map(abs, value)) <= _MOST)
        and all(map(isfinite, value))
        and set(map(type, ts)) == {int}
        and min(ts) >= 0
        and max(ts) <= MAX_TS_MS
        and set(map(type, quality)) == {int}
        and {GOOD, UNCERTAIN, BAD}.issuperset(quality)
        and set(map(type, series)) == {str}
        and all(is_series(one) for one in set(series) if one not in known)
    )
