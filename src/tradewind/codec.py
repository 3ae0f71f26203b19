"""JSON in and out, strict: no NaN, no Infinity, UTF-8 only."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from tradewind.errors import Invalid

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()

encode = _encoder.encode


def decode(data: bytes | str) -> Any:
    """Decode JSON. Raises Invalid for anything that is not JSON."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Invalid(f"not valid JSON: {error}", code="bad_json", hint="send UTF-8 JSON") from error


def has_non_finite(value: Any) -> bool:
    """True if a NaN or an infinity hides anywhere in plain JSON-like data (they would silently become null)."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(has_non_finite(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_non_finite(v) for v in value)
    return False


def lost_non_finite(value: Any, data: bytes) -> bool:
    """True if `data`, the JSON of `value`, has a null where a NaN or an infinity stood, in whatever object it was."""
    return b"null" in data and has_non_finite(msgspec.to_builtins(value))
