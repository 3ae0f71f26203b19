"""One recorded value, and which values may be recorded. No I/O."""

from __future__ import annotations

import sys
from math import isfinite
from typing import NamedTuple

from tradewind.errors import Invalid
from tradewind.points.address import Address

#: As they are stored; 3 is not used.
GOOD, UNCERTAIN, BAD, SUBSTITUTED = 0, 1, 2, 4
QUALITIES = frozenset((GOOD, UNCERTAIN, BAD, SUBSTITUTED))
#: What InfluxDB's 64 bits of nanoseconds can hold, for every sink alike: the years 1970 to 2262.
MAX_TS_MS = 9_223_372_036_854
_MOST = int(sys.float_info.max)  # of an integer: more is no float


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
    if type(quality) is not int or quality not in QUALITIES:
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
