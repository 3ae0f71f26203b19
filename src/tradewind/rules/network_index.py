"""Which values of an entry of the feed reach which watches, fast for channels that send the same points again. Pure.

A watch is one source of one rule; a slot is one point, of which there may be several watches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

Pick = Callable[[Sequence[Any]], Sequence[Any]]
Found = tuple[Sequence[int], Sequence[float], Sequence[int], Sequence[float]]


class Plan:
    """For entries of a key with just these fields: slots and watches, and where in the entry their values stand."""

    __slots__ = ("fields", "pick_slots", "pick_watches", "slots", "watches")

    def __init__(self, fields: list[str], index: Mapping[str, int], watches: Sequence[Sequence[int]]) -> None:
        self.fields = fields
        found = [(at, index[field]) for at, field in enumerate(fields) if field in index]
        self.slots = [slot for _, slot in found]
        self.pick_slots = _picker([at for at, _ in found], len(fields))
        # In the order of the watches, so of the rules.
        pairs = sorted(
            ((at, watch) for at, slot in enumerate(self.slots) for watch in watches[slot]), key=itemgetter(1)
        )
        self.watches = [watch for _, watch in pairs]
        self.pick_watches = _picker([at for at, _ in pairs], len(self.slots))


class KeyIndex:
    """The points of one key that rules read. `newest`: no sample of them is newer. `last_id`: of the last entry of the
    feed that told of this key, `` before the first."""

    __slots__ = ("_plan", "last_id", "newest", "slots")

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.newest = -1
        self.last_id = ""
        self._plan: Plan | None = None

    def read(self, data: str, watches: Sequence[Sequence[int]]) -> Found:
        """Of `id:value,id:value,…`: slots and their values, watches and theirs."""
        flat = data.replace(":", ",").split(",")
        fields = flat[::2]
        plan = self._plan
        if plan is None or plan.fields != fields:
            plan = self._plan = Plan(fields, self.slots, watches)
        values = list(map(float, plan.pick_slots(flat[1::2])))
        return plan.slots, values, plan.watches, plan.pick_watches(values)


def _picker(places: list[int], size: int) -> Pick:
    if places == list(range(size)):
        return lambda values: values
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[at] for at in places]
