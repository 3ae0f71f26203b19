"""When a change of a point starts a cycle. Pure: what a trigger wants, and what a new value means to it.

`{"type": "point", "address": "comsrv:1001:m:10001", "deadband": 0.5, "condition": "value > 50", "to": "node.handle"}`
Without a condition every change of at least `deadband` since the last one that fired fires; with one, the moment it
becomes true. The first value that is seen is a state, not a change.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.expr import Expression, ExpressionError, compile_expression
from tradewind.points.address import Address

NAMES = ("value", "previous", "ts")
TYPES = ("point", "model")


class Remembered(msgspec.Struct):
    """What a trigger knows of the values before: the last one, the last that fired, whether its condition held; the one
    before the last, and when the last was."""

    last: float | None = None
    fired: float | None = None
    held: bool | None = None
    previous: float | None = None
    ts: int | None = None


class PointTrigger(msgspec.Struct, frozen=True):
    address: Address
    deadband: float = 0.0
    condition: Expression | None = None

    def judge(self, value: float, ts_ms: int, before: Remembered) -> tuple[bool, Remembered]:
        """Whether a cycle is to start, and what to remember. A condition that cannot be evaluated changes nothing."""
        previous = before.last
        if self.condition is not None:
            try:
                holds = bool(self.condition({"value": value, "previous": previous, "ts": ts_ms}))
            except ExpressionError:
                return False, Remembered(value, before.fired, before.held)
            fires = holds and before.held is False
            return fires, Remembered(value, value if fires else before.fired, holds)
        if before.fired is None:
            return False, Remembered(value, value, None)
        fires = value != before.fired and abs(value - before.fired) >= self.deadband
        return fires, Remembered(value, value if fires else before.fired, None)


def read_trigger(raw: dict[str, Any], path: str = "") -> PointTrigger:
    """Raises Invalid with everything that is wrong."""
    problems: list[Problem] = []
    address = None
    try:
        address = Address.parse(str(raw.get("address", "")))
    except Invalid as error:
        problems.append(Problem("bad_address", f"{path}address", error.hint or error.message))
    deadband = raw.get("deadband", 0)
    if isinstance(deadband, bool) or not isinstance(deadband, int | float) or not 0 <= deadband < float("inf"):
        problems.append(Problem("bad_deadband", f"{path}deadband", "give a number that is not negative"))
        deadband = 0
    condition = None
    if raw.get("condition"):
        try:
            condition = compile_expression(str(raw["condition"]), names=NAMES)
        except Invalid as error:
            problems += [Problem(p.code, f"{path}condition", p.hint) for p in error.problems]
    if problems or address is None:
        raise Invalid("the trigger is not valid", hint="see problems", problems=problems)
    return PointTrigger(address, float(deadband), condition)


def trigger_problems(triggers: tuple[dict[str, Any], ...]) -> list[Problem]:
    """Of all point triggers of a flow."""
    found: list[Problem] = []
    for i, raw in enumerate(triggers):
        if raw.get("type") in TYPES:
            try:
                read_trigger(raw, f"triggers[{i}].")
            except Invalid as error:
                found += error.problems
    return found
