"""Time behind one small door. UTC only; integers of time are milliseconds and end in `_ms`."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def iso(ms: int) -> str:
    """`2026-11-16T00:00:00.000Z` for milliseconds since the epoch."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_iso(text: str) -> int:
    """Milliseconds since the epoch; a time without a zone is taken as UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


class Clock:
    """Where Redis scripts take `now` from. None lets the server's own clock decide, so that hosts need not agree."""

    def now_arg(self) -> str:
        return ""

    def now_ms(self) -> int:
        return now_ms()


class FakeClock(Clock):
    """A clock that moves only when told to; for tests."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self.ms = start_ms

    def advance(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)

    def now_arg(self) -> str:
        return str(self.ms)

    def now_ms(self) -> int:
        return self.ms
