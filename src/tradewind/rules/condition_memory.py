"""Conditions that remember their samples: rates, windows, changes. Pure."""

from __future__ import annotations

import math
from typing import Any

from tradewind.rules.condition_leaf import AGAIN, KEPT, NOTHING, SAME, Known, LeafProgram
from tradewind.rules.condition_limit import Band, Limit, edges_around
from tradewind.rules.spec import Change, Rate, Window
from tradewind.rules.verdict import show
from tradewind.rules.windows import MAX_SAMPLES, SampleWindow, Trail


class RateLeaf(LeafProgram):
    is_noted = True
    is_banded = False

    def __init__(self, spec: Rate, slots: tuple[int, ...]) -> None:
        super().__init__(spec, slots)
        self._over_ms = spec.over_ms
        self._limit = Limit(spec.operator, spec.value, spec.hysteresis)

    def fresh(self) -> Trail:
        return Trail()

    def take(self, memory: Trail, old: Any, value: Any, ts_ms: int) -> int:
        if type(value) is not float:
            return SAME
        if not self._over_ms:
            memory.follow(ts_ms, value)
            return KEPT
        memory.put(ts_ms, value)
        while len(memory) > 2 and memory.oldest_ms < ts_ms - self._over_ms:
            memory.drop()
        if len(memory) > MAX_SAMPLES:
            memory.thin()
        return KEPT

    def level(self, known: Known, memory: Trail, was: bool, moment_ms: int) -> bool | None:
        rate = self.actual(known, memory, moment_ms)
        return None if rate is None else self._limit.test(rate, was)

    def actual(self, known: Known, memory: Trail, moment_ms: int) -> float | None:
        times, values, head = memory.times, memory.values, memory.head
        if len(times) - head < 2 or type(known[self.slot]) is not float:
            return None
        rate = (values[-1] - values[head]) * 1000 / (times[-1] - times[head])
        return rate if rate - rate == 0.0 else None

    def dump(self, memory: Trail) -> Any:
        return memory.dump()

    def load(self, data: Any) -> Trail:
        return Trail.load(data)


class WindowLeaf(LeafProgram):
    """A count is known also while the source is not: that nothing arrives is what it may look for."""

    is_noted = is_timed = True
    is_banded = False

    def __init__(self, spec: Window, slots: tuple[int, ...]) -> None:
        super().__init__(spec, slots)
        self._function = spec.function
        self._window_ms = spec.window_ms
        self._limit = Limit(spec.operator, spec.value, spec.hysteresis)
        #: A count that must not grow above something cannot be known before the whole window was watched.
        self._needs_all = spec.function == "count" and spec.operator not in (">", ">=")

    def fresh(self) -> SampleWindow:
        return SampleWindow(self._window_ms, self._function)

    def take(self, memory: SampleWindow, old: Any, value: Any, ts_ms: int) -> int:
        if type(value) is not float:
            return SAME
        memory.put(ts_ms, value)
        return KEPT

    def begin(self, memory: SampleWindow, moment_ms: int) -> bool:
        if memory.start_ms >= 0:
            return False
        memory.start_ms = moment_ms
        return True

    def level(self, known: Known, memory: SampleWindow, was: bool, moment_ms: int) -> bool | None:
        if memory.oldest_ms <= moment_ms - self._window_ms:
            memory.slide(moment_ms - self._window_ms)
        if self._needs_all and moment_ms < memory.start_ms + self._window_ms:
            return None
        found = self.actual(known, memory, moment_ms)
        return None if found is None else self._limit.test(found, was)

    def due(self, known: Known, memory: SampleWindow, moment_ms: int) -> int:
        if self._needs_all and moment_ms < memory.start_ms + self._window_ms:
            return memory.start_ms + self._window_ms
        oldest = memory.oldest_ms
        return oldest + self._window_ms if oldest >= 0 else 0

    def actual(self, known: Known, memory: SampleWindow, moment_ms: int) -> float | None:
        if self._function != "count" and type(known[self.slot]) is not float:
            return None
        return memory.result(self._function)

    def move(self, memory: SampleWindow, by_ms: int) -> None:
        memory.move(by_ms)

    def dump(self, memory: SampleWindow) -> Any:
        return memory.dump()

    def load(self, data: Any) -> SampleWindow:
        return SampleWindow.load(self._window_ms, self._function, data)


class ChangeLeaf(LeafProgram):
    """Its memory: the last known value, and whether the change to it fitted."""

    is_noted = True

    def __init__(self, spec: Change, slots: tuple[int, ...]) -> None:
        super().__init__(spec, slots)
        self._before, self._after = spec.before, spec.after

    def fresh(self) -> list[Any]:
        return [None, False]

    def take(self, memory: list[Any], old: Any, value: Any, ts_ms: int) -> int:
        last, was_fit = memory
        if value is None or value == last:
            return SAME
        is_fit = last is not None and _fits(last, self._before) and _fits(value, self._after)
        memory[:] = value, is_fit
        return AGAIN if is_fit and was_fit else KEPT

    def level(self, known: Known, memory: list[Any], was: bool, moment_ms: int) -> bool | None:
        return None if known[self.slot] is None else bool(memory[1])

    def band(self, known: Known, was: bool, slot: int) -> Band:
        """While it is false, only its own two values can be part of a change that fits; of all others it does not
        matter which one was the last."""
        x = known[slot]
        if type(x) is not float:
            return NOTHING
        wanted = [value for value in (self._before, self._after) if value is not None]
        if was or not wanted:
            return x, x
        low, high = -math.inf, math.inf
        for value in wanted:
            if not isinstance(value, float):
                return x, x
            its_low, its_high = edges_around(x, value)
            low, high = max(low, its_low), min(high, its_high)
        return low, high

    def dump(self, memory: list[Any]) -> Any:
        return memory

    def load(self, data: Any) -> list[Any]:
        last, is_fit = data
        return [last, bool(is_fit)]


def _fits(value: Any, wanted: float | str | None) -> bool:
    if wanted is None:
        return True
    return value == wanted if isinstance(wanted, float) else show(value) == wanted
