"""What all conditions have in common. Pure.

A leaf's `band` is what keeps judging cheap: the values of a source that would leave its level as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tradewind.rules.condition_limit import Band
from tradewind.rules.spec import AlarmOpen, Formula, Leaf, Schedule, kind_of

#: What `take` says: nothing to store, to be stored, and: it was true and is so for another reason.
SAME, KEPT, AGAIN = 0, 1, 2
NOTHING: Band = (math.inf, -math.inf)

Known = Sequence[Any]


class LeafProgram:
    """`slots`: places of its sources among the values of the rule, None there when unknown. `is_noted`: it must be told
    of each sample (`take`). `is_timed`: its level may change by time alone. Not `is_banded`: it must see every sample,
    its `band` is never asked for. The memory is one per state."""

    is_noted = False
    is_timed = False
    is_banded = True

    def __init__(self, spec: Leaf, slots: tuple[int, ...]) -> None:
        self.spec = spec
        self.slots = slots
        self.slot = slots[0] if slots else -1
        self.for_ms = spec.for_ms
        self.field = spec.field or _name(spec)
        self.error = ""

    def fresh(self) -> Any:
        return None

    def take(self, memory: Any, old: Any, value: Any, ts_ms: int) -> int:
        return SAME

    def begin(self, memory: Any, moment_ms: int) -> bool:
        """Told before a timed leaf is evaluated; True when that changed its memory."""
        return False

    def level(self, known: Known, memory: Any, was: bool, moment_ms: int) -> bool | None:
        """`was`: its last level that was known."""
        raise NotImplementedError

    def due(self, known: Known, memory: Any, moment_ms: int) -> int:
        """When its level may change by time alone, after the moment; 0: never."""
        return 0

    def band(self, known: Known, was: bool, slot: int) -> Band:
        """Values of a source of its, bounds included, with which nothing about it changes."""
        x = known[slot]
        return (x, x) if type(x) is float else NOTHING

    def actual(self, known: Known, memory: Any, moment_ms: int) -> Any:
        return known[self.slot]

    def move(self, memory: Any, by_ms: int) -> None:
        """The clock was set by so much."""

    def dump(self, memory: Any) -> Any:
        return None

    def load(self, data: Any) -> Any:
        """Raises ValueError, TypeError, … for what was not dumped here."""
        return self.fresh()


def _name(spec: Leaf) -> str:
    match spec:
        case AlarmOpen():
            return f"alarm:{spec.rule_id}"
        case Schedule() | Formula():
            return kind_of(spec)
    return spec.source
