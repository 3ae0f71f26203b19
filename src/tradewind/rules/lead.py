"""Who judges the rules, and what time it is on the server that stamps the points."""

from __future__ import annotations

import time

from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.tasks.leader import Leadership

#: A clock that is off by more than its own pace and the way of a reply explain was set; small steps do no harm.
STEP_MS = 5_000


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
        self._span = (0.0, 0.0)
        self._step = 0.0

    async def look(self) -> int:
        """Ask the server. Raises Unavailable."""
        asked = time.monotonic()
        now = await self._ask()
        answered = time.monotonic()
        # The answer was given at some moment between: so far the server's clock is from ours, at least and at most.
        span = now - answered * 1000, now - asked * 1000
        if self._at and (span[0] > self._span[1] + STEP_MS or span[1] < self._span[0] - STEP_MS):
            self._step += (sum(span) - sum(self._span)) / 2
        self._ms, self._at, self._span = now, answered, span
        return self.now_ms()

    async def _ask(self) -> float:
        with translated(self._plane.link):
            seconds, micros = await self._plane.redis.time()
        return float(int(seconds) * 1000 + int(micros) / 1000)

    def is_passed(self, ms: int) -> bool:
        """A moment of the server that lies so far ahead that its clock must have been set: `look`."""
        return not self._plane.clock.now_arg() and ms > self.now_ms() + STEP_MS

    def take_step(self) -> int:
        """By how many ms the server's clock was set since this was last asked: forward, or back if negative."""
        step, self._step = self._step, 0.0
        return round(step) if not self._plane.clock.now_arg() else 0

    def now_ms(self) -> int:
        """After a first `look`."""
        fixed = self._plane.clock.now_arg()
        return int(fixed) if fixed else int(self._ms + (time.monotonic() - self._at) * 1000)
