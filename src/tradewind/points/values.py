"""Values as they stand in Redis: six decimals, `0`/`1`, `value:timestamp`, `value:timestamp:source`. Pure.

Rounding is that of IEEE doubles in decimal (25.1234565 is stored as 25.123456, because the double lies below).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import msgspec

from tradewind.clock import now_ms
from tradewind.errors import Invalid
from tradewind.numerals import read_number, stored_whole
from tradewind.points.address import SWITCHED

MAX_KEY = 256
#: How far a time may lie ahead where no setting (`points.future_s`, with the same default) is known.
FUTURE_MS = 5_000
MIN_TIMESTAMP, MAX_TIMESTAMP = 1_000_000_000_000, 9_999_999_999_999

_HASH_KEY = re.compile(r"comsrv:[0-9]+:[msca]|modsrv:[a-zA-Z0-9_-]+:(?:measurement|control)")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]{1,6})?")
_NEGATIVE_ZERO = "-0.000000"


#: Short for those who read what drivers and other programs stored.
whole = stored_whole


def finite(text: bytes | str | None) -> float:
    """As `whole`, with a fraction."""
    try:
        number = float(text or 0)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def format_float(value: float) -> str:
    """Six decimals, never `-0.000000`. Raises Invalid for NaN and infinity."""
    try:
        text = f"{value:.6f}"
    except (TypeError, ValueError, OverflowError):
        raise Invalid(f"{value!r} is not a number", code="not_a_number", hint="send a finite number") from None
    if "n" in text:
        raise Invalid(f"{value!r} is not finite", code="not_finite", hint="send a finite number")
    return "0.000000" if text == _NEGATIVE_ZERO else text


def format_value(kind: str, value: float) -> str:
    """As the hash of that kind holds it: s and c `0` or `1` (anything but 0 is 1), all others six decimals.

    Raises Invalid for what is not a finite number.
    """
    text = format_float(value)
    if kind in SWITCHED:
        return "1" if value else "0"
    return text


def parse_value(text: str | bytes) -> float:
    """A stored value, in any form that a program written against the seed may have left: `1`, `1.000000`, `25.1`.

    Raises Invalid for anything else, also NaN, infinity, spaces, `1_000` and digits of other scripts.
    """
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    try:
        return read_number(text)
    except ValueError:
        hint = "write a value such as 25.123456"
        raise Invalid(f"{text[:40]!r} is not a number", code="not_a_number", hint=hint) from None


class StandardFloat:
    """A number that shows itself with six decimals. Raises Invalid for NaN and infinity."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        format_float(value)
        self.value = float(value)

    @classmethod
    def new(cls, value: float) -> StandardFloat:
        return cls(value)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return format_float(self.value)

    def __repr__(self) -> str:
        return f"StandardFloat({self})"

    def __eq__(self, other: object) -> bool:
        """Equal when they are stored alike."""
        return isinstance(other, StandardFloat) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, slots=True)
class PointData:
    """A value and its time (ms)."""

    value: StandardFloat
    timestamp: int

    @classmethod
    def new(cls, value: float, timestamp: int | None = None) -> PointData:
        """Without a timestamp: now."""
        return cls(StandardFloat(value), now_ms() if timestamp is None else timestamp)

    def to_redis_value(self) -> str:
        return str(self.value)

    def to_redis_with_timestamp(self) -> str:
        return f"{self.value}:{self.timestamp}"

    @classmethod
    def from_redis_value(cls, text: str) -> PointData:
        """Its time is now. Raises Invalid."""
        return cls.new(parse_value(text))

    @classmethod
    def from_redis_with_timestamp(cls, text: str) -> PointData:
        """Raises Invalid."""
        value, _, timestamp = text.rpartition(":")
        return cls.new(parse_value(value), parse_timestamp(timestamp))


class ControlValue(msgspec.Struct, frozen=True):
    """A field of `modsrv:{model}:control`: `1500.0:1642592400000:operator`. The value may be a word, or hold colons."""

    value: str
    ts_ms: int
    source: str

    @classmethod
    def parse(cls, text: str) -> ControlValue:
        """Raises Invalid."""
        parts = text.rsplit(":", 2)
        if len(parts) != 3:
            raise Invalid(f"{text[:80]!r} is not value:timestamp:source", code="bad_control_value")
        return cls(parts[0], parse_timestamp(parts[1]), parts[2])

    def __str__(self) -> str:
        """Raises Invalid when the source holds a colon: then it could not be read back."""
        if ":" in self.source or not self.source:
            hint = "name the source without a colon"
            raise Invalid(f"{self.source!r} is no source of a control value", code="bad_source", hint=hint)
        return f"{self.value}:{self.ts_ms}:{self.source}"


def parse_timestamp(text: str) -> int:
    """Milliseconds since the epoch in 13 digits. Raises Invalid."""
    if text.isascii() and text.isdigit() and len(text) == 13:
        found = int(text)
        if is_timestamp(found):
            return found
    hint = "write milliseconds since 1970 in 13 digits"
    raise Invalid(f"{text[:40]!r} is not a timestamp", code="bad_timestamp", hint=hint)


def is_hash_key(key: str) -> bool:
    """The seed's validator (6.1): `comsrv:1001:m` or `modsrv:power_calc:measurement`, at most 256 characters."""
    return len(key) <= MAX_KEY and _HASH_KEY.fullmatch(key) is not None


def is_numeric(text: str) -> bool:
    """The seed's validator: a finite number with at most six decimals."""
    return _NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def is_timestamp(ms: int) -> bool:
    """The seed's validator: milliseconds of 13 digits."""
    return MIN_TIMESTAMP <= ms <= MAX_TIMESTAMP
