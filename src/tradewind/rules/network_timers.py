"""Timers of rules by time. A rule has one; when it is set anew, the old entry is left behind and skipped. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tradewind.rules.state import RuleState


class Timers:
    """`states`: kept by the network; their `due_ms` is what counts."""

    def __init__(self, states: Sequence[RuleState]) -> None:
        self._states = states
        self._heap: list[tuple[int, int]] = []
        self._queued = [0] * len(states)
        self._waiting: list[tuple[int, int]] = []

    def put(self, at: int) -> None:
        """The state of a rule may have another time."""
        due = self._states[at].due_ms
        if due and due != self._queued[at]:
            self._queued[at] = due
            heapq.heappush(self._heap, (due, at))

    def next_ms(self) -> int:
        """0: none runs."""
        heap = self._heap
        while heap and self._states[heap[0][1]].due_ms != heap[0][0]:
            moment, at = heapq.heappop(heap)
            if self._queued[at] == moment:
                self._queued[at] = 0
        return heap[0][0] if heap else 0

    def pop(self, now_ms: int) -> tuple[int, int] | None:
        """Time and rule of the first that is due."""
        if not 0 < self.next_ms() <= now_ms:
            return None
        moment, at = heapq.heappop(self._heap)
        self._queued[at] = 0
        return moment, at

    def postpone(self, moment: int, at: int) -> None:
        """Until `resume`."""
        self._queued[at] = moment
        self._waiting.append((moment, at))

    def resume(self) -> None:
        for item in self._waiting:
            heapq.heappush(self._heap, item)
        self._waiting.clear()
