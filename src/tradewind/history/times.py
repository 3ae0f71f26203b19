"""Times and spans as people write them in questions: `-1h`, `24h`, `now`, ISO, milliseconds; `1m`; buckets for the eye.
No I/O."""

from __future__ import annotations

import re

from tradewind.clock import from_iso
from tradewind.errors import Invalid, Problem
from tradewind.history.sample import MAX_TS_MS

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
UNITS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS, "w": 7 * DAY_MS}
TIME_HINT = (
    "give milliseconds since the epoch, a time such as 2024-01-01T10:00:00Z, `now`, or one ago such as 1h or -7d"
)
#: A whole number like that is one of seconds; as milliseconds it would be in the spring of 1970.
SECONDS = range(10**8, 10**10)
SECONDS_HINT = "these are seconds, it seems: give milliseconds since the epoch, with three more digits, or ISO"
SPAN_HINT = "give a span such as 500ms, 10s, 1m, 15m, 1h or 1d"
_SPAN = re.compile(r"(\d{1,15})(ms|s|m|h|d|w)")
#: Without a sign it is so long ago.
_RELATIVE = re.compile(r"(?:(?:now)?\s*([+-])\s*)?(\d{1,15})(ms|s|m|h|d|w)")
_LOST_PLUS = re.compile(r"(\d{4}-?\d\d-?\d\dT\S+) (\d\d(?::?\d\d)?)")

#: Widths of buckets, each a divisor of some later one, so that trends of other widths have their buckets in common.
NICE_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(n * SECOND_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * MINUTE_MS for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR_MS for n in (1, 2, 3, 6, 12)),
    *(n * DAY_MS for n in (1, 2, 7, 14, 28, 364)),
)


def time_ms(value: object, now_ms: int, path: str = "from") -> int:
    """Milliseconds since the epoch of what a caller wrote. Raises Invalid."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and int(value) in SECONDS:
        raise _invalid("bad_time", path, f"{value!r} is no time", SECONDS_HINT)
    found = value if type(value) is int else _read(_with_plus(value), now_ms) if isinstance(value, str) else None
    if found is None or not 0 <= found <= MAX_TS_MS + 1:
        raise _invalid("bad_time", path, f"{str(value)[:64]!r} is no time", TIME_HINT)
    return found


def span_ms(value: object, path: str = "bucket") -> int:
    """The length of `90s` or `1m`, in milliseconds; a bare number is milliseconds. Raises Invalid."""
    found = value if type(value) is int else None
    if isinstance(value, str):
        text = value.strip()
        match = _SPAN.fullmatch(text)
        if match is not None:
            found = int(match[1]) * UNITS[match[2]]
        elif text.isascii() and text.isdecimal() and len(text) <= 15:
            found = int(text)
    if found is None or not 1 <= found <= MAX_TS_MS:
        raise _invalid("bad_span", path, f"{str(value)[:64]!r} is no span of time", SPAN_HINT)
    return found


def span_text(ms: int) -> str:
    """`1m` for 60,000: the shortest that says it exactly."""
    for unit in ("w", "d", "h", "m", "s"):
        if ms % UNITS[unit] == 0:
            return f"{ms // UNITS[unit]}{unit}"
    return f"{ms}ms"


def nice_bucket(width_ms: int, most: int) -> int:
    """The narrowest nice bucket that cuts a range into `most` pieces or fewer, wherever the range begins."""
    for each in NICE_MS:
        if width_ms // each + 2 <= max(most, 3):
            return each
    return -(-width_ms // max(most - 2, 1) // DAY_MS) * DAY_MS + DAY_MS


def bucket_count(from_ms: int, to_ms: int, bucket_ms: int) -> int:
    """How many buckets, which begin at multiples of their width, a range touches."""
    return (to_ms - 1) // bucket_ms - from_ms // bucket_ms + 1 if from_ms < to_ms else 0


def _with_plus(text: str) -> str:
    """A `+` that was not escaped in a URL arrives as a blank: `+1h` must not become an hour ago."""
    if text.startswith(" ") and _SPAN.fullmatch(text[1:]):
        return f"+{text[1:]}"
    return _LOST_PLUS.sub(r"\1+\2", text.strip())


def _read(text: str, now_ms: int) -> int | None:
    if text == "now":
        return now_ms
    if text.isascii() and text.isdecimal():
        return int(text) if len(text) <= 15 else None
    match = _RELATIVE.fullmatch(text)
    if match is not None:
        away = int(match[2]) * UNITS[match[3]]
        return now_ms + away if match[1] == "+" else now_ms - away
    try:
        return from_iso(text)
    except (ValueError, OverflowError):
        return None


def _invalid(code: str, path: str, message: str, hint: str) -> Invalid:
    return Invalid(f"{path}: {message}", code=code, hint=hint, problems=[Problem(code, path, hint)])
