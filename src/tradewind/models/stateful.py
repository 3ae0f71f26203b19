"""Calculations that remember. Pure: time is the event time of the samples, given in milliseconds.

A second sample of the same time takes the place of the first, so a step that is made twice counts once. None is the
absence of a value: what lies between it and the next sample is not counted, what was counted stays. `dump` and `load`
carry the memory over a restart; `load` raises ValueError or TypeError for what another kind of calculation dumped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

#: A time window slides in steps of this part of its length, so that its memory is bounded; it is never shorter than
#: asked for, and at most a step longer.
BUCKETS = 60


class Memory(ABC):
    @abstractmethod
    def step(self, value: float | None, at_ms: int) -> float | None:
        """The result with this sample; None: there is none (yet)."""

    @abstractmethod
    def set_back(self, to_ms: int) -> None:
        """The clock was set back: the next sample comes from `to_ms` on. What was counted stays, and what lies between
        the last sample and the next is not counted."""

    @abstractmethod
    def dump(self) -> list[Any]:
        """Plain numbers and lists."""

    @abstractmethod
    def load(self, saved: list[Any]) -> None: ...


class Integral(Memory):
    """Area under the samples: `hold` keeps each value until the next one, `trapezoid` draws a line between them.

    Gaps of more than `gap_ms` are not counted. The last stretch is kept apart, because its end may be replaced.
    """

    def __init__(self, per_s: float, method: str, initial: float, gap_ms: int | None) -> None:
        self._per_ms = per_s * 1000
        self._is_line = method == "trapezoid"
        self._gap_ms = gap_ms
        self._total = initial
        self._from: tuple[float | None, int] = (None, 0)
        self._to: tuple[float | None, int] = (None, 0)

    def step(self, value: float | None, at_ms: int) -> float | None:
        if at_ms > self._to[1]:
            self._total += self._stretch()
            self._from = self._to
            self._to = (value, at_ms)
        elif value is None and self._to[0] is not None:  # it went bad after its sample, whose stretch counts
            self._total += self._stretch()
            self._from = self._to = (None, self._to[1])
        else:
            self._to = (value, self._to[1])
        return None if value is None else self._total + self._stretch()

    def set_back(self, to_ms: int) -> None:
        if self._to[1] > to_ms:
            self._total += self._stretch()
            self._from = self._to = (None, to_ms)

    def _stretch(self) -> float:
        (first, since), (last, until) = self._from, self._to
        took = until - since
        if first is None or (self._gap_ms is not None and took > self._gap_ms):
            return 0.0
        if self._is_line:
            return 0.0 if last is None else (first + last) / 2 * took / self._per_ms
        return first * took / self._per_ms

    def dump(self) -> list[Any]:
        return [self._total, *self._from, *self._to]

    def load(self, saved: list[Any]) -> None:
        total, first, since, last, until = saved
        self._total, self._from, self._to = float(total), (first, int(since)), (last, int(until))


class EnergyCounter(Integral):
    """Energy of a power: kW give kWh with a factor of 1, W with 0.001. `positive` and `negative` count one direction,
    both upward."""

    def __init__(self, factor: float, direction: str, method: str, initial: float, gap_ms: int | None) -> None:
        super().__init__(3600.0, method, initial, gap_ms)
        self._factor = -factor if direction == "negative" else factor
        self._is_one_way = direction != "both"

    def step(self, value: float | None, at_ms: int) -> float | None:
        if value is not None:
            value *= self._factor
            if self._is_one_way and value < 0:
                value = 0.0
        return super().step(value, at_ms)


class MovingAverage(Memory):
    """Mean of the last samples."""

    def __init__(self, samples: int) -> None:
        self._values: deque[float] = deque(maxlen=samples)
        self._at_ms = 0

    def step(self, value: float | None, at_ms: int) -> float | None:
        if value is None:
            return None
        values = self._values
        if at_ms > self._at_ms or not values:
            values.append(value)
            self._at_ms = at_ms
        else:
            values[-1] = value
        return sum(values) / len(values)

    def set_back(self, to_ms: int) -> None:
        self._at_ms = min(self._at_ms, to_ms - 1)

    def dump(self) -> list[Any]:
        return [self._at_ms, list(self._values)]

    def load(self, saved: list[Any]) -> None:
        at_ms, values = saved
        self._at_ms, self._values = int(at_ms), deque(map(float, values), self._values.maxlen)


class Rate(Memory):
    """Change per time between the last two samples."""

    def __init__(self, per_s: float) -> None:
        self._per_ms = per_s * 1000
        self._from: tuple[float | None, int] = (None, 0)
        self._to: tuple[float | None, int] = (None, 0)

    def step(self, value: float | None, at_ms: int) -> float | None:
        if at_ms > self._to[1]:
            self._from = self._to
            self._to = (value, at_ms)
        else:
            self._to = (value, self._to[1])
        (first, since), (last, until) = self._from, self._to
        if first is None or last is None:
            return None
        return (last - first) / (until - since) * self._per_ms

    def set_back(self, to_ms: int) -> None:
        if self._to[1] > to_ms:
            self._from = self._to = (None, 0)

    def dump(self) -> list[Any]:
        return [*self._from, *self._to]

    def load(self, saved: list[Any]) -> None:
        first, since, last, until = saved
        self._from, self._to = (first, int(since)), (last, int(until))


class Window(Memory):
    """Smallest, largest or mean value of the last `length_ms`; each value holds until the next one, and weighs as long.

    A bucket is [number, smallest, largest, area, ms]; what holds now is not in a bucket before its end is known.
    """

    def __init__(self, length_ms: int, what: str) -> None:
        self._width = max(1, -(-length_ms // BUCKETS))
        self._count = max(1, -(-length_ms // self._width))
        self._what = what
        self._buckets: deque[list[Any]] = deque()
        self._value: float | None = None
        self._since = 0

    def step(self, value: float | None, at_ms: int) -> float | None:
        if at_ms > self._since:
            if self._value is not None:
                self._hold(self._value, self._since, at_ms)
            self._since = at_ms
        self._value = value
        oldest = self._since // self._width - self._count
        buckets = self._buckets
        while buckets and buckets[0][0] < oldest:
            buckets.popleft()
        if value is None:
            return None
        if self._what == "avg":
            took = sum(bucket[4] for bucket in buckets)
            return sum(bucket[3] for bucket in buckets) / took if took else value
        if self._what == "min":
            return min(value, min((bucket[1] for bucket in buckets), default=value))
        return max(value, max((bucket[2] for bucket in buckets), default=value))

    def set_back(self, to_ms: int) -> None:
        if self._since <= to_ms:
            return
        by = self._since // self._width - to_ms // self._width
        for bucket in self._buckets:
            bucket[0] -= by
        self._since, self._value = to_ms, None

    def _hold(self, value: float, since: int, until: int) -> None:
        width, buckets = self._width, self._buckets
        since = max(since, (until // width - self._count) * width)
        while since < until:
            number = since // width
            end = min(until, (number + 1) * width)
            took = end - since
            if buckets and buckets[-1][0] == number:
                bucket = buckets[-1]
                bucket[1], bucket[2] = min(bucket[1], value), max(bucket[2], value)
                bucket[3] += value * took
                bucket[4] += took
            else:
                buckets.append([number, value, value, value * took, took])
            since = end

    def dump(self) -> list[Any]:
        return [self._value, self._since, self._width, [list(bucket) for bucket in self._buckets]]

    def load(self, saved: list[Any]) -> None:
        value, since, width, buckets = saved
        if width != self._width:
            raise ValueError("a window of another length")
        self._value, self._since = value, int(since)
        self._buckets = deque([int(n), low, high, area, took] for n, low, high, area, took in buckets)
