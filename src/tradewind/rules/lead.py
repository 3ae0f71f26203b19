"""Who judges the rules, and what time it is on the server that stamps the points."""

from __future__ import annotations

import time

from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.tasks.leader import Leadership


class RuleLead(Leadership):
    """The election of the task room under keys of our own."""

    def __init__(self, plane: PointPlane, engine_id: str) -> None:
        super().__init__(plane, engine_id, plane.keys.rules_leader(), plane.keys.rules_epoch())


class ServerClock:
    """The server's time without asking each time: never ahead of it, and behind by the way of one reply.

    Never ahead, because a timer that is judged at this time must not overtake a value that was written before it.
    """

    def __init__(self, plane: PointPlane) -> None:
        self._plane = plane
        self._ms = 0.0
        self._at = 0.0

    async def look(self) -> int:
        """Ask the server. Raises Unavailable."""
        with translated(self._plane.link):
            seconds, micros = await self._plane.redis.time()
        self._ms, self._at = int(seconds) * 1000 + int(micros) / 1000, time.monotonic()
        return self.now_ms()

    def now_ms(self) -> int:
        """After a first `look`."""
        fixed = self._plane.clock.now_arg()
        return int(fixed) if fixed else int(self._ms + (time.monotonic() - self._at) * 1000)
