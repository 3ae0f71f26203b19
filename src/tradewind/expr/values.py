"""What a value is, and checks that it stays small, finite and plain JSON."""

from __future__ import annotations

from math import isfinite
from typing import Any, NoReturn

from tradewind.expr.errors import Refusal
from tradewind.expr.limits import INTEGER_BITS, LARGEST_INTEGER

NUMBERS = frozenset({int, float, bool})
PLAIN = frozenset({str, bool, int, type(None)})
LISTS = frozenset({list, tuple})
CONTAINERS = frozenset({list, tuple, dict})

#: Both as floats: a comparison with them is false for NaN, and cheap for floats and integers alike.
LARGE = float(LARGEST_INTEGER)
LARGEST_FLOAT = float.fromhex("0x1.fffffffffffffp+1023")

_KINDS = {
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    type(None): "null",
}


def kind(value: Any) -> str:
    return _KINDS.get(type(value), f"a Python {type(value).__name__}")


def refuse_non_finite() -> NoReturn:
    raise Refusal("not_finite", "a value is not a finite number", "test it first: x if is_finite(x) else 0")


def refuse_large() -> NoReturn:
    raise Refusal("too_large", f"an integer is larger than 2**{INTEGER_BITS}", "use float(x), or smaller values")


def number(value: Any) -> Any:
    """The same value, if it is a finite float or an integer that is not too large."""
    if -LARGE <= value <= LARGE:
        return value
    if type(value) is not float:
        refuse_large()
    if value - value != 0.0:
        refuse_non_finite()
    return value


def real(value: Any) -> Any:
    """The same value, if it is a number."""
    if type(value) not in NUMBERS:
        raise Refusal("wrong_type", f"{kind(value)} where a number is needed", "convert it: float(x)")
    return number(value)


def finite(value: Any) -> Any:
    """The same value, whatever it is, unless it is NaN or an infinity."""
    if type(value) is float and value - value != 0.0:
        refuse_non_finite()
    return value


def sized(value: Any, items: int) -> Any:
    """The same list, if it is not too long."""
    if len(value) > items:
        hint = f"at most {items:,} in this expression; take a slice: x[-{min(items, 100)}:]"
        raise Refusal("too_large", f"a list of {len(value):,} items", hint)
    return value


def plain(value: Any, items: int) -> Any:
    """The same value, if it is plain JSON data of at most `items` items with those inside of others counted."""
    count = 0
    waiting = [value]
    while waiting:
        value_here = waiting.pop()
        cls = type(value_here)
        inside: Any
        if cls is float:
            if value_here - value_here != 0.0:
                refuse_non_finite()
            continue
        if cls in PLAIN:
            continue
        if cls is list:
            inside = value_here
        elif cls is dict:
            inside = value_here.values()
            if not all(type(key) is str for key in value_here):
                raise Refusal("not_json", "an object has a key that is not a string", "use string keys")
        else:
            raise Refusal("not_json", f"{kind(value_here)} is not JSON data", "the inputs must be plain JSON data")
        count += len(inside)
        if count > items:
            raise Refusal("too_large", f"more than {items:,} items in one value", "take a part of it")
        kinds = set(map(type, inside))
        if kinds <= PLAIN or (kinds == {float} and all(map(isfinite, inside))):
            continue
        waiting.extend(inside)
    return value


def result(value: Any, items: int) -> Any:
    """The same value, if it may be what an expression gives."""
    cls = type(value)
    if cls is float:
        if value - value != 0.0:
            refuse_non_finite()
    elif cls is int:
        if not -LARGE <= value <= LARGE:
            refuse_large()
    elif cls not in PLAIN:
        plain(value, items)
    return value
