"""When to poll: slots at phase + k × interval, without drift. Pure.

Slots that passed while a poll took too long are skipped and counted, never made up for in a burst.
"""

from __future__ import annotations

import math
import zlib


class Slots:
    def __init__(self, interval_s: float, phase_s: float = 0.0) -> None:
        self._interval_s = interval_s
        self._phase_s = phase_s
        self._last: int | None = None
        self.missed = 0

    def next(self, now_s: float) -> float:
        """The time of the next slot. Never the same slot twice, also when a timer fired a little early."""
        number = math.floor((now_s - self._phase_s) / self._interval_s) + 1
        if self._last is not None:
            number = max(number, self._last + 1)
            self.missed += number - self._last - 1
        self._last = number
        return self._phase_s + number * self._interval_s


def phase_of(channel: str, interval_s: float) -> float:
    """Spreads channels of the same interval over it, so that they do not all poll at once."""
    return zlib.crc32(channel.encode()) % 1000 / 1000 * interval_s
