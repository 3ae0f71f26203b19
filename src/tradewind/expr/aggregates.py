"""Functions over one list or over several values: `avg(closes)`, `avg(a, b, c)`. All take the longest list first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tradewind.expr.errors import Refusal
from tradewind.expr.values import LISTS, NUMBERS, finite, kind, number, refuse_non_finite, sized

_STRINGS = frozenset({str})


def _listed(items: int, values: tuple[Any, ...]) -> Sequence[Any]:
    if len(values) > 1:
        return values
    if type(values[0]) in LISTS:
        return sized(values[0], items)  # type: ignore[no-any-return]
    raise Refusal("wrong_type", f"{kind(values[0])} where a list is needed", "give a list, or several values")


def _numbers(items: int, values: tuple[Any, ...], least: int) -> Sequence[Any]:
    listed = _listed(items, values)
    if not NUMBERS.issuperset(map(type, listed)):
        odd = next(value for value in listed if type(value) not in NUMBERS)
        raise Refusal("wrong_type", f"{kind(odd)} where numbers are needed", "convert it, or leave it out")
    _enough(listed, least)
    return listed


def _enough(listed: Sequence[Any], least: int) -> None:
    if len(listed) < least:
        hint = "test it first: avg(x) if len(x) > 0 else 0"
        raise Refusal("too_few", f"{len(listed)} values where at least {least} are needed", hint)


def _comparable(items: int, values: tuple[Any, ...], least: int) -> Sequence[Any]:
    listed = _listed(items, values)
    if NUMBERS.issuperset(map(type, listed)):
        if not all(map(math.isfinite, listed)):
            refuse_non_finite()
    elif not _STRINGS.issuperset(map(type, listed)):
        raise Refusal("wrong_type", "the values are not all numbers, nor all strings", "convert them first")
    _enough(listed, least)
    return listed


def _sum(items: int, *values: Any) -> Any:
    listed = _listed(items, values)
    try:
        return number(sum(listed))
    except TypeError:
        _numbers(items, values, 0)
        raise


def _mean(items: int, *values: Any) -> Any:
    return number(_exact_mean(items, values, 1))


def _exact_mean(items: int, values: tuple[Any, ...], least: int) -> float:
    listed = _listed(items, values)
    _enough(listed, least)
    try:
        return math.fsum(listed) / len(listed)
    except TypeError:  # cheaper than looking at the types first
        _numbers(items, values, least)
        raise


def _stdev(items: int, *values: Any) -> Any:
    """Of a sample: divided by n - 1."""
    mean = _exact_mean(items, values, 2)
    listed = _listed(items, values)
    return number(math.sqrt(math.fsum([(value - mean) ** 2 for value in listed]) / (len(listed) - 1)))


def _median(items: int, *values: Any) -> Any:
    _numbers(items, values, 1)
    ordered = sorted(_comparable(items, values, 1))
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return number(ordered[middle])
    return number((ordered[middle - 1] + ordered[middle]) / 2)


def _min(items: int, *values: Any) -> Any:
    return min(_comparable(items, values, 1))


def _max(items: int, *values: Any) -> Any:
    return max(_comparable(items, values, 1))


def _any(items: int, *values: Any) -> bool:
    return any(map(finite, _listed(items, values)))


def _all(items: int, *values: Any) -> bool:
    return all(map(finite, _listed(items, values)))


def _sorted(items: int, values: Any, reverse: Any = False) -> Any:
    return sorted(_comparable(items, (values,), 0), reverse=bool(reverse))


AGGREGATES: dict[str, Callable[..., Any]] = {
    "sum": _sum,
    "mean": _mean,
    "stdev": _stdev,
    "median": _median,
    "min": _min,
    "max": _max,
    "any": _any,
    "all": _all,
    "sorted": _sorted,
}
