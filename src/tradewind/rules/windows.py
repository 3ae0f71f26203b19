"""The samples of the last so many milliseconds of event time, and what is computed of them. Pure.

Up to MAX_SAMPLES each sample is kept, and the result is that of exactly the samples in (moment - window, moment]. With
more, they are folded into buckets of a thousandth of the window; a bucket leaves when its newest sample does, so the
result then covers up to one bucket more. Sums are whole millionths, so that neither order nor a restart changes them.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import Any

from tradewind.rules.timer import moved_ms

MAX_SAMPLES = 10_000
BUCKETS = 1_000
#: Above this a double has no millionths.
_LARGE = 1e15
_COMPACT = 1_024


def millionths(value: float) -> int:
    """As a whole number of millionths; the board has no more decimals."""
    return round(value * 1e6) if -_LARGE < value < _LARGE else int(value) * 1_000_000


class Trail:
    """Samples in order of time. The newest may be replaced by one of the same time."""

    __slots__ = ("head", "times", "values")

    def __init__(self) -> None:
        self.times = array("q")
        self.values = array("d")
        self.head = 0

    def __len__(self) -> int:
        return len(self.times) - self.head

    @property
    def oldest_ms(self) -> int:
        return self.times[self.head]

    def put(self, ts_ms: int, value: float) -> None:
        if len(self) and self.times[-1] == ts_ms:
            self.values[-1] = value
        else:
            self.times.append(ts_ms)
            self.values.append(value)

    def follow(self, ts_ms: int, value: float) -> None:
        """As `put`, of a trail that keeps the two newest only."""
        times, values = self.times, self.values
        if len(times) == 2 and times[1] != ts_ms:
            times[0], values[0] = times[1], values[1]
            times[1], values[1] = ts_ms, value
        else:
            self.put(ts_ms, value)

    def drop(self) -> float:
        """Take the oldest away."""
        value = self.values[self.head]
        self.head += 1
        if self.head >= _COMPACT and self.head * 2 >= len(self.times):
            del self.times[: self.head], self.values[: self.head]
            self.head = 0
        return value

    def thin(self) -> None:
        """Every second one goes; the oldest and the newest stay."""
        last = self.times[-1], self.values[-1]
        self.times, self.values, self.head = self.times[self.head : -1 : 2], self.values[self.head : -1 : 2], 0
        self.put(*last)

    def move(self, by_ms: int) -> None:
        self.times = array("q", [moved_ms(ts_ms, by_ms) for ts_ms in self.times])

    def dump(self) -> Any:
        return self.times[self.head :].tobytes(), self.values[self.head :].tobytes()

    @classmethod
    def load(cls, data: Any) -> Trail:
        trail = cls()
        trail.times.frombytes(data[0])
        trail.values.frombytes(data[1])
        if len(trail.times) != len(trail.values):
            raise ValueError("times and values differ in number")
        return trail


class SampleWindow:
    """`start_ms`: since when samples are collected. Sums are kept as far as the function needs them. Buckets: newest
    time, count, sum, squares, lowest, highest. `oldest_ms`: when the next to leave was taken, -1 when there is none."""

    __slots__ = (
        "_best", "_buckets", "_is_squared", "_is_summed", "_last", "_limit", "_sign", "_squares", "_total", "_trail",
        "_width", "count", "oldest_ms", "start_ms",
    )  # fmt: skip

    def __init__(self, window_ms: int, function: str, max_samples: int = MAX_SAMPLES) -> None:
        self.start_ms = -1
        self.count = 0
        self.oldest_ms = -1
        self._limit = max_samples
        self._width = max(1, window_ms // BUCKETS)
        self._trail = Trail()
        self._buckets: deque[list[Any]] | None = None
        self._last = (0, 0.0)
        self._is_summed = function in ("avg", "sum", "stddev")
        self._is_squared = function == "stddev"
        self._total = 0
        self._squares = 0
        #: Times and values of which each is better than all after it; only for min (-1) and max (1).
        self._best: deque[tuple[int, float]] = deque()
        self._sign = {"min": -1.0, "max": 1.0}.get(function, 0.0)

    def put(self, ts_ms: int, value: float) -> None:
        """A sample not older than the newest; one of the same time takes its place."""
        if self.start_ms < 0:
            self.start_ms = ts_ms
        if self.count and self._last[0] == ts_ms:
            self._replace(ts_ms, value)
            return
        self._last = (ts_ms, value)
        self._count(value, 1)
        if self._buckets is not None:
            self._put_bucket(ts_ms, value)
            self.oldest_ms = self._buckets[0][0]
            return
        if self.count == 1:
            self.oldest_ms = ts_ms
        trail = self._trail
        trail.times.append(ts_ms)
        trail.values.append(value)
        if self._sign:
            self._rank(ts_ms, value)
        if self.count > self._limit:
            self._fold()

    def slide(self, limit_ms: int) -> None:
        """Drop what is as old as the limit, or older."""
        if self._buckets is not None:
            while self._buckets and self._buckets[0][0] <= limit_ms:
                _, count, total, squares, _, _ = self._buckets.popleft()
                self.count -= count
                self._total -= total
                self._squares -= squares
            self.oldest_ms = self._buckets[0][0] if self._buckets else -1
            if not self._buckets:
                self._buckets = None
            return
        trail, best = self._trail, self._best
        while self.count and trail.times[trail.head] <= limit_ms:
            self._count(trail.drop(), -1)
        while best and best[0][0] <= limit_ms:
            best.popleft()
        self.oldest_ms = trail.times[trail.head] if self.count else -1

    def move(self, by_ms: int) -> None:
        """All of it is so much later. What comes next may be older than that: then it leaves later than it should."""
        self.start_ms, self.oldest_ms = moved_ms(self.start_ms, by_ms), moved_ms(self.oldest_ms, by_ms)
        self._last = (moved_ms(self._last[0], by_ms), self._last[1])
        self._trail.move(by_ms)
        self._best = deque((moved_ms(ts_ms, by_ms), value) for ts_ms, value in self._best)
        for bucket in self._buckets or ():
            bucket[0] = moved_ms(bucket[0], by_ms)

    def result(self, function: str) -> float | None:
        """None when there are too few samples: none at all (a count is 0 then), or one for a deviation."""
        count = self.count
        if function == "count":
            return float(count)
        try:
            if not count:
                return None
            if function == "sum":
                return self._total / 1_000_000
            if function == "avg":
                return self._total / (count * 1_000_000)
            if function == "stddev":
                if count < 2:
                    return None
                return math.sqrt((count * self._squares - self._total**2) / (count * (count - 1))) / 1e6
        except OverflowError:
            return None
        if self._buckets is not None:
            if function == "min":
                return float(min(bucket[4] for bucket in self._buckets))
            return float(max(bucket[5] for bucket in self._buckets))
        return self._best[0][1]

    def dump(self) -> Any:
        if self._buckets is not None:
            # Sums may be wider than 64 bits: as text.
            rows = [[a, n, str(t), str(s), low, high] for a, n, t, s, low, high in self._buckets]
            return self.start_ms, rows, self._last
        return (self.start_ms, *self._trail.dump())

    @classmethod
    def load(cls, window_ms: int, function: str, data: Any) -> SampleWindow:
        window = cls(window_ms, function)
        window.start_ms = int(data[0])
        if isinstance(data[1], list):
            rows = [[a, n, int(t), int(s), low, high] for a, n, t, s, low, high in data[1]]
            window._buckets = deque(rows)
            window._last = (int(data[2][0]), float(data[2][1]))
            window.count = sum(row[1] for row in rows)
            window._total = sum(row[2] for row in rows)
            window._squares = sum(row[3] for row in rows)
            window.oldest_ms = rows[0][0] if rows else -1
            return window
        trail = window._trail = Trail.load(data[1:])
        window.oldest_ms = trail.times[0] if trail.times else -1
        for ts_ms, value in zip(trail.times, trail.values, strict=True):
            window._count(value, 1)
            window._last = (ts_ms, value)
            if window._sign:
                window._rank(ts_ms, value)
        return window

    def _count(self, value: float, sign: int) -> None:
        self.count += sign
        if self._is_summed:  # else nobody asks for the sums
            whole = millionths(value) * sign
            self._total += whole
            if self._is_squared:
                self._squares += whole * whole * sign

    def _rank(self, ts_ms: int, value: float) -> None:
        best, sign = self._best, self._sign
        while best and best[-1][1] * sign <= value * sign:
            best.pop()
        best.append((ts_ms, value))

    def _replace(self, ts_ms: int, value: float) -> None:
        old = self._last[1]
        self._last = (ts_ms, value)
        self._count(old, -1)
        self._count(value, 1)
        if self._buckets is not None:
            bucket = self._buckets[-1]
            bucket[2] += millionths(value) - millionths(old)
            bucket[3] += millionths(value) ** 2 - millionths(old) ** 2
            bucket[4], bucket[5] = min(bucket[4], value), max(bucket[5], value)
            return
        self._trail.put(ts_ms, value)
        if self._sign:  # what the old value had beaten is needed again
            self._best.clear()
            for at in range(self._trail.head, len(self._trail.times)):
                self._rank(self._trail.times[at], self._trail.values[at])

    def _put_bucket(self, ts_ms: int, value: float) -> None:
        assert self._buckets is not None
        whole = millionths(value)
        last = self._buckets[-1] if self._buckets else None
        if last is not None and last[0] // self._width == ts_ms // self._width:
            last[0] = ts_ms
            last[1] += 1
            last[2] += whole
            last[3] += whole * whole
            last[4], last[5] = min(last[4], value), max(last[5], value)
        else:
            self._buckets.append([ts_ms, 1, whole, whole * whole, value, value])

    def _fold(self) -> None:
        trail, self._trail = self._trail, Trail()
        self._buckets = deque()
        self._best.clear()
        for at in range(trail.head, len(trail.times)):
            self._put_bucket(trail.times[at], trail.values[at])
        self.oldest_ms = self._buckets[0][0]
