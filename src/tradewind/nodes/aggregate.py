"""`aggregate`: many signals into one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Meta

from tradewind.flows.node import Input, Node, Output, node
from tradewind.flows.node_errors import NodeValidationException

Op = Literal["collect", "sum", "avg", "min", "max", "count", "first", "last", "merge"]


@node("aggregate", category="math", inline=True)
class Aggregate(Node):
    """Brings the signals of many edges together: collected by source, or as one number.

    A list counts as its items, a null is left out. Without any value sum and count are 0, the others null.
    """

    op: Annotated[
        Op,
        Meta(
            description="collect: an object keyed by source handle (`node:handle` where two would be the same). "
            "sum, avg, min, max, count: over the values. first, last: by time. merge: one object out of objects."
        ),
    ] = "collect"
    data: Input[dict[str, Any]] = Input(aggregate=True, description="Takes any number of edges.")
    result: Output[Any] = Output(description="What came out.")

    async def execute(self) -> None:
        await self.result.send(self._compute(self.data.value if self.data.has_value else {}))

    def _compute(self, data: dict[str, Any]) -> Any:
        if self.op == "collect":
            return data
        if self.op == "merge":
            return self._merge(data)
        if self.op in ("first", "last"):
            by_time = sorted(self.data.signals, key=lambda signal: signal.timestamp)
            values = [signal.payload for signal in by_time] or list(data.values())
            return values[0 if self.op == "first" else -1] if values else None
        values = _flat(data)
        if self.op == "count":
            return len(values)
        return _NUMBERS[self.op]([self._number(value) for value in values])

    def _merge(self, data: dict[str, Any]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for key in sorted(data):  # by name, so that the outcome does not hang on who was first
            if data[key] is None:
                continue
            if not isinstance(data[key], dict):
                raise self._bad(f"{key!r} brings no object, so it cannot be merged")
            merged |= data[key]
        return merged

    def _number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._bad(f"{self.op} needs numbers, but got {str(value)[:100]!r}")
        return value

    def _bad(self, message: str) -> NodeValidationException:
        return NodeValidationException(f"node {self.node_id!r}: {message}", ["data"], self.node_id)


def _flat(data: dict[str, Any]) -> list[Any]:
    values: list[Any] = []
    for value in data.values():
        values += value if isinstance(value, list) else [value]
    return [value for value in values if value is not None]


def _sum(values: list[float]) -> float:
    return sum(values) if all(isinstance(value, int) for value in values) else math.fsum(values)


_NUMBERS: dict[str, Callable[[list[float]], float | None]] = {
    "sum": _sum,
    "avg": lambda values: _sum(values) / len(values) if values else None,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
}
