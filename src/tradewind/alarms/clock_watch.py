"""Whether the clock of Redis was set back: noticed and told by alarmsrv, also when it happened while nothing ran."""

from __future__ import annotations

from datetime import timedelta

import structlog

from tradewind.clock import iso
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import report
from tradewind.redis.scripts import Scripts

log = structlog.get_logger(__name__)
#: Less is what clocks do when they are kept in step.
STEP_MS = 5_000
#: Timers, commands and tasks of each kind that are moved at a time, about a tenth of a second of the server.
MOVED = 50_000
CODE, SOURCE = "clock_set_back", "station:clock"


class ClockWatch:
    def __init__(self, plane: PointPlane, scripts: Scripts) -> None:
        self._plane = plane
        self._scripts = scripts

    async def look(self) -> int:
        """By how many ms it was set back since the last look of any process; 0: not. Raises Unavailable."""
        plane, keys = self._plane, self._plane.keys
        names = [keys.station_clock(), keys.alarm_timers(), keys.commands_open(), keys.delayed(), keys.workers()]
        by_ms, at_ms = map(
            int, await self._scripts.run("clock_watch", names, [keys.p, plane.clock.now_arg(), STEP_MS, MOVED])
        )
        if not by_ms:
            return 0
        step = timedelta(seconds=round(by_ms / 1000))
        text = (
            f"the clock of Redis was set back by {step} to {iso(at_ms)}: what is read now replaces what history has of"
            f" that time, and schedules wait for {step}"
        )
        log.error("clock_set_back", by_s=by_ms / 1000, to=iso(at_ms))
        await report(plane.link, keys, CODE, SOURCE, text)
        with translated(plane.link):
            await plane.redis.hset(keys.station_clock(), "told", "1")
        return by_ms
