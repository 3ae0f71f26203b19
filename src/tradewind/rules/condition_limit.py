"""Comparisons of numbers with hysteresis, and the bands of values that do not change their outcome. Pure."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable
from typing import Protocol

from tradewind.rules.spec import Range

Band = tuple[float, float]
_INF = math.inf
_TESTS: dict[str, Callable[[float, float], bool]] = {
    ">": op.gt, "<": op.lt, ">=": op.ge, "<=": op.le, "==": op.eq, "!=": op.ne,
}  # fmt: skip


def above(value: float) -> float:
    return math.nextafter(value, _INF)


def below(value: float) -> float:
    return math.nextafter(value, -_INF)


class Test(Protocol):
    def test(self, x: float, was: bool) -> bool:
        """The level with this value, when it was that before."""
        ...

    def band(self, x: float, was: bool) -> Band:
        """An interval with x, bounds included, of which `test` says what it says of x. `was` is that already."""
        ...

    def true_for(self, was: bool) -> tuple[Band, bool]:
        """An interval, bounds included, and whether `test` is true inside of it or outside."""
        ...


class Limit:
    """`>` and `>=` become false below value - hysteresis, `<` and `<=` above value + hysteresis; not so == and !=."""

    __slots__ = ("_compare", "_hold", "_is_up", "_value", "_when_false", "_when_true")

    def __init__(self, operator: str, value: float, hysteresis: float = 0.0) -> None:
        self._compare = _TESTS[operator]
        self._value = value
        self._is_up: bool | None = operator[0] == ">" if operator[0] in "<>" else None
        self._hold = hysteresis > 0 and self._is_up is not None
        start, end = _true_for(operator, value)
        if self._is_up:
            self._when_false = (-_INF, below(start))
            self._when_true = (value - hysteresis, _INF) if self._hold else (start, _INF)
        else:
            self._when_false = (above(end), _INF)
            self._when_true = (-_INF, value + hysteresis) if self._hold else (-_INF, end)

    def test(self, x: float, was: bool) -> bool:
        if was and self._hold:
            return self._when_true[0] <= x <= self._when_true[1]
        return self._compare(x, self._value)

    def band(self, x: float, was: bool) -> Band:
        if self._is_up is None:
            return edges_around(x, self._value)
        return self._when_true if was else self._when_false

    def true_for(self, was: bool) -> tuple[Band, bool]:
        if self._is_up is None:
            return (self._value, self._value), self._compare is op.eq
        return (self._when_true, True) if was and self._hold else (self._when_false, False)


class RangeLimit:
    """Within min and max, bounds included; false again `hysteresis` beyond them. Not `inside`: the other way round."""

    __slots__ = ("_band", "_high", "_inside", "_low")

    def __init__(self, spec: Range) -> None:
        self._low = -_INF if spec.min is None else spec.min
        self._high = _INF if spec.max is None else spec.max
        self._inside = spec.inside
        self._band = spec.hysteresis

    def test(self, x: float, was: bool) -> bool:
        low, high = self._bounds(was)
        return (low <= x <= high) is self._inside

    def _bounds(self, was: bool) -> Band:
        """Of the inner values, as they count while the level is that."""
        low, high, band = self._low, self._high, self._band
        if not was or not band:
            return low, high
        if self._inside:
            return low - band, high + band
        return above(low + band), below(high - band)

    def band(self, x: float, was: bool) -> Band:
        low, high = self._bounds(was)
        if x < low:
            return -_INF, below(low)
        return (low, high) if x <= high else (above(high), _INF)

    def true_for(self, was: bool) -> tuple[Band, bool]:
        return self._bounds(was), self._inside


def edges_around(x: float, value: float) -> Band:
    """The interval with x in which everything is equal to the value, or nothing is."""
    if x == value:
        return value, value
    return (-_INF, below(value)) if x < value else (above(value), _INF)


def _true_for(operator: str, value: float) -> Band:
    match operator:
        case ">":
            return above(value), _INF
        case ">=":
            return value, _INF
        case "<":
            return -_INF, below(value)
    return -_INF, value
