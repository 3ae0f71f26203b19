"""The one reader of numbers that people write: in CSV cells, on the command line, in queries and mappings. Pure.

`float` and `int` of Python also take `1_000`, ` 5 `, `nan`, `infinity` and digits of other scripts, and read `1e400` as
infinity. Whoever allows spaces around a number takes them away first.
"""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
#: The characters of decimal numbers: text of these only is a number for `float` if it is one for `read_number`.
NUMBER_CHARACTERS = frozenset("0123456789+-.eE")
#: The last millisecond of the year 9999.
MAX_STORED = 253_402_300_799_999


def read_number(text: str) -> float:
    """A finite decimal number in ASCII. Raises ValueError."""
    if _NUMBER.fullmatch(text) is not None:
        value = float(text)
        if math.isfinite(value):
            return value
        raise ValueError(f"{text[:40]!r} is too large a number")
    raise ValueError(f"{text[:40]!r} is no number")


def read_whole(text: str, *, is_hex: bool = False) -> int:
    """A whole number in ASCII digits; `is_hex`: also as 0x1F. Raises ValueError."""
    if _WHOLE.fullmatch(text) is not None:
        return int(text)
    if is_hex and _HEX.fullmatch(text) is not None:
        return int(text, 16)
    raise ValueError(f"{text[:40]!r} is no whole number")


def score_ms(score: float) -> int:
    """The moment that a member of a sorted set has; one that another program has put at infinity counts as far away."""
    return int(min(max(score, -MAX_STORED), MAX_STORED))


def stored_whole(text: bytes | str | None) -> int:
    """The whole number that somebody stored; 0 for none, and for what another program left that is no number, or one
    that neither counts anything nor is a time."""
    try:
        number = int(text or 0)
    except ValueError:
        return 0
    return number if -MAX_STORED <= number <= MAX_STORED else 0
