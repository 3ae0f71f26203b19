"""A model made ready to run: a flat list of steps over one list of values. Pure.

While every input is good, only the steps themselves run; else, or when one fails, each is run with an eye on qualities.
Steps that remember may be repeated with the same sample (see stateful.py), so the second way may follow the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tradewind.errors import TradewindError
from tradewind.expr import Expression, compile_expression
from tradewind.models.check import constants
from tradewind.models.functions import EXPRESSION, FUNCTIONS, complete
from tradewind.models.graph import ordered
from tradewind.models.spec import Calculation, ModelSpec
from tradewind.models.stateful import Memory

#: As they are stored, with what models remember and in histories; 3 is a word of the rules (stale).
GOOD, UNCERTAIN, BAD, SUBSTITUTED = 0, 1, 2, 4
#: From best to worst.
_RANK = {GOOD: 0, SUBSTITUTED: 1, UNCERTAIN: 2, BAD: 3}
#: What a step may raise for values that it cannot work with.
FAILURES = (ArithmeticError, ValueError, TypeError, TradewindError)

Pick = Callable[[Any], Any]


class _Step:
    """`args`: places of its inputs among the values. One of `call` and `memory`; `when` is the time of its sample."""

    __slots__ = ("args", "call", "expression", "id", "memory", "names", "pick", "when")

    def __init__(self, calculation: Calculation, args: tuple[int, ...], leaves: tuple[int, ...]) -> None:
        self.id = calculation.id
        self.args = args
        self.call: Callable[[Any], float] = _nothing
        self.memory: Memory | None = None
        self.expression: Expression | None = None
        self.names: tuple[str, ...] = ()
        self.when = _newest(leaves)
        if calculation.function == EXPRESSION:
            self.expression = compile_expression(calculation.expression)
            self.names = tuple(sorted(self.expression.names))
            self.pick = _by_name(self.names, args)
            self.call = _as_number(self.expression)
            return
        function = FUNCTIONS[calculation.function]
        params = complete(function, calculation.params)
        self.pick = _picker(args, is_single=function.is_single)
        if function.make is not None:
            self.call = function.make(params)
        elif function.remember is not None:
            self.memory = function.remember(params)


class Program:
    """`slots`: where each input stands in the lists of values, qualities and times that `run` is called with."""

    def __init__(self, spec: ModelSpec, slots: Sequence[int]) -> None:
        self.spec = spec
        self.slots = tuple(slots)
        self.error = ""
        self._take = _picker(self.slots, is_single=False)
        fixed = constants(spec)
        place: dict[str | float, int] = {item.name: i for i, item in enumerate(spec.inputs)}
        place.update({name: len(place) + i for i, name in enumerate(fixed)})
        self._defaults = [item.default for item in spec.inputs]
        self._constants = list(fixed.values())
        calculations = {item.id: item for item in spec.calculations}
        order = ordered({name: _needs(item) for name, item in calculations.items()})[0]
        for name in order:  # numbers among the inputs are constants without a name
            for item in calculations[name].inputs:
                if not isinstance(item, str) and item not in place:
                    place[item] = len(spec.inputs) + len(self._constants)
                    self._constants.append(item)
        base = len(spec.inputs) + len(self._constants)
        place.update({name: base + i for i, name in enumerate(order)})
        self._steps = self._make_steps([calculations[name] for name in order], place)
        self._sources = [place[output.source] for output in spec.outputs]
        self._bounds = [
            (-math.inf if output.min is None else output.min, math.inf if output.max is None else output.max)
            for output in spec.outputs
        ]
        self.memories = {step.id: step.memory for step in self._steps if step.memory is not None}

    def _make_steps(self, calculations: list[Calculation], place: Mapping[Any, int]) -> list[_Step]:
        leaves: dict[int, frozenset[int]] = {i: frozenset((slot,)) for i, slot in enumerate(self.slots)}
        steps = []
        for calculation in calculations:
            wanted = _needs(calculation) if calculation.function == EXPRESSION else calculation.inputs
            args = tuple(place[item] for item in wanted)
            below = frozenset().union(*(leaves.get(arg, frozenset()) for arg in args))
            leaves[place[calculation.id]] = below
            steps.append(_Step(calculation, args, tuple(sorted(below))))
        return steps

    def run(self, values: Sequence[Any], qualities: Sequence[int], times: Sequence[int]) -> list[tuple[Any, int]]:
        """Value and quality of each output. No value and a bad quality: it cannot be known; no value and a good one:
        there is none yet."""
        if not any(self._take(qualities)):
            found = [*self._take(values), *self._constants]
            try:
                for step in self._steps:
                    memory = step.memory
                    if memory is None:
                        found.append(step.call(step.pick(found)))
                    else:
                        found.append(memory.step(_finite(step.pick(found)), step.when(times)))
                self.error = ""
                return [
                    self._result(found[source], GOOD, bounds)
                    for source, bounds in zip(self._sources, self._bounds, strict=True)
                ]
            except FAILURES:
                pass
        return self._run_guarded(values, qualities, times)

    def _run_guarded(
        self, values: Sequence[Any], qualities: Sequence[int], times: Sequence[int]
    ) -> list[tuple[Any, int]]:
        self.error = ""
        found: list[Any] = []
        worst: list[int] = []
        for slot, default in zip(self.slots, self._defaults, strict=True):
            value, quality = values[slot], qualities[slot]
            if value is None or quality == BAD:
                value, quality = (None, BAD) if default is None else (default, UNCERTAIN)
            found.append(value)
            worst.append(quality)
        found += self._constants
        worst += [GOOD] * len(self._constants)
        for step in self._steps:
            value, quality = self._guarded(step, found, worst, times)
            found.append(value)
            worst.append(quality)
        return [
            self._result(found[source], worst[source], bounds)
            for source, bounds in zip(self._sources, self._bounds, strict=True)
        ]

    def _guarded(
        self, step: _Step, found: list[Any], worst: list[int], times: Sequence[int]
    ) -> tuple[float | None, int]:
        quality = max((worst[arg] for arg in step.args), key=_RANK.__getitem__, default=GOOD)
        is_whole = all(found[arg] is not None for arg in step.args)
        try:
            if step.memory is not None:
                return step.memory.step(_finite(step.pick(found)), step.when(times)), quality
            if is_whole:
                return _must_be_finite(step.call(step.pick(found))), quality
            if step.expression is None:
                return None, quality
            # An expression may get along without the value: coalesce(a, 0).
            given = {
                name: found[arg] for name, arg in zip(step.names, step.args, strict=True) if found[arg] is not None
            }
            return _must_be_finite(step.call(given)), UNCERTAIN
        except FAILURES as error:
            if is_whole:
                self.error = f"{step.id}: {error}"
                return None, BAD
            return None, quality

    def _result(self, value: Any, quality: int, bounds: tuple[float, float]) -> tuple[float | None, int]:
        if value is None:
            return None, quality
        value = round(float(value), 6)
        if value - value != 0.0:
            self.error = self.error or "the result is not finite"
            return None, BAD
        if quality in (GOOD, SUBSTITUTED) and not bounds[0] <= value <= bounds[1]:
            quality = UNCERTAIN
        return value + 0.0, quality  # never -0.0


def _needs(calculation: Calculation) -> list[str]:
    if calculation.function == EXPRESSION:
        return sorted(compile_expression(calculation.expression).names)
    return [item for item in calculation.inputs if isinstance(item, str)]


def _picker(places: tuple[int, ...], *, is_single: bool) -> Pick:
    if not places:
        return lambda values: ()
    if len(places) > 1 or is_single:
        return itemgetter(*places)
    place = places[0]
    return lambda values: (values[place],)


def _by_name(names: tuple[str, ...], places: tuple[int, ...]) -> Pick:
    take = _picker(places, is_single=False)
    return lambda values: dict(zip(names, take(values), strict=True))


def _newest(slots: tuple[int, ...]) -> Callable[[Sequence[int]], int]:
    if not slots:
        return lambda times: 0
    if len(slots) == 1:
        return itemgetter(slots[0])
    take = itemgetter(*slots)
    return lambda times: max(take(times))


def _as_number(expression: Expression) -> Callable[[Any], float]:
    def call(values: Any) -> float:
        value = expression(values)
        if type(value) is float or type(value) is int or type(value) is bool:
            return value
        raise ValueError(f"{expression.text!r} gives a {type(value).__name__}, not a number")

    return call


def _nothing(values: Any) -> float:
    raise ValueError("no function")


def _finite(value: Any) -> float | None:
    return None if value is None or value - value != 0.0 else value


def _must_be_finite(value: float) -> float:
    if value - value != 0.0:
        raise OverflowError("the result is not finite")
    return value
