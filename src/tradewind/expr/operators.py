"""The operators as functions that refuse what would be large, slow, not finite or of the wrong type.

Used where `build.py` cannot prove that Python's own operator is harmless.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from tradewind.expr.errors import Refusal
from tradewind.expr.limits import INTEGER_BITS
from tradewind.expr.values import (
    CONTAINERS,
    LARGE,
    LARGEST_FLOAT,
    LISTS,
    NUMBERS,
    finite,
    kind,
    number,
    plain,
    real,
    refuse_large,
    result,
    sized,
)


def mismatch(verb: str, left: Any, right: Any) -> NoReturn:
    hint = "convert one of them: str(x), float(x)"
    raise Refusal("wrong_type", f"cannot {verb} {kind(left)} and {kind(right)}", hint)


def subtract(left: Any, right: Any) -> Any:
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return number(left - right)
    mismatch("subtract", left, right)


def divide(left: Any, right: Any) -> Any:
    if type(left) in NUMBERS and type(right) in NUMBERS:
        if -LARGE <= left <= LARGE and -LARGE <= right <= LARGE:
            return number(left / right)
        return number(number(left) / number(right))
    mismatch("divide", left, right)


def floor_divide(left: Any, right: Any) -> Any:
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return number(number(left) // number(right))
    mismatch("divide", left, right)


def modulo(left: Any, right: Any) -> Any:
    # Not for strings: "%999999999d" % 1 would be formatting.
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return number(number(left) % number(right))
    mismatch("divide", left, right)


def power(left: Any, right: Any) -> Any:
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        mismatch("raise to a power", left, right)
    number(left)
    number(right)
    are_integers = type(left) is not float and type(right) is not float
    if are_integers and abs(left) > 1 and right * math.log2(abs(left)) > INTEGER_BITS + 1:
        refuse_large()  # without computing it
    value = left**right
    if type(value) is complex:
        raise Refusal("out_of_range", "a negative number has no such power", "use abs(x), or an integer power")
    return number(value)


def negative(value: Any) -> Any:
    return -real(value)


def positive(value: Any) -> Any:
    return +real(value)


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        if type(left) in NUMBERS and type(right) in NUMBERS:
            if not (-LARGEST_FLOAT <= left <= LARGEST_FLOAT and -LARGEST_FLOAT <= right <= LARGEST_FLOAT):
                number(left)
                number(right)
        elif type(left) is not str or type(right) is not str:
            mismatch("compare", left, right)
        return compare(left, right) is True

    return ordered


def lookup(values: Mapping[str, Any], name: str) -> Any:
    """An input that may be missing."""
    return values.get(name)


@lru_cache(maxsize=256)
def operators(items: int, chars: int, result_items: int) -> dict[str, Callable[..., Any]]:
    """All operators by name, for lists of at most `items` items and strings of at most `chars` characters."""
    nested = items // 4

    def within(length: int, what: Any) -> None:
        if length > (chars if type(what) is str else items):
            noun = "characters" if type(what) is str else "items"
            count = f"{length:,}" if length < 10**12 else "far too many"
            raise Refusal("too_large", f"{kind(what)} would have {count} {noun}", "make it shorter")

    def add(left: Any, right: Any) -> Any:
        if type(left) in NUMBERS and type(right) in NUMBERS:
            return number(left + right)
        if (type(left) is str and type(right) is str) or (type(left) in LISTS and type(right) in LISTS):
            within(len(left) + len(right), left)
            return left + right if type(left) is str else [*left, *right]
        mismatch("add", left, right)

    def multiply(left: Any, right: Any) -> Any:
        if type(left) in NUMBERS and type(right) in NUMBERS:
            if -LARGE <= left <= LARGE and -LARGE <= right <= LARGE:
                return number(left * right)
            return number(number(left) * number(right))
        if type(left) is int and (type(right) is str or type(right) in LISTS):
            left, right = right, left
        if type(right) is int and (type(left) is str or type(left) in LISTS):
            within(len(left) * max(number(right), 0), left)
            return left * right if type(left) is str else list(left) * right
        mismatch("multiply", left, right)

    def equal(left: Any, right: Any) -> bool:
        if type(left) in CONTAINERS and type(right) in CONTAINERS:
            left, right = plain(listed(left), nested), plain(listed(right), nested)
        else:
            finite(left)
            finite(right)
        return bool(left == right)

    def unequal(left: Any, right: Any) -> bool:
        return not equal(left, right)

    def contains(item: Any, whole: Any) -> bool:
        if type(whole) is str:
            if type(item) is not str:
                raise Refusal("wrong_type", f"{kind(item)} is never in a string", "convert it: str(x)")
        elif type(whole) in LISTS:
            if type(item) in CONTAINERS:
                item, whole = plain(listed(item), nested), plain(listed(whole), nested)
            else:
                finite(item)
                sized(whole, items)
        elif type(whole) is not dict:
            raise Refusal("wrong_type", f"nothing is in {kind(whole)}", "use in with a list, an object or a string")
        elif type(item) is not str:
            return False
        return item in whole

    def lacks(item: Any, whole: Any) -> bool:
        return not contains(item, whole)

    def part(whole: Any, start: Any, stop: Any, step: Any) -> Any:
        if type(whole) is not str and type(whole) not in LISTS:
            raise Refusal("wrong_type", f"{kind(whole)} has no slices", "slice a list or a string")
        wanted = slice(start, stop, step)
        if len(whole) > (chars if type(whole) is str else items):
            within(len(range(*wanted.indices(len(whole)))), whole)
        return whole[wanted] if type(whole) is not tuple else list(whole[wanted])

    def mapping(*pairs: Any) -> dict[str, Any]:
        keys = pairs[::2]
        if not all(type(key) is str for key in keys):
            raise Refusal("not_json", "the key of an object must be a string", "convert it: str(x)")
        return dict(zip(keys, pairs[1::2], strict=True))

    def outcome(value: Any) -> Any:
        return result(value, result_items)

    found: dict[str, Callable[..., Any]] = {
        "add": add,
        "subtract": subtract,
        "multiply": multiply,
        "divide": divide,
        "floor_divide": floor_divide,
        "modulo": modulo,
        "power": power,
        "negative": negative,
        "positive": positive,
        "less": _ordered(operator.lt),
        "at_most": _ordered(operator.le),
        "greater": _ordered(operator.gt),
        "at_least": _ordered(operator.ge),
        "equal": equal,
        "unequal": unequal,
        "contains": contains,
        "lacks": lacks,
        "part": part,
        "mapping": mapping,
        "lookup": lookup,
        "finite": finite,
        "outcome": outcome,
    }
    return found


def listed(value: Any) -> Any:
    return list(value) if type(value) is tuple else value
