"""Where the sources of rules stand, and which rules must look at a new value. Pure.

A slot is one address; a watch is one source of one rule, and has a band of values with which nothing changes. Watches
are numbered in the order of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from tradewind.rules.network_index import KeyIndex
from tradewind.rules.network_seen import Hit
from tradewind.rules.program import RuleProgram
from tradewind.rules.state import RuleState
from tradewind.rules.verdict import BAD, GOOD

#: Entries of up to so many characters are better read point by point: no plan is made for them.
SHORT = 160
by_watch = itemgetter(0)


class Watches:
    """`slots` by address, `slots_of` and `watches_of` by rule and its sources, `places` by watch: rule and source.
    `values` and `times` by slot. `keys`: what the feed tells of. `checks`: how often a value met a watch."""

    def __init__(self, programs: Sequence[RuleProgram]) -> None:
        self.slots: dict[str, int] = {}
        self.slots_of: list[list[int]] = []
        self.watches_of: list[list[int]] = []
        self.places: list[tuple[int, int]] = []
        for at, program in enumerate(programs):
            first = len(self.places)
            self.slots_of.append([self.slots.setdefault(a, len(self.slots)) for a in program.addresses])
            self.watches_of.append(list(range(first, first + len(program.addresses))))
            self.places += [(at, place) for place in range(len(program.addresses))]
        self.readers: list[list[int]] = [[] for _ in self.slots]
        for slots, watches in zip(self.slots_of, self.watches_of, strict=True):
            for slot, watch in zip(slots, watches, strict=True):
                self.readers[slot].append(watch)
        self.values: list[float | str | None] = [None] * len(self.slots)
        self.times = [-1] * len(self.slots)
        self.keys: dict[str, KeyIndex] = {}
        for address, slot in self.slots.items():
            if not address.startswith("alarm:"):
                key, _, field = address.rpartition(":")
                self.keys.setdefault(key, KeyIndex()).slots[field] = slot
        self.checks = 0
        self._low = [float("inf")] * len(self.places)
        self._high = [float("-inf")] * len(self.places)

    def keys_of(self) -> list[KeyIndex | None]:
        """By watch; None for what the feed does not tell."""
        keys = {slot: index for index in self.keys.values() for slot in index.slots.values()}
        return [keys.get(slot) for slots in self.slots_of for slot in slots]

    def read(self, index: KeyIndex, data: str, ts_ms: int) -> list[Hit]:
        """Good values of one time, none of them older than what stands: what must be judged for them."""
        slots, found, watches, met = index.read(data, self.readers)
        values, times, low, high = self.values, self.times, self._low, self._high
        for slot, value in zip(slots, found):  # noqa: B905 - strict costs more than the rest
            values[slot] = value
            times[slot] = ts_ms
        self.checks += len(watches)
        pairs = zip(watches, met)  # noqa: B905
        return [(watch, value, ts_ms, GOOD) for watch, value in pairs if not low[watch] <= value <= high[watch]]

    def read_short(self, index: KeyIndex, data: str, ts_ms: int) -> list[Hit]:
        """As `read`, faster for entries of few points."""
        hits: list[Hit] = []
        for part in data.split(","):
            field, _, text = part.partition(":")
            slot = index.slots.get(field)
            if slot is None:
                continue
            self.values[slot] = value = float(text)
            self.times[slot] = ts_ms
            watches = self.readers[slot]
            self.checks += len(watches)
            for watch in watches:
                if not self._low[watch] <= value <= self._high[watch]:
                    hits.append((watch, value, ts_ms, GOOD))
        if len(hits) > 1:
            hits.sort(key=by_watch)
        return hits

    def meet(self, slot: int, value: float | str | None, ts_ms: int, quality: int) -> Iterator[Hit]:
        """Any sample of one source; an older one changes nothing."""
        if ts_ms < self.times[slot]:
            return
        self.values[slot], self.times[slot] = value, ts_ms
        self.checks += len(self.readers[slot])
        number = value if quality < BAD and isinstance(value, (int, float)) else None
        for watch in self.readers[slot]:
            if number is None or not self._low[watch] <= number <= self._high[watch]:
                yield watch, value, ts_ms, quality

    def set_band(self, watch: int, program: RuleProgram, state: RuleState, place: int) -> None:
        """After the state has changed."""
        self._low[watch], self._high[watch] = program.band(state, place)
