"""Which values of an entry of the feed are read by rules, fast for channels that send the same points again. Pure.

A watch is one source of one rule; a slot is one point, of which there may be several watches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

#: Numbers as JSON has them, several times as fast as `float`. Raises DecodeError.
read_json_number = msgspec.json.Decoder(float).decode
_read_list = msgspec.json.Decoder(list[float]).decode
Pick = Callable[[Sequence[Any]], Sequence[Any]]


class Plan:
    """For entries of a key with just these fields: slots, where in the entry their values stand, how many watches."""

    __slots__ = ("fields", "pick", "slots", "watches")

    def __init__(self, fields: list[str], index: Mapping[str, int], watches: Sequence[int]) -> None:
        self.fields = fields
        found = [(at, index[field]) for at, field in enumerate(fields) if field in index]
        self.slots = [slot for _, slot in found]
        self.pick = _picker([at for at, _ in found], len(fields))
        self.watches = sum(watches[slot] for slot in self.slots)


class KeyIndex:
    """The points of one key that rules read. `newest`: no sample of them is newer. `last_id`: of the last entry of the
    feed that told of this key, `` before the first."""

    __slots__ = ("_plan", "last_id", "newest", "slots")

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.newest = -1
        self.last_id = ""
        self._plan: Plan | None = None

    def read(self, data: str, watches: Sequence[int]) -> tuple[list[int], list[float], int]:
        """Of `id:value,id:value,…`: slots, their values, and how many watches they have. `watches`: of each slot."""
        flat = data.replace(":", ",").split(",")
        fields = flat[::2]
        plan = self._plan
        if plan is None or plan.fields != fields:
            plan = self._plan = Plan(fields, self.slots, watches)
        return plan.slots, read_numbers(plan.pick(flat[1::2])), plan.watches


def read_number(text: str) -> float:
    """As `float` does. Raises ValueError."""
    try:
        return read_json_number(text)
    except msgspec.DecodeError:  # there are other ways to write one
        return float(text)


def read_numbers(texts: Sequence[str]) -> list[float]:
    """As `float` does with each. Raises ValueError."""
    try:
        return _read_list(f"[{','.join(texts)}]")
    except msgspec.DecodeError:
        return list(map(float, texts))


def _picker(places: list[int], size: int) -> Pick:
    if places == list(range(size)):
        return lambda values: values
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[at] for at in places]
