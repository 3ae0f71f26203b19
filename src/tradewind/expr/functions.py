"""The functions of the language, each with its bounds, and what `build.py` may know about their results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tradewind.expr.aggregates import AGGREGATES
from tradewind.expr.errors import Refusal
from tradewind.expr.operators import power
from tradewind.expr.values import LARGE, LISTS, NUMBERS, finite, kind, number, real

CONSTANTS = {"pi": math.pi, "e": math.e}

#: Bits of a number about which it is only known that it is finite.
FINITE = 1024.0
ANY = 1_000


@dataclass(frozen=True, slots=True)
class Function:
    """`least` to `most` arguments. `bits`: a bound of the result (its magnitude is at most 2**bits), None if it may be
    no number. `native`: does the same for numbers of at most 2**256, with `grows` bits more than its largest argument,
    or `caps` bits whatever the arguments. `bounded`: takes that limit of the expression before its arguments."""

    call: Callable[..., Any]
    least: int = 1
    most: int = 1
    bits: float | None = FINITE
    native: Callable[..., Any] | None = None
    grows: float = 0.0
    caps: float | None = None
    bounded: Literal["", "items", "chars"] = ""


def _of_real(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        return number(function(real(value)))

    return call


def _of_two(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(left: Any, right: Any) -> Any:
        return number(function(real(left), real(right)))

    return call


def _round(value: Any, digits: Any = None) -> Any:
    if digits is None:
        return number(round(real(value)))
    if type(digits) is not int or abs(digits) > 100:
        raise Refusal("out_of_range", "the digits of round are an integer from -100 to 100", "such as round(x, 2)")
    return number(round(real(value), digits))


def _clamp(value: Any, low: Any, high: Any) -> Any:
    if type(value) not in NUMBERS or type(low) not in NUMBERS or type(high) not in NUMBERS:
        real(value), real(low), real(high)
    if low <= value <= high and low >= -LARGE and high <= LARGE:
        return value
    if real(low) > real(high):
        raise Refusal("out_of_range", f"clamp: {low!r} is above {high!r}", "clamp(x, low, high)")
    return low if real(value) < low else high if value > high else value


def _log(value: Any, base: Any = None) -> Any:
    return number(math.log(real(value)) if base is None else math.log(real(value), real(base)))


def _sign(value: Any) -> int:
    return int(real(value) > 0) - int(value < 0)


def _is_nan(value: Any) -> bool:
    return type(value) is float and value != value


def _is_finite(value: Any) -> bool:
    return type(value) in (int, bool) or (type(value) is float and value - value == 0.0)


def _int(value: Any) -> Any:
    if type(value) is str:
        return number(int(_short(value)))
    return number(int(real(value)))


def _float(value: Any) -> Any:
    return number(float(_short(value) if type(value) is str else real(value)))


def _short(text: str) -> str:
    if len(text) > 100:
        raise Refusal("out_of_range", f"a string of {len(text):,} characters is no number", "at most 100")
    return text


def _bool(value: Any) -> bool:
    return bool(finite(value))


def _str(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) in (int, float):
        return str(real(value))
    if value is None or type(value) is bool:
        return str(value)
    raise Refusal("wrong_type", f"{kind(value)} has no string", "use str with a number, a truth value or null")


def _len(value: Any) -> int:
    if type(value) is str or type(value) is dict or type(value) in LISTS:
        return len(value)
    raise Refusal("wrong_type", f"{kind(value)} has no length", "use len with a list, an object or a string")


def _get(whole: Any, key: Any, default: Any = None) -> Any:
    """The item, or the default if there is none or if there is nothing to look into."""
    if type(whole) is dict:
        return whole.get(key, default) if type(key) is str else default
    if type(whole) in LISTS:
        if type(key) is not int:
            raise Refusal("wrong_type", f"{kind(key)} is no position in a list", "use an integer")
        return whole[key] if -len(whole) <= key < len(whole) else default
    if whole is None:
        return default
    raise Refusal("wrong_type", f"{kind(whole)} has no items", "use get with a list or an object")


def _text(value: Any, chars: int) -> str:
    if type(value) is not str:
        raise Refusal("wrong_type", f"{kind(value)} where a string is needed", "convert it: str(x)")
    if len(value) > chars:
        raise Refusal("too_large", f"a string of {len(value):,} characters", f"at most {chars:,}")
    return value


def _of_text(function: Callable[[str], str]) -> Function:
    def call(chars: int, value: Any) -> str:
        return _text(function(_text(value, chars)), chars)

    return Function(call, bits=None, bounded="chars")


def _starts_with(chars: int, value: Any, start: Any) -> bool:
    return _text(value, chars).startswith(_text(start, chars))


def _ends_with(chars: int, value: Any, end: Any) -> bool:
    return _text(value, chars).endswith(_text(end, chars))


def _real(function: Callable[[Any], Any], *, grows: float = 0.0, caps: float | None = None) -> Function:
    return Function(_of_real(function), native=function, grows=grows, caps=caps)


def _aggregate(name: str, most: int = ANY, *, bits: float | None = FINITE, native: Any = None) -> Function:
    return Function(AGGREGATES[name], 1, most, bits=bits, native=native, bounded="items")


#: Built by `build.py` itself, because they evaluate only the arguments that they need.
LAZY = {"if_else": Function(lambda: None, 3, 3), "coalesce": Function(lambda: None, 2, ANY)}

FUNCTIONS: dict[str, Function] = {
    "abs": _real(abs),
    "sign": Function(_sign, bits=1),
    "round": Function(_round, 1, 2, native=round, grows=1),
    "floor": _real(math.floor, grows=1),
    "ceil": _real(math.ceil, grows=1),
    "clamp": Function(_clamp, 3, 3),
    "sqrt": _real(math.sqrt, grows=1),
    "exp": _real(math.exp, caps=FINITE),
    "log": Function(_log, 1, 2, native=math.log, caps=FINITE),
    "log2": _real(math.log2, caps=12),
    "log10": _real(math.log10, caps=12),
    "pow": Function(power, 2, 2),
    "sin": _real(math.sin, caps=1),
    "cos": _real(math.cos, caps=1),
    "tan": _real(math.tan, caps=64),
    "asin": _real(math.asin, caps=2),
    "acos": _real(math.acos, caps=2),
    "atan": _real(math.atan, caps=2),
    "atan2": Function(_of_two(math.atan2), 2, 2, native=math.atan2, caps=2),
    "hypot": Function(_of_two(math.hypot), 2, 2, native=math.hypot, grows=1),
    "degrees": _real(math.degrees, grows=6),
    "radians": _real(math.radians),
    "isnan": Function(_is_nan, bits=1),
    "is_finite": Function(_is_finite, bits=1),
    "int": Function(_int, native=int),
    "float": Function(_float, native=float, grows=1),
    "bool": Function(_bool, bits=1),
    "str": Function(_str, bits=None),
    "len": Function(_len, bits=64),
    "get": Function(_get, 2, 3, bits=None),
    "lower": _of_text(str.lower),
    "upper": _of_text(str.upper),
    "strip": _of_text(str.strip),
    "starts_with": Function(_starts_with, 2, 2, bits=1, bounded="chars"),
    "ends_with": Function(_ends_with, 2, 2, bits=1, bounded="chars"),
    "min": _aggregate("min", bits=None, native=min),
    "max": _aggregate("max", bits=None, native=max),
    "sum": _aggregate("sum"),
    "avg": _aggregate("mean"),
    "mean": _aggregate("mean"),
    "median": _aggregate("median"),
    "stdev": _aggregate("stdev"),
    "any": _aggregate("any", bits=1),
    "all": _aggregate("all", bits=1),
    "sorted": _aggregate("sorted", 2, bits=None),
    **LAZY,
}
