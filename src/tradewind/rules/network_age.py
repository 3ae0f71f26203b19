"""Which points are past their age: looks only at those whose time may be up, so a second costs little. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from tradewind.points.address import MEASUREMENT, Address
from tradewind.points.spec import Kind
from tradewind.rules.timer import moved_ms

_AGING = frozenset((Kind.MEASUREMENT, Kind.SIGNAL, MEASUREMENT))
#: Stands for a channel where a source is the output of a model: who computes the models speaks for all of them.
MODELS = "modsrv"
#: In ms.
NEVER = 1 << 62


class Ages:
    """`times`: of the newest samples, by slot, kept by the network. `substituted`: slots whose values people have
    given, kept by the network, too: these do not grow old. Others do: points of kind m and s, outputs of models."""

    def __init__(
        self,
        slots: Mapping[str, int],
        times: Sequence[int],
        stale_ms: int,
        ages: Mapping[str, int],
        substituted: Set[int] = frozenset(),
    ) -> None:
        self._times = times
        self._substituted = substituted
        self._kept: frozenset[int] = frozenset()
        self._ages: dict[int, int] = {}
        self._channels: dict[int, str] = {}
        for text, slot in slots.items():
            if not text.startswith("alarm:"):
                address = Address.parse(text)
                if address.kind in _AGING:
                    self._ages[slot] = ages.get(text, stale_ms)
                    self._channels[slot] = address.entity if address.is_point else MODELS
        self._seen = dict.fromkeys(self._ages, -1)
        # Of samples that came before the clock was set: their time, and what that is by the clock as it is now.
        self._moved: dict[int, tuple[int, int]] = {}
        self._heap: list[tuple[int, int]] = []
        self._late: set[int] = set()

    def past(self, seen: Mapping[int, int], now_ms: int) -> set[int]:
        """Slots whose values, of these times, are past their age if nothing else speaks for them."""
        return {
            slot
            for slot, ms in seen.items()
            if slot in self._ages and slot not in self._substituted and ms + self._ages[slot] < now_ms
        }

    def is_past(self, slot: int, moment_ms: int) -> bool:
        return slot in self._ages and self._end(slot) < moment_ms

    def is_late(self, slot: int) -> bool:
        return slot in self._late

    def is_stale(self, slot: int, ts_ms: int) -> bool:
        """A value of that time says nothing new of a point that is stale."""
        return slot in self._late and ts_ms <= max(self._times[slot], self._seen[slot])

    def begin(self, seen: Mapping[int, int], stale: set[int]) -> None:
        """`seen`: slot → time of its value on the board. `stale`: those that were stale when that was stored."""
        self._seen.update({slot: ms for slot, ms in seen.items() if slot in self._ages})
        self._late = {slot for slot in stale if slot in self._ages}
        self._heap = [(self._end(slot), slot) for slot in self._ages if slot not in self._late]
        heapq.heapify(self._heap)

    def move(self, by_ms: int, moved: Collection[int] = ()) -> None:
        """The clock was set by so much: what is there is as old as before. `moved`: slots whose times are moved."""
        for slot in self._ages:
            if slot in moved:
                self._moved.pop(slot, None)
                self._seen[slot] = min(self._seen[slot], self._times[slot])
                continue
            if self._times[slot] >= 0:
                self._moved[slot] = self._times[slot], max(0, self._time(slot) + by_ms)
            self._seen[slot] = moved_ms(self._seen[slot], by_ms)
        self._heap = [(self._end(slot), slot) for _, slot in self._heap]
        heapq.heapify(self._heap)

    def _time(self, slot: int) -> int:
        ms = self._times[slot]
        told, is_now = self._moved.get(slot, (-1, -1))
        return is_now if ms <= told else ms

    def _end(self, slot: int) -> int:
        """The last moment at which it is fresh."""
        if slot in self._substituted:
            return NEVER
        return max(self._time(slot), self._seen[slot]) + self._ages[slot]

    def overdue(self, now_ms: int) -> set[str]:
        """Channels with points whose time is up."""
        if self._kept != self._substituted:
            self._kept = frozenset(self._substituted)
            self._heap = [(self._end(slot), slot) for slot in self._ages if slot not in self._late]
            heapq.heapify(self._heap)
        heap = self._heap
        while heap and heap[0][0] < now_ms:
            slot = heapq.heappop(heap)[1]
            end = self._end(slot)
            if end >= now_ms:
                heapq.heappush(heap, (end, slot))
            else:
                self._late.add(slot)
        return {self._channels[slot] for slot in self._late}

    def judge(self, now_ms: int, seen: Mapping[str, int]) -> Iterator[tuple[int, bool, int]]:
        """Slot, whether it is stale, since when; also of those that were so before."""
        self.overdue(now_ms)
        for slot in sorted(self._late):
            self._seen[slot] = max(self._seen[slot], seen.get(self._channels[slot], -1))
            end = self._end(slot)
            if end < now_ms:
                yield slot, True, end
            else:
                self._late.remove(slot)
                heapq.heappush(self._heap, (end, slot))
                yield slot, False, max(self._time(slot), self._seen[slot])
