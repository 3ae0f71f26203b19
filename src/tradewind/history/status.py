"""What the recorder says of itself: figures for `history:status`, and faults of the station."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import structlog

from tradewind.clock import now_ms
from tradewind.errors import TradewindError, Unavailable
from tradewind.history.lag import FeedLag
from tradewind.points.plane import PointPlane
from tradewind.redis.faults import report

if TYPE_CHECKING:
    from tradewind.history.spools import Spools

log = structlog.get_logger(__name__)
#: The same trouble is told again after this long at the soonest.
TELL_S = 60.0
#: A recorder that has said nothing of itself for so long does not record, whoever leads.
SILENT_MS = 30_000


class Figures(msgspec.Struct):
    """The fields of `history:status`. Sums go on over restarts (a crash may leave a second of them out) but for those
    of the spool's drops, which are on disk and exact.

    `written`: rows the sink took, rewritten ones included; `spooled`: rows that went through the disk; `refused`: by
    the sink; `not_finite`, `unreadable` (entries), `thinned` (by deadband or interval): left out before it; `missed`:
    entries of the feed that were removed unread, at least; `dropped_*`: from the spool, by reason. `torn_bytes`: cut
    off from its end at the start: a write that a crash broke off, whose rows come again, or damage. `spool_*`: what
    waits there; `spool_elsewhere_bytes`: in spools that other processes hold, and hang with. `behind`:
    entries of the feed not yet stored (after a start, until its end was reached or it was trimmed to them: at most);
    `lag_ms`: age of the oldest of them. `sink`: ok, away, slow. `spool_error`: why there is no spool, or
    it takes nothing; `disk_error`: that the disk of history is full.
    """

    recorder: str = ""
    since_ms: int = 0
    at_ms: int = 0
    sink: str = "ok"
    sink_error: str = ""
    policy_error: str = ""
    spool_error: str = ""
    disk_error: str = ""
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
    spool_elsewhere_bytes: int = 0
    behind: int = 0
    lag_ms: int = 0

    def go_on_from(self, stored: dict[str, str]) -> None:
        """Take over the sums that a former process wrote."""
        for name in SUMS:
            text = stored.get(name, "")
            if text.isdigit():
                setattr(self, name, int(text))

    def look_at(self, spool: Spools) -> None:
        if not spool.is_open:
            return
        dropped = spool.dropped
        self.dropped_bytes, self.dropped_age, self.dropped_corrupt = dropped.bytes, dropped.age, dropped.corrupt
        self.dropped = dropped.bytes + dropped.age + dropped.corrupt
        self.torn_bytes = spool.torn_bytes
        self.spool_rows, self.spool_bytes = spool.rows, spool.size_bytes
        age_ms = spool.oldest_age_ms
        self.spool_oldest_ms = now_ms() - age_ms if age_ms is not None else 0

    def fields(self) -> dict[str, str | int]:
        return msgspec.structs.asdict(self)


SUMS = (
    "entries", "batches", "written", "spooled", "refused", "not_finite", "unreadable", "thinned", "missed", "dropped",
)  # fmt: skip


class Faults:
    """Faults of the recorder on their way to alarmsrv. While Redis is away the newest of each source waits."""

    def __init__(self, plane: PointPlane) -> None:
        self._plane = plane
        self._is_bad: dict[str, tuple[bool, object]] = {}
        self._told: dict[str, float] = {}
        self._waiting: dict[str, tuple[str, str]] = {}

    async def set(self, source: str, is_bad: bool, code: str, message: str, what: object = None) -> None:
        """A state: told when it changes, and once after the start, since a former process may have left it open.
        `what` it is about: told again when that changes."""
        if self._is_bad.get(source) != (is_bad, what) and await self._report(source, code, message, is_bad):
            self._is_bad[source] = is_bad, what

    async def tell(self, source: str, code: str, message: str) -> None:
        """Something that happened and cannot be undone; the alarm stays until somebody resolves it."""
        self._waiting[source] = code, message
        await self.flush()

    async def flush(self) -> None:
        """Tell what could not be told, or was told too short a time ago. About once a second."""
        now = time.monotonic()
        for source, (code, message) in list(self._waiting.items()):
            is_due = now - self._told.get(source, -TELL_S) >= TELL_S
            if is_due and await self._report(source, code, message, True):
                self._told[source] = now
                del self._waiting[source]

    async def _report(self, source: str, code: str, message: str, is_bad: bool) -> bool:
        plane = self._plane
        if is_bad:
            log.error("history", source=source, trouble=message)
        try:
            await report(plane.link, plane.keys, code, source, message, state="raise" if is_bad else "clear")
        except Unavailable:
            return False
        return True


def is_recording(leader: str, at_ms: str, now_ms: int) -> bool:
    """Whether the one that leads works, too. `at_ms`: when it last wrote its status, as stored there."""
    return bool(leader) and at_ms.isdigit() and now_ms - int(at_ms) < SILENT_MS


async def feed_lag(plane: PointPlane, consumer: str, now_ms: int) -> tuple[int, int]:
    """One look from outside at how far a consumer is behind: entries, at most, and ms. Raises Unavailable."""
    return await FeedLag(plane, consumer).look(now_ms)


def words_of(error: TradewindError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
