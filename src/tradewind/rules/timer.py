"""How long a level has lasted, without the time in which it was not known. Pure; milliseconds of event time."""

from __future__ import annotations

NEVER = -1


def moved_ms(ms: int, by_ms: int) -> int:
    """NEVER stays that."""
    return max(0, ms + by_ms) if ms >= 0 else ms


class Timer:
    """Runs from `since_ms` on; while paused it stands still, and what was spent so is added to `since_ms` after."""

    __slots__ = ("paused_ms", "since_ms")

    def __init__(self, since_ms: int = NEVER, paused_ms: int = NEVER) -> None:
        self.since_ms = since_ms
        self.paused_ms = paused_ms

    @property
    def is_started(self) -> bool:
        return self.since_ms >= 0

    @property
    def is_running(self) -> bool:
        return self.since_ms >= 0 and self.paused_ms < 0

    def run(self, at_ms: int) -> bool:
        """Start, or go on after a pause; a timer that runs is left alone. True when that changed it."""
        if self.since_ms < 0:
            self.since_ms = at_ms
            return True
        if self.paused_ms >= 0:
            self.since_ms += max(0, at_ms - self.paused_ms)
            self.paused_ms = NEVER
            return True
        return False

    def pause(self, at_ms: int) -> bool:
        if self.since_ms < 0 or self.paused_ms >= 0:
            return False
        self.paused_ms = max(at_ms, self.since_ms)
        return True

    def move(self, by_ms: int) -> None:
        """The clock was set by so much."""
        self.since_ms, self.paused_ms = moved_ms(self.since_ms, by_ms), moved_ms(self.paused_ms, by_ms)

    def stop(self) -> bool:
        if self.since_ms < 0:
            return False
        self.since_ms = self.paused_ms = NEVER
        return True
