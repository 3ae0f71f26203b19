"""What rules mean, written down once more in the slowest and most obvious way: tick by tick, from the whole history."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

from tradewind.rules.spec import (
    AlarmOpen,
    Change,
    Compare,
    Formula,
    Group,
    Leaf,
    Range,
    Rate,
    Rule,
    Schedule,
    Window,
)

TESTS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne}


def limit(spec: Any, x: float, was: bool) -> bool:
    if was and spec.hysteresis and spec.operator in (">", ">="):
        return bool(x >= spec.value - spec.hysteresis)
    if was and spec.hysteresis and spec.operator in ("<", "<="):
        return bool(x <= spec.value + spec.hysteresis)
    return bool(TESTS[spec.operator](x, spec.value))


def within(spec: Range, x: float, was: bool) -> bool:
    low = -math.inf if spec.min is None else spec.min
    high = math.inf if spec.max is None else spec.max
    band = spec.hysteresis if was else 0.0
    if spec.inside:
        return low - band <= x <= high + band
    if band:
        return x <= low + band or x >= high - band
    return x < low or x > high


def aggregate(function: str, values: list[float]) -> float | None:
    exact = [Fraction(round(value * 1e6), 10**6) for value in values]
    count = len(values)
    if function == "count":
        return count
    if not count:
        return None
    match function:
        case "sum":
            return float(sum(exact))
        case "avg":
            return float(sum(exact) / count)
        case "min":
            return min(values)
        case "max":
            return max(values)
    if count < 2:
        return None
    mean = sum(exact) / count
    return math.sqrt(float(sum((x - mean) ** 2 for x in exact) / (count - 1)))


class OracleLeaf:
    def __init__(self, spec: Leaf, start: int) -> None:
        self.spec = spec
        self.start = start
        self.was = False
        self.base: bool | None = None
        self.level: bool | None = None
        self.held = 0
        self.last: Any = None
        self.fitted = False
        self.again = False

    def see(self, address: str, value: Any) -> None:
        """A change looks at each value as it comes."""
        self.again = False
        spec = self.spec
        if isinstance(spec, Change) and address == spec.source and value is not None and value != self.last:
            fits = self.last is not None
            fits = fits and spec.before in (None, self.last) and spec.after in (None, value)
            self.again = fits and self.fitted
            self.fitted, self.last = fits, value

    def evaluate(self, history: dict[str, dict[int, float]], shown: dict[str, Any], now: int) -> None:
        base = self._base(history, shown, now)
        if base is not None:
            self.was = base
        if base is False or (self.again and self.spec.for_ms):
            self.held = 0
        self.base = base
        self.level = base
        if base and self.spec.for_ms:
            self.level = self.held >= self.spec.for_ms

    def _base(self, history: dict[str, dict[int, float]], shown: dict[str, Any], now: int) -> bool | None:
        spec = self.spec
        if isinstance(spec, Schedule):
            every = int(spec.cron.split()[0].removeprefix("*/"))
            return any(
                now - minute * 60_000 < spec.duration_ms
                for minute in range(now // 60_000 - 10, now // 60_000 + 1)
                if minute % 60 % every == 0
            )
        if isinstance(spec, Formula):
            a, b = (shown.get(address) for address in spec.inputs.values())
            return None if a is None or b is None else a > b
        source = spec.address if isinstance(spec, AlarmOpen) else spec.source
        x = shown.get(source)
        if isinstance(spec, Window):
            window = [value for at, value in sorted(history.get(source, {}).items()) if at > now - spec.window_ms]
            if spec.function == "count":
                if spec.operator not in (">", ">=") and now < self.start + spec.window_ms:
                    return None
            elif x is None:
                return None
            found = aggregate(spec.function, window)
            return None if found is None else limit(spec, found, self.was)
        if x is None:
            return None
        if isinstance(spec, Compare):
            return limit(spec, x, self.was)
        if isinstance(spec, Range):
            return within(spec, x, self.was)
        if isinstance(spec, Change):
            return self.fitted
        if isinstance(spec, AlarmOpen):
            return bool(x)
        assert isinstance(spec, Rate)
        known = sorted(history[source].items())
        if len(known) < 2:
            return None
        newest, before = known[-1], known[-2]
        if spec.over_ms:
            near = [item for item in known[:-1] if item[0] >= newest[0] - spec.over_ms]
            before = near[0] if near else before
        return limit(spec, (newest[1] - before[1]) * 1000 / (newest[0] - before[0]), self.was)


def of_group(group: Group, levels: list[bool | None]) -> bool | None:
    found = root(group.logic, group.conditions, levels)
    return {True: False, False: True, None: None}[found] if group.negated else found


def root(logic: str, conditions: tuple[Any, ...], levels: list[bool | None]) -> bool | None:
    """Takes the levels of its leaves off the list."""
    found = [of_group(part, levels) if isinstance(part, Group) else levels.pop(0) for part in conditions]
    if logic == "any":
        return True if True in found else None if None in found else False
    return False if False in found else None if None in found else True


def edges(rule: Rule, events: list[tuple[int, str, float | None]], start: int, end: int, tick: int) -> list[Any]:
    """(edge, time, levels) of a rule first judged at `start` with nothing known. An event without a value is bad
    data. All times must be multiples of the tick."""
    leaves = [OracleLeaf(leaf, start) for leaf in rule.leaves()]
    history: dict[str, dict[int, float]] = {}
    shown: dict[str, Any] = {}
    found: list[Any] = []
    active = settled = False
    wanted: bool | None = None
    waited, risen = 0, -math.inf

    def levels() -> list[bool | None]:
        return [leaf.level for leaf in leaves]

    def act(now: int) -> None:
        nonlocal active, settled, wanted, waited, risen
        level = root(rule.logic, rule.conditions, levels())
        wanted = {"hold": None, "true": True, "false": False}[rule.on_bad] if level is None else level
        if not settled:
            if wanted is None:
                return
            settled = True
        if wanted is None:
            return
        off = [False if leaf.again else leaf.level for leaf in leaves]
        is_pulse = any(leaf.again for leaf in leaves) and level is True
        if is_pulse and root(rule.logic, rule.conditions, off) is False and not rule.off_delay_ms:
            waited = 0
            if active:
                if not rule.for_ms and now >= risen + rule.cooldown_ms:
                    risen = now
                    found.append(("rise", now, levels()))
                else:
                    active = False
                    found.append(("fall", now, levels()))
                return
        if wanted == active:
            waited = 0
        elif waited >= (rule.for_ms if wanted else rule.off_delay_ms):
            if wanted and now < risen + rule.cooldown_ms:
                return
            active, waited = wanted, 0
            if wanted:
                risen = now
            found.append(("rise" if wanted else "fall", now, levels()))

    todo = list(events)
    for now in range(start, end + 1, tick):
        if now > start:
            for leaf in leaves:
                leaf.again = False
                leaf.held += tick if leaf.base else 0
            waited += tick if wanted is not None and settled and wanted != active else 0
        for leaf in leaves:
            leaf.evaluate(history, shown, now)
        act(now)
        while todo and todo[0][0] == now:
            _, address, value = todo.pop(0)
            shown[address] = value
            if value is not None:
                history.setdefault(address, {})[now] = value
            for leaf in leaves:
                leaf.see(address, value)
                leaf.evaluate(history, shown, now)
            act(now)
    return found
