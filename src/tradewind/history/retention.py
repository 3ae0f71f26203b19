"""When retention looks, and which time it goes by. A clock that is wrong must not cost the history: what it says is
bounded by the newest sample, and a leap is followed slowly, so that somebody can see to it before much is gone."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from tradewind.clock import iso, now_ms
from tradewind.errors import error_text
from tradewind.history.keeping import DAY_MS
from tradewind.history.sink import Sink, SinkAway
from tradewind.history.small_file import read_small, write_small
from tradewind.history.status import Faults

log = structlog.get_logger(__name__)
FILE = "retention"
RETAIN_S = 60.0
#: How often it looks for a first sample.
LOOK_S = 0.5
#: How many times as fast as time itself a leap is followed: ten days within four hours.
PACE = 60
#: Leaps that are followed at once, and by how much the time must have moved to be stored.
SLACK_MS = 3_600_000
STORE_MS = 600_000


class RetentionClock:
    """The time that retention goes by. No I/O. `at_ms`: where it stood; 0 when that is not known."""

    def __init__(self, at_ms: int = 0) -> None:
        self.at_ms = at_ms
        self.ahead_ms = 0

    def look(self, now_ms: int, newest_ms: int, elapsed_s: float) -> int:
        """`newest_ms`: of the samples that are stored; `elapsed_s` since the last look, by a clock that nobody sets."""
        goal = min(now_ms, newest_ms + DAY_MS)
        step = int(max(elapsed_s, RETAIN_S) * 1000) * PACE
        if self.at_ms and goal > self.at_ms + max(SLACK_MS, step):
            self.at_ms += step
        else:
            self.at_ms = goal
        self.ahead_ms = goal - self.at_ms
        return self.at_ms


class Retention:
    """`newest_ms` tells the time of the newest sample that this process has stored, 0 before the first: without
    samples nothing needs to go. `folder`: where its time is kept over restarts."""

    def __init__(self, sink: Sink, folder: Path, faults: Faults) -> None:
        self._sink = sink
        self._path = folder / FILE
        self._faults = faults
        self._stored_ms = 0

    async def run(self, newest_ms: Callable[[], int]) -> None:
        """Until cancelled. Raises Unavailable."""
        text = await asyncio.to_thread(read_small, self._path)
        self._stored_ms = int(text) if text.isdigit() else 0
        clock, looked = RetentionClock(self._stored_ms), time.monotonic()
        while True:
            pause_s = LOOK_S
            if newest := newest_ms():
                now, elapsed_s = time.monotonic(), time.monotonic() - looked
                at_ms, looked, pause_s = clock.look(now_ms(), newest, elapsed_s), now, RETAIN_S
                await self._tell(clock)
                await asyncio.to_thread(self._store, at_ms)
                with contextlib.suppress(SinkAway):
                    await self._sink.retain(at_ms)
            await asyncio.sleep(pause_s)

    async def _tell(self, clock: RetentionClock) -> None:
        is_far, told = clock.ahead_ms > DAY_MS, "retention goes by the clock"
        if is_far:
            told = f"the clock is {clock.ahead_ms // DAY_MS} days ahead of retention: is it right? Only what is old at "
            told += f"{iso(clock.at_ms)} goes, a little more with each minute"
        await self._faults.set("history:clock", is_far, "history_clock", told)

    def _store(self, at_ms: int) -> None:
        if abs(at_ms - self._stored_ms) < STORE_MS:
            return
        try:
            write_small(self._path, b"%d" % at_ms)
        except OSError as error:
            log.warning("the time of retention cannot be stored", file=str(self._path), error=error_text(error))
        else:
            self._stored_ms = at_ms
