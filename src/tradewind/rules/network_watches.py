"""Where the sources of rules stand, and which rules must look at a new value. Pure.

A slot is one address; a watch is one source of one rule, and has a band of values with which nothing changes. Watches
are numbered in the order of the rules. The band of a slot is what the bands of its watches have in common: a value in
it is done with, however many rules read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec

from tradewind.points.feed import FeedEntry
from tradewind.points.values import FUTURE_MS
from tradewind.rules.network_index import KeyIndex, read_json_number, read_number
from tradewind.rules.network_seen import Hit
from tradewind.rules.program import RuleProgram
from tradewind.rules.state import RuleState
from tradewind.rules.verdict import BAD, GOOD, SUBSTITUTED, UNCERTAIN, is_known

#: Entries of up to so many characters are better read point by point: no plan is made for them.
SHORT = 160
#: One object each, for all slots: what is touched for every value stays at hand.
INF, MINUS_INF = math.inf, -math.inf
_WORDS = {"good": GOOD, "substituted": SUBSTITUTED, "uncertain": UNCERTAIN, "bad": BAD}
by_watch = by_time = itemgetter(0)


class Watches:
    """`slots` by address, `slots_of` and `watches_of` by rule and its sources, `places` by watch: rule and source.
    `values` and `times` by slot. `keys`: what the feed tells of. `checks`: how often a value met a watch. `future_ms`:
    a time so much after now is from before the clock was set back."""

    def __init__(self, programs: Sequence[RuleProgram], future_ms: int = FUTURE_MS) -> None:
        self.future_ms = future_ms
        addresses = dict.fromkeys(address for program in programs for address in program.addresses)
        # Points of one key stand side by side: what comes together is found together.
        grouped = sorted(addresses, key=lambda address: address.rpartition(":")[0])
        self.slots = {address: slot for slot, address in enumerate(grouped)}
        self.slots_of: list[list[int]] = []
        self.watches_of: list[list[int]] = []
        self.places: list[tuple[int, int]] = []
        for at, program in enumerate(programs):
            first = len(self.places)
            self.slots_of.append([self.slots[address] for address in program.addresses])
            self.watches_of.append(list(range(first, first + len(program.addresses))))
            self.places += [(at, place) for place in range(len(program.addresses))]
        self._slots = [slot for slots in self.slots_of for slot in slots]
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
        #: Slots of points whose values people have given instead of the devices.
        self.substituted: set[int] = set()
        self._points = frozenset(slot for address, slot in self.slots.items() if address.startswith("comsrv:"))
        self.checks = 0
        self._low = [INF] * len(self.places)
        self._high = [MINUS_INF] * len(self.places)
        self._counts = [len(watches) for watches in self.readers]
        # Of slots. That of a slot with several watches is empty when one of them has another band than before, until a
        # value has met them all.
        self._floor = [INF] * len(self.slots)
        self._ceiling = [MINUS_INF] * len(self.slots)

    def keys_of(self) -> list[KeyIndex | None]:
        """By watch; None for what the feed does not tell."""
        keys = {slot: index for index in self.keys.values() for slot in index.slots.values()}
        return [keys.get(slot) for slot in self._slots]

    def sift(self, entries: Iterable[FeedEntry]) -> Iterator[tuple[FeedEntry, KeyIndex, list[Hit] | None]]:
        """Entries with something to be judged, one after the other; None for those that must be read value by value.

        What they tell stands when they are given, and what the later ones tell does not yet: bands may change in
        between. Most entries of busy stations have one value that changes nothing, so that is done right here.
        """
        keys, values, times, counts = self.keys, self.values, self.times, self._counts
        floor, ceiling = self._floor, self._ceiling
        checks = 0
        for entry in entries:
            index = keys.get(entry.key)
            if index is None:
                continue
            index.last_id = entry.id
            data, ts_ms = entry.data, entry.ts_ms
            if ts_ms < index.newest or entry.qualities or entry.each_ts or entry.is_late:
                if not entry.is_late:
                    yield entry, index, None
                continue
            index.newest = ts_ms
            if "," in data:
                hits = (self.read_short if len(data) <= SHORT else self.read)(index, data, ts_ms)
                if hits:
                    yield entry, index, hits
                continue
            field, _, text = data.partition(":")
            slot = index.slots.get(field)
            if slot is None:
                continue
            try:
                value = read_json_number(text)
            except msgspec.DecodeError:
                value = float(text)
            values[slot] = value
            times[slot] = ts_ms
            checks += counts[slot]
            if not floor[slot] <= value <= ceiling[slot]:
                hits = self._look(slot, value, ts_ms)
                if hits:
                    yield entry, index, hits
        self.checks += checks

    def read(self, index: KeyIndex, data: str, ts_ms: int) -> list[Hit]:
        """Good values of one time, none of them older than what stands: what must be judged for them."""
        slots, found, met = index.read(data, self._counts)
        values, times, floor, ceiling = self.values, self.times, self._floor, self._ceiling
        readers, counts = self.readers, self._counts
        hits: list[Hit] = []
        for slot, value in zip(slots, found):  # noqa: B905 - strict costs more than the rest
            values[slot] = value
            times[slot] = ts_ms
            if not floor[slot] <= value <= ceiling[slot]:
                if counts[slot] == 1:
                    hits.append((readers[slot][0], value, ts_ms, GOOD))
                else:
                    hits += self._look(slot, value, ts_ms)
        self.checks += met
        hits.sort(key=by_watch)
        return hits

    def read_short(self, index: KeyIndex, data: str, ts_ms: int) -> list[Hit]:
        """As `read`, faster for entries of few points."""
        hits: list[Hit] = []
        for part in data.split(","):
            field, _, text = part.partition(":")
            slot = index.slots.get(field)
            if slot is None:
                continue
            self.values[slot] = value = read_number(text)
            self.times[slot] = ts_ms
            self.checks += self._counts[slot]
            if not self._floor[slot] <= value <= self._ceiling[slot]:
                hits += self._look(slot, value, ts_ms)
        if len(hits) > 1:
            hits.sort(key=by_watch)
        return hits

    def _look(self, slot: int, value: float, ts_ms: int) -> list[Hit]:
        """A good value that is not in the band of its slot, or the first one since that is not known any more."""
        if self._counts[slot] == 1:
            return [(self.readers[slot][0], value, ts_ms, GOOD)]
        hits: list[Hit] = []
        floor, ceiling = MINUS_INF, INF
        for watch in self.readers[slot]:
            low, high = self._low[watch], self._high[watch]
            if not low <= value <= high:
                hits.append((watch, value, ts_ms, GOOD))
            floor, ceiling = max(floor, low), min(ceiling, high)
        if not hits:
            self._floor[slot], self._ceiling[slot] = floor, ceiling
        return hits

    def read_all(
        self, index: KeyIndex, entry: FeedEntry, marked: Callable[[int, int], list[Hit]]
    ) -> Iterator[tuple[int, list[Hit]]]:
        """Any entry, value by value: what must be judged, with its time, one time after the other. As with `sift`,
        what is of a later time does not stand yet. `marked`: what is to be judged when a slot has another quality and
        no value."""
        quality, times, slots = entry.quality(), entry.times(), index.slots
        index.newest = max(index.newest, entry.ts_ms)
        found = [
            (times[field], slots[field], value, _WORDS[quality.get(field, "good")])
            for field, value in entry.values().items()
            if field in slots
        ]
        if entry.each_ts:
            found.sort()
        moment, hits = 0, list[Hit]()
        for next_ms, group in groupby(found, key=by_time):
            if hits:
                yield moment, sorted(hits, key=by_watch)
            hits = [hit for ts_ms, slot, value, word in group for hit in self.meet(slot, value, ts_ms, word)]
            moment = next_ms
        for field, text in quality.items():
            slot = slots.get(field, -1)
            if field not in times and slot >= 0 and entry.ts_ms >= self.times[slot]:
                self.hold(slot, _WORDS[text])
                hits += marked(slot, _WORDS[text])
                moment = entry.ts_ms
        if hits:
            yield moment, sorted(hits, key=by_watch)

    def meet(self, slot: int, value: float | str | None, ts_ms: int, quality: int) -> Iterator[Hit]:
        """Any sample of one source; an older one changes nothing."""
        if ts_ms < self.times[slot]:
            return
        self.values[slot], self.times[slot] = value, ts_ms
        self.hold(slot, quality)
        self.checks += len(self.readers[slot])
        number = value if is_known(quality) and isinstance(value, (int, float)) else None
        for watch in self.readers[slot]:
            if number is None or not self._low[watch] <= number <= self._high[watch]:
                yield watch, value, ts_ms, quality

    def set_back(self, now_ms: int, by_ms: int | None) -> set[int]:
        """Times after now are moved by `by_ms`, and to now at the latest; the slots of which."""
        moved = {slot for slot, ms in enumerate(self.times) if ms > now_ms + self.future_ms}
        for slot in moved:
            self.times[slot] = now_ms if by_ms is None else max(0, min(now_ms, self.times[slot] + by_ms))
        for index in self.keys.values():
            index.newest = min(index.newest, now_ms)
        return moved

    def hold(self, slot: int, quality: int) -> None:
        """Note whether its value is one that a person has given to a point."""
        if quality == SUBSTITUTED and slot in self._points:
            self.substituted.add(slot)
        elif self.substituted:
            self.substituted.discard(slot)

    def set_band(self, watch: int, program: RuleProgram, state: RuleState, place: int) -> None:
        """After the state has changed."""
        low, high = program.band(state, place)
        self._low[watch], self._high[watch] = low, high
        slot = self._slots[watch]
        if self._counts[slot] == 1:
            self._floor[slot], self._ceiling[slot] = MINUS_INF if low == MINUS_INF else low, high
        else:
            self._floor[slot], self._ceiling[slot] = INF, MINUS_INF
