"""A device that is not there: values from expressions, noise and recorded tables; what is written can be read.

In an expression stand `t` (seconds since the start), `now` (seconds since 1970), `dt` (seconds since this point was
computed last), `value` (what it was then, without noise), and every point of the channel as `p<id>`, `<kind><id>` (ids
repeat between kinds) or its name. Points are computed in the order that they need each other.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tradewind.errors import Invalid, Problem
from tradewind.expr import CONSTANTS, FUNCTIONS, Expression, ExpressionError, compile_expression
from tradewind.numerals import read_number
from tradewind.points.driver import DeviceTrouble, Driver
from tradewind.points.drivers.parameters import unknown_names
from tradewind.points.drivers.replay import Replay, read_replay
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality, Reading

PARAMETERS = ("replay", "loop", "speed", "seed")
_TIMES = ("t", "now", "dt", "value")
_READ = (Kind.MEASUREMENT, Kind.SIGNAL)


class _Source:
    """How one point gets its values. `clean` is its value without noise."""

    __slots__ = ("clean", "column", "due", "every_s", "expression", "names", "noise", "point", "reading", "seen_s")

    def __init__(self, point: PointSpec, names: Sequence[str], expression: Expression | None) -> None:
        mapping = point.mapping
        self.point, self.names, self.expression = point, names, expression
        self.noise = 0.0 if point.kind is Kind.SIGNAL else _number(mapping, "noise_range")
        self.every_s = _number(mapping, "update_interval") / 1000
        self.clean = _number(mapping, "initial_value")
        self.column: list[float | None] | None = None
        self.seen_s = self.due = 0.0
        self.reading: Reading | None = None


class VirtualDriver(Driver):
    """Parameters: `replay` (a CSV file), `loop` true, `speed` 1, `seed` (of the noise, for repeatable runs). Mapping of
    a point: `expression`, `initial_value`, `noise_range` (±), `update_interval` (ms), `column` of the replayed table
    (else the column with its id or name)."""

    protocol: ClassVar[str] = "virtual"

    def __init__(self, channel: ChannelSpec) -> None:
        super().__init__(channel)
        known = _names(channel)
        inputs = _inputs(known)
        self._chance = random.Random(channel.parameters.get("seed"))
        self._values: dict[str, Any] = {}
        self._sources: dict[tuple[Kind, str], _Source] = {}
        for point in channel.points:
            text = str(point.mapping.get("expression") or "") if point.kind in _READ else ""
            expression = compile_expression(text, names=inputs) if text else None
            source = _Source(point, known[point.kind, point.id], expression)
            self._sources[point.kind, point.id] = source
            self._show(source, source.clean)
        self._order = _in_order([s for s in self._sources.values() if s.point.kind in _READ])
        self._replay: Replay | None = None
        self._start_s = 0.0

    @classmethod
    def check(cls, channel: ChannelSpec) -> list[Problem]:
        problems: list[Problem] = []
        replay = channel.parameters.get("replay")
        if replay and not Path(str(replay)).is_file():
            problems.append(Problem("no_file", "parameters.replay", f"there is no file {replay}"))
        if not _is_number(channel.parameters.get("speed", 1)) or float(channel.parameters.get("speed", 1)) <= 0:
            problems.append(Problem("bad_number", "parameters.speed", "give a number above 0"))
        if not isinstance(channel.parameters.get("loop", True), bool):
            problems.append(Problem("bad_value", "parameters.loop", "give true or false"))
        if not isinstance(channel.parameters.get("seed"), int | float | str | None):
            problems.append(Problem("bad_value", "parameters.seed", "give a number or a word"))
        problems += unknown_names(channel.parameters, PARAMETERS)
        inputs = _inputs(_names(channel))
        for index, point in enumerate(channel.points):
            path = f"points[{index}].mapping"
            for name in ("initial_value", "noise_range", "update_interval"):
                value = point.mapping.get(name)
                if value is not None and value != "" and not _is_number(value):
                    problems.append(Problem("bad_number", f"{path}.{name}", f"{value!r} is no finite number"))
            text = point.mapping.get("expression")
            if text and point.kind in _READ:
                try:
                    compile_expression(str(text), names=inputs)
                except Invalid as error:
                    hints = (f"{p.path}: {p.hint}" for p in error.problems)
                    problems.append(Problem("bad_expression", f"{path}.expression", "; ".join(hints)))
        return problems

    async def connect(self) -> None:
        file = self.channel.parameters.get("replay")
        if file:
            try:
                self._replay = await asyncio.to_thread(read_replay, Path(str(file)))
            except Invalid as error:
                raise DeviceTrouble(error.message, hint=error.hint) from error
            for source in self._order:
                named = source.point.mapping.get("column")
                heads = [str(named)] if named else [source.point.id, *source.names, source.point.name]
                columns = (self._replay.columns.get(head) for head in heads)
                source.column = next((column for column in columns if column is not None), None)
        self._start_s = time.monotonic()

    async def poll(self) -> Sequence[Reading]:
        return self.values_at(time.monotonic() - self._start_s)

    def values_at(self, seconds: float) -> list[Reading]:
        """The readings so long after the start; seconds never go back."""
        values, parameters = self._values, self.channel.parameters
        values["t"], values["now"] = seconds, time.time()
        row = 0
        if self._replay is not None:
            row = self._replay.at(seconds * float(parameters.get("speed", 1)), is_loop=parameters.get("loop", True))
        readings = []
        for source in self._order:
            if source.reading is None or seconds >= source.due:
                if source.every_s:
                    source.due = seconds - seconds % source.every_s + source.every_s
                source.reading = self._compute(source, seconds, row)
            readings.append(source.reading)
        return readings

    def _compute(self, source: _Source, seconds: float, row: int) -> Reading:
        values, point = self._values, source.point
        try:
            if source.column is not None:
                recorded = source.column[row]
                source.clean = source.clean if recorded is None else recorded
            if source.expression is not None:
                values["value"], values["dt"] = source.clean, seconds - source.seen_s
                found = source.expression(values)
                if not isinstance(found, (int, float)) or not math.isfinite(found):
                    return Reading(point.kind, point.id, 0.0, quality=Quality.BAD)
                source.clean = float(found)
        except ExpressionError:  # of these values; a bad expression does not get this far
            return Reading(point.kind, point.id, 0.0, quality=Quality.BAD)
        source.seen_s = seconds
        shown = source.clean + self._chance.uniform(-source.noise, source.noise) if source.noise else source.clean
        self._show(source, shown)
        return Reading(point.kind, point.id, shown)

    def _show(self, source: _Source, value: float) -> None:
        for name in source.names:
            self._values[name] = value

    async def write(self, point: PointSpec, raw: float) -> None:
        source = self._sources.get((point.kind, point.id))
        if source is None:
            message = f"channel {self.channel.id} has no point {point.kind}:{point.id}"
            raise Invalid(message, code="no_point", hint="reload the channel")
        source.clean = raw
        self._show(source, raw)

    async def read(self, point: PointSpec) -> Reading | None:
        source = self._sources.get((point.kind, point.id))
        if source is None:
            return None
        if point.kind in _READ:  # it may follow what was just written
            self.values_at(time.monotonic() - self._start_s)
            return source.reading
        return Reading(point.kind, point.id, float(self._values[source.names[0]]))


def _names(channel: ChannelSpec) -> dict[tuple[Kind, str], list[str]]:
    """What each point is called in expressions; the first name is its own, the others go to whoever comes first."""
    found: dict[tuple[Kind, str], list[str]] = {}
    taken = {*_TIMES, *FUNCTIONS, *CONSTANTS} | {f"{p.kind.value}{p.id}" for p in channel.points}
    order = (Kind.MEASUREMENT, Kind.SIGNAL, Kind.ADJUSTMENT, Kind.CONTROL)
    for point in sorted(channel.points, key=lambda p: order.index(p.kind)):
        names = found[point.kind, point.id] = [f"{point.kind.value}{point.id}"]
        for name in (f"p{point.id}", point.name):
            if name.isidentifier() and name not in taken:
                taken.add(name)
                names.append(name)
    return found


def _inputs(names: Mapping[Any, list[str]]) -> frozenset[str]:
    return frozenset((*_TIMES, *(name for group in names.values() for name in group)))


def _in_order(sources: list[_Source]) -> list[_Source]:
    """Each after those that it reads; where they read each other in a circle, the value of the poll before is read."""
    by_name = {name: source for source in sources for name in source.names}
    done: dict[int, _Source] = {}
    begun: set[int] = set()
    for first in sources:
        stack = [first]
        while stack:
            source = stack[-1]
            needs = source.expression.names if source.expression is not None else frozenset()
            if id(source) not in begun:
                begun.add(id(source))
                waiting = [by_name[name] for name in sorted(needs) if name in by_name]
                stack += [one for one in waiting if id(one) not in begun]
            else:
                stack.pop()
                done.setdefault(id(source), source)
    return list(done.values())


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(read_number(value) if isinstance(value, str) else float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _number(mapping: Mapping[str, Any], name: str) -> float:
    value = mapping.get(name, 0.0)
    return float(value) if _is_number(value) else 0.0
