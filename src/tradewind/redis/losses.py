"""Counts of what was lost in Redis: scripts count, whoever should have had it tells, as a fault of the station.

What is lost cannot be undone, so the alarm stays until somebody resolves it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog

from tradewind.redis.faults import report, translated

if TYPE_CHECKING:
    from tradewind.redis.connection import Link
    from tradewind.redis.keys import Keys

log = structlog.get_logger(__name__)
#: The same loss is told again after this long at the soonest.
TELL_S = 60.0


class Losses:
    """Counts in one hash. Beside each, `{field}:told` is what was told of it, by whatever process."""

    def __init__(self, link: Link, keys: Keys, figures: str) -> None:
        self._link = link
        self._keys = keys
        self._figures = figures
        self._told: dict[str, float] = {}

    async def tell(self, field: str, code: str, source: str, what: str) -> int:
        """Report what was lost since it was told last; how much, 0 when there was none or it was told just now. A crash
        in between tells it twice, and not never. Raises Unavailable."""
        now, client = time.monotonic(), self._client
        if now - self._told.get(field, -TELL_S) < TELL_S:
            return 0
        with translated(self._link):
            found = await client.hmget(self._figures, field, f"{field}:told")
        total, told = (int(number or 0) for number in found)
        if total <= told:
            return 0
        message = f"{total - told} {what}; {total} since ever"
        log.error("lost", source=source, trouble=message)
        await report(self._link, self._keys, code, source, message)
        with translated(self._link):
            await client.hset(self._figures, f"{field}:told", total)
        self._told[field] = now
        return total - told

    @property
    def _client(self) -> Any:
        return self._link.client
