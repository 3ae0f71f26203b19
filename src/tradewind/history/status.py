"""What the recorder says of itself: figures for `history:status`, faults of the station, how far it is behind."""

from __future__ import annotations

import time

import msgspec
import structlog

from tradewind.errors import TradewindError, Unavailable
from tradewind.history.spool import Spool
from tradewind.points.feed import field_of
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import report

log = structlog.get_logger(__name__)
#: The same trouble is told again after this long at the soonest.
TELL_S = 60.0


class Figures(msgspec.Struct):
    """The fields of `history:status`. Sums go on over restarts (a crash may leave a second of them out) but for those
    of the spool's drops, which are on disk and exact.

    `written`: rows the sink took, rewritten ones included; `spooled`: rows that went through the disk; `refused`: by
    the sink; `not_finite`, `unreadable` (entries), `thinned` (by deadband or interval): left out before it; `missed`:
    entries of the feed that were trimmed unread; `dropped_*`: from the spool, by reason. `torn_bytes`: cut off from its
    end at the start: a write that a crash broke off, whose rows come again, or damage. `spool_*`: what waits there.
    `behind`: entries of the feed not yet stored, at most; `lag_ms`: age of the oldest of them. `sink`: ok, away, slow.
    """

    recorder: str = ""
    since_ms: int = 0
    at_ms: int = 0
    sink: str = "ok"
    sink_error: str = ""
    policy_error: str = ""
    entries: int = 0
    batches: int = 0
    written: int = 0
    spooled: int = 0
    refused: int = 0
    not_finite: int = 0
    unreadable: int = 0
    thinned: int = 0
    missed: int = 0
    dropped: int = 0
    dropped_bytes: int = 0
    dropped_age: int = 0
    dropped_corrupt: int = 0
    torn_bytes: int = 0
    spool_rows: int = 0
    spool_bytes: int = 0
    spool_oldest_ms: int = 0
    behind: int = 0
    lag_ms: int = 0

    def go_on_from(self, stored: dict[str, str]) -> None:
        """Take over the sums that a former process wrote."""
        for name in SUMS:
            text = stored.get(name, "")
            if text.isdigit():
                setattr(self, name, int(text))

    def look_at(self, spool: Spool) -> None:
        dropped = spool.dropped
        self.dropped_bytes, self.dropped_age, self.dropped_corrupt = dropped.bytes, dropped.age, dropped.corrupt
        self.dropped = dropped.bytes + dropped.age + dropped.corrupt
        self.torn_bytes = spool.torn_bytes
        self.spool_rows, self.spool_bytes, self.spool_oldest_ms = spool.rows, spool.size_bytes, spool.oldest_ms

    def fields(self) -> dict[str, str | int]:
        return msgspec.structs.asdict(self)


SUMS = ("entries", "batches", "written", "spooled", "refused", "not_finite", "unreadable", "thinned", "dropped")


class Faults:
    """Faults of the recorder on their way to alarmsrv. Best effort: while Redis is away they wait, or are lost."""

    def __init__(self, plane: PointPlane) -> None:
        self._plane = plane
        self._is_bad: dict[str, bool] = {}
        self._told: dict[str, float] = {}

    async def set(self, source: str, is_bad: bool, code: str, message: str) -> None:
        """A state: told when it changes, and once after the start, since a former process may have left it open."""
        if self._is_bad.get(source) != is_bad and await self._report(source, code, message, is_bad):
            self._is_bad[source] = is_bad

    async def tell(self, source: str, code: str, message: str) -> None:
        """Something that happened and cannot be undone; the alarm stays until somebody resolves it."""
        now = time.monotonic()
        if now - self._told.get(source, -TELL_S) >= TELL_S and await self._report(source, code, message, True):
            self._told[source] = now

    async def _report(self, source: str, code: str, message: str, is_bad: bool) -> bool:
        plane = self._plane
        if is_bad:
            log.error("history", source=source, trouble=message)
        try:
            await report(plane.link, plane.keys, code, source, message, state="raise" if is_bad else "clear")
        except Unavailable:
            return False
        return True


async def feed_lag(plane: PointPlane, consumer: str, now_ms: int) -> tuple[int, int]:
    """Entries of the feed that are not behind a consumer (at most so many), and the age of the oldest one in ms.
    Raises Unavailable."""
    keys = plane.keys
    raw_cursors, raw_channels = await plane.home.ask([("HGETALL", keys.feed_cursors()), ("SMEMBERS", keys.feeds())])
    cursors = {field.decode(): at.decode() for field, at in raw_cursors.items()}
    behind = oldest = 0
    for channel in ["", *(name.decode() for name in raw_channels)]:
        at = cursors.get(field_of(consumer, channel), "0-0")
        client, key = plane.at(channel).redis, keys.feed(channel)
        with translated(plane.link):
            first = await client.xrange(key, min=f"({at}", count=1)
            if first:
                behind += await client.xlen(key)
                ms = int(first[0][0].partition(b"-")[0])
                oldest = min(oldest or ms, ms)
    return behind, max(0, now_ms - oldest) if oldest else 0


def words_of(error: TradewindError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
