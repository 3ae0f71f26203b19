"""From entries of the feed into the lists of a network, fast for channels that send the same points again. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from tradewind.points.feed import FeedEntry


class Plan:
    """For batches of a key with just these fields: where their values go, and the models behind: `exact`, `others`.

    `row`: the slots as a slice, where they lie side by side.
    """

    __slots__ = ("exact", "fields", "is_whole", "others", "pick", "row", "slots")

    def __init__(
        self, fields: list[str], index: Mapping[str, tuple[int, ...]], exact: Sequence[Any], others: Sequence[Any]
    ) -> None:
        self.fields = fields
        found = [(slot, at) for at, field in enumerate(fields) for slot in index.get(field, ())]
        self.slots = [slot for slot, _ in found]
        places = [at for _, at in found]
        start = self.slots[0] if self.slots else 0
        is_row = self.slots == list(range(start, start + len(found)))
        self.row = slice(start, start + len(found)) if is_row else None
        self.is_whole = places == list(range(len(fields)))
        self.pick = itemgetter(*places) if len(places) > 1 else lambda values: tuple(values[at] for at in places)
        self.exact = tuple(dict.fromkeys(at for slot in self.slots for at in exact[slot]))
        self.others = tuple(dict.fromkeys(at for slot in self.slots for at in others[slot]))

    def values(self, flat: list[str]) -> list[float]:
        """The values for `slots`, out of `id, value, id, value, …`."""
        texts = flat[1::2]
        return list(map(float, texts if self.is_whole else self.pick(texts)))


class KeyState:
    """What is known of all slots of one key. `newest`: no sample of them is newer. `marks` counts changes that left one
    not good; `cleaned` is what it was when all slots of the plan were good. `stale`: how many are past their age."""

    __slots__ = ("cleaned", "index", "marks", "newest", "plan", "stale")

    def __init__(self, index: dict[str, tuple[int, ...]]) -> None:
        self.index = index
        self.newest = 0
        self.marks = 0
        self.stale = 0
        self.cleaned = -1
        self.plan: Plan | None = None

    def plan_for(self, flat: list[str], exact: Sequence[Any], others: Sequence[Any]) -> Plan:
        fields = flat[::2]
        if self.plan is None or self.plan.fields != fields:
            self.plan = Plan(fields, self.index, exact, others)
            self.cleaned = -1
        return self.plan


def is_plain(entry: FeedEntry) -> bool:
    """All of its values are good and of one time."""
    return bool(entry.data) and not entry.qualities and not entry.each_ts
