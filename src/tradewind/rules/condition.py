"""Conditions made ready to be evaluated; those that remember samples are in condition_memory.py. Pure."""

from __future__ import annotations

import operator as op
from collections.abc import Callable
from typing import Any

from tradewind.errors import TradewindError
from tradewind.expr import compile_expression
from tradewind.rules.condition_leaf import KEPT, NOTHING, SAME, Known, LeafProgram
from tradewind.rules.condition_limit import Band, Limit, RangeLimit, Test, edges_around
from tradewind.rules.condition_memory import ChangeLeaf, RateLeaf, WindowLeaf
from tradewind.rules.condition_schedule import Calendar
from tradewind.rules.regex import compile_pattern
from tradewind.rules.spec import AlarmOpen, Change, Compare, Formula, Leaf, Range, Rate, Schedule, Window
from tradewind.rules.verdict import show


class LimitLeaf(LeafProgram):
    """Comparisons that order numbers, and ranges."""

    def __init__(self, spec: Leaf, slots: tuple[int, ...], limit: Test) -> None:
        super().__init__(spec, slots)
        self.limit = limit

    def level(self, known: Known, memory: Any, was: bool, moment_ms: int) -> bool | None:
        x = known[self.slot]
        return self.limit.test(x, was) if type(x) is float else None

    def band(self, known: Known, was: bool, slot: int) -> Band:
        x = known[slot]
        return self.limit.band(x, was) if type(x) is float else NOTHING


class TextLeaf(LeafProgram):
    """==, !=, contains, regex, on numbers and texts. `number`: the one it compares with, equal or not, if it does."""

    def __init__(self, spec: Compare, slots: tuple[int, ...]) -> None:
        super().__init__(spec, slots)
        self.number = spec.value if isinstance(spec.value, float) and spec.operator in ("==", "!=") else None
        self.is_equal = spec.operator == "=="
        self._test = _text_test(spec)

    def level(self, known: Known, memory: Any, was: bool, moment_ms: int) -> bool | None:
        x = known[self.slot]
        return None if x is None else self._test(x)

    def band(self, known: Known, was: bool, slot: int) -> Band:
        x = known[slot]
        if type(x) is not float:
            return NOTHING
        return (x, x) if self.number is None else edges_around(x, self.number)


class ScheduleLeaf(LeafProgram):
    is_timed = True

    def __init__(self, spec: Schedule) -> None:
        super().__init__(spec, ())
        self._calendar = Calendar(spec)

    def level(self, known: Known, memory: Any, was: bool, moment_ms: int) -> bool | None:
        return self._calendar.at(moment_ms)[0]

    def due(self, known: Known, memory: Any, moment_ms: int) -> int:
        return self._calendar.at(moment_ms)[1]

    def actual(self, known: Known, memory: Any, moment_ms: int) -> Any:
        return moment_ms


class FormulaLeaf(LeafProgram):
    """`error`: why it had no value when it was last judged, although all its inputs were known."""

    def __init__(self, spec: Formula, slots: tuple[int, ...]) -> None:
        super().__init__(spec, slots)
        self._inputs = tuple(zip(spec.inputs, slots, strict=True))
        self._call = compile_expression(spec.expression, names=spec.inputs)
        # With one input a new value says all; with more, the others must be what they were after a restart.
        self.is_noted = len(slots) > 1

    def take(self, memory: Any, old: Any, value: Any, ts_ms: int) -> int:
        return SAME if old == value else KEPT

    def level(self, known: Known, memory: Any, was: bool, moment_ms: int) -> bool | None:
        found = self.actual(known, memory, moment_ms)
        return found if found is True or found is False else bool(found) if isinstance(found, (int, float)) else None

    def actual(self, known: Known, memory: Any, moment_ms: int) -> Any:
        given = {}
        for name, slot in self._inputs:
            x = known[slot]
            if x is not None:
                given[name] = x
        self.error = ""
        try:
            return self._call(given)
        except (TradewindError, ArithmeticError, ValueError, TypeError) as error:
            # One that is not known may be done without: coalesce(a, 0). Else nothing is known.
            if len(given) == len(self._inputs):
                self.error = str(error)
            return None


class AlarmLeaf(LeafProgram):
    def level(self, known: Known, memory: Any, was: bool, moment_ms: int) -> bool | None:
        x = known[self.slot]
        return None if x is None else bool(x)


def make_leaf(spec: Leaf, slots: tuple[int, ...]) -> LeafProgram:
    match spec:
        case Compare(operator=">" | "<" | ">=" | "<="):
            return LimitLeaf(spec, slots, Limit(spec.operator, float(spec.value), spec.hysteresis))
        case Compare():
            return TextLeaf(spec, slots)
        case Range():
            return LimitLeaf(spec, slots, RangeLimit(spec))
        case Rate():
            return RateLeaf(spec, slots)
        case Window():
            return WindowLeaf(spec, slots)
        case Change():
            return ChangeLeaf(spec, slots)
        case Schedule():
            return ScheduleLeaf(spec)
        case Formula():
            return FormulaLeaf(spec, slots)
        case AlarmOpen():
            return AlarmLeaf(spec, slots)


def _text_test(spec: Compare) -> Callable[[Any], bool]:
    wanted = spec.value
    if spec.operator == "regex":
        is_found = compile_pattern(str(wanted))
        return lambda x: is_found(show(x))
    if spec.operator == "contains":
        text = str(wanted)
        return lambda x: text in show(x)
    compare: Callable[[Any, Any], bool] = op.eq if spec.operator == "==" else op.ne
    if isinstance(wanted, float):
        return lambda x: compare(x, wanted)
    return lambda x: compare(show(x), wanted)
