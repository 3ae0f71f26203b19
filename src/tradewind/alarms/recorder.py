"""The journal on its way to SQL: read the stream, write, and only then move the cursor and let Redis forget.

At least once: a crash between the commit and the cursor writes the same rows again, which changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import structlog

from tradewind.alarms.context import DAY_MS
from tradewind.alarms.journal import AlarmJournal, ClosedRow
from tradewind.alarms.journal_entry import READERS, SQL_CURSOR, JournalEntry
from tradewind.errors import Invalid, TradewindError
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.text import stream_id_of

log = structlog.get_logger(__name__)
BATCH = 1000
WAIT_S = 2.0
#: A batch is let grow for so long: alarms go before their record.
GATHER_S = 0.2
MAX_BACKOFF_S = 5.0
PURGE_S = 3600.0

Row = tuple[JournalEntry, ClosedRow | None]


class AlarmRecorder:
    """One per station, in the leader. A second one does no harm but its work twice."""

    def __init__(self, plane: PointPlane, journal: AlarmJournal) -> None:
        self.plane = plane
        self.journal = journal
        self._failures = 0
        self._purged = 0.0

    async def run(self) -> None:
        """Until cancelled. When Redis or SQL is away it says so once and goes on trying; the stream keeps all."""
        client = self.plane.link.new_client(WAIT_S)
        try:
            while True:
                try:
                    await self._turn(client)
                    if self._failures:
                        log.info("alarms are recorded again", failures=self._failures)
                        self._failures = 0
                except TradewindError as error:
                    if not self._failures:
                        log.warning("alarms cannot be recorded now", error=error.message, hint=error.hint)
                    self._failures += 1
                    await asyncio.sleep(min(MAX_BACKOFF_S, 0.1 * 2 ** min(self._failures, 10)))
        finally:
            await client.aclose()

    async def step(self) -> int:
        """Move one batch; how many entries there were. Raises Unavailable."""
        keys, redis = self.plane.keys, self.plane.redis
        with translated(self.plane.link):
            cursor = await redis.hget(keys.cursors(), SQL_CURSOR)
            after = f"({at}" if (at := stream_id_of(cursor)) else "-"
            entries = await redis.xrange(keys.alarm_journal(), min=after, count=BATCH)
        if not entries:
            return 0
        await self._write([row for row in (_row(*entry) for entry in entries) if row is not None])
        await self._advance(entries[-1][0].decode())
        return len(entries)

    async def _turn(self, client: Any) -> None:
        if await self.step() == BATCH:
            return
        await self._purge()
        keys = self.plane.keys
        with translated(self.plane.link):
            cursor = await self.plane.redis.hget(keys.cursors(), SQL_CURSOR)
            await client.xread({keys.alarm_journal(): stream_id_of(cursor) or "0-0"}, count=1, block=int(WAIT_S * 1000))
        await asyncio.sleep(GATHER_S)

    async def _write(self, rows: Sequence[Row]) -> None:
        """A row that can never be stored is logged and left out, its neighbours are not."""
        if not rows:
            return
        try:
            await self.journal.write([row[0] for row in rows], [row[1] for row in rows if row[1] is not None])
        except Invalid as error:
            if len(rows) == 1:
                entry = rows[0][0]
                log.error("cannot be recorded", alarm=entry.alarm_id, version=entry.version, error=error.message)
                return
            middle = len(rows) // 2
            await self._write(rows[:middle])
            await self._write(rows[middle:])

    async def _advance(self, last: str) -> None:
        """Everything up to `last` is in SQL; what all readers have goes."""
        keys, redis = self.plane.keys, self.plane.redis
        with translated(self.plane.link):
            await redis.hset(keys.cursors(), SQL_CURSOR, last)
            cursors = await redis.hgetall(keys.cursors())
            known = [at for name, at in cursors.items() if name.startswith(READERS.encode()) and stream_id_of(at)]
            oldest = min(map(_numbers, known))
            await redis.xtrim(keys.alarm_journal(), minid=f"{oldest[0]}-{oldest[1] + 1}", approximate=False)

    async def _purge(self) -> None:
        """Once an hour: journals older than `alarms.journal_days` of alarms that have left Redis."""
        if self._purged and time.monotonic() - self._purged < PURGE_S:
            return
        days = self.plane.all_settings.alarms.journal_days
        gone = await self.journal.purge(self.plane.clock.now_ms() - days * DAY_MS)
        if gone:
            log.info("old journals of alarms are removed", alarms=gone)
        self._purged = time.monotonic()


def _row(entry_id: bytes, fields: dict[bytes, bytes]) -> Row | None:
    try:
        return JournalEntry.of_stream(fields), ClosedRow.of_stream(fields) if b"record" in fields else None
    except (KeyError, ValueError, TypeError, Invalid) as error:
        log.error("not an entry of the alarm journal: left out", entry=entry_id.decode(), error=repr(error))
        return None


def _numbers(entry_id: bytes) -> tuple[int, int]:
    ms, _, number = entry_id.decode().partition("-")
    return int(ms), int(number or 0)
