"""When a schedule is on: from each moment of its cron for its duration, in its own time zone. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

from tradewind.rules.spec import Schedule


class Calendar:
    """Keeps the span that it was last asked about, so asking again costs nothing."""

    def __init__(self, spec: Schedule) -> None:
        self._cron = spec.cron
        self._duration_ms = spec.duration_ms
        self._zone = ZoneInfo(spec.timezone)
        self._from_ms = self._until_ms = 0
        self._is_on = False

    def at(self, moment_ms: int) -> tuple[bool, int]:
        """Whether it is on, and until when that is sure to stay so (0: for ever)."""
        if not (self._from_ms <= moment_ms and (moment_ms < self._until_ms or self._until_ms == 0 < self._from_ms)):
            last = self._find(moment_ms + 1, is_back=True)
            self._is_on = last is not None and moment_ms < last + self._duration_ms
            self._from_ms = moment_ms
            if self._is_on and last is not None:
                self._until_ms = last + self._duration_ms
            else:
                self._until_ms = self._find(moment_ms, is_back=False) or 0
        return self._is_on, self._until_ms

    def _find(self, moment_ms: int, *, is_back: bool) -> int | None:
        """The next moment of the cron after, or the last one before; itself left out."""
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC).astimezone(self._zone)
        found = next(CronSim(self._cron, moment, reverse=is_back), None)
        return None if found is None else round(found.timestamp() * 1000)
