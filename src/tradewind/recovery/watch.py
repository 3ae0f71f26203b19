"""Watches whether Redis still has the data of this station: by the station id, which SQL knows too.

Runs in every process. One with SQL compares with the id there, also after a restart; any other one with the id that it
has seen first. Whoever notices a loss marks it in Redis, so that all processes and `doctor` know.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
import structlog

from tradewind import clock, ids
from tradewind.clock import iso
from tradewind.errors import Conflict, TradewindError, Unavailable
from tradewind.recovery.standing import Standing, judge
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg, Scripts
from tradewind.tasks.plane import Plane

if TYPE_CHECKING:  # SQL is heavy, and not every role needs it
    from tradewind.recovery.station_table import StationTable

log = structlog.get_logger(__name__)
WATCH_S = 1.0
#: How long a process without SQL waits for one with SQL to report a loss.
OTHERS_MS = 5_000
#: Of the fault that becomes the alarm.
CODE, SOURCE = "store_lost", "station:store"
RESTORE = "`tradewind restore --from sql` brings the last copy back"


class Loss(msgspec.Struct):
    """What stands in `station:loss`. `by`: the process that noticed it."""

    station: str
    since_ms: int
    by: str = ""

    def __str__(self) -> str:
        return (
            f"Redis came back without the data of this station (noticed {iso(self.since_ms)}): definitions, schedules, "
            "open alarms and queued tasks are gone"
        )


class StationWatch:
    """`expected`: the id that Redis must have, `` while none is known. `on_loss` is called before a loss is reported:
    it brings back what the report needs."""

    def __init__(
        self,
        plane: Plane,
        table: StationTable | None,
        name: str = "",
        on_loss: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.expected = ""
        self.loss: Loss | None = None
        self._plane = plane
        self._table = table
        self._name = name
        self._on_loss = on_loss
        self._scripts = Scripts(plane.link, "tradewind.recovery", plane.all_settings.redis.max_retries)

    async def run(self) -> None:
        """For ever. Raises Conflict when this Redis turns out to be another station's."""
        is_away = False
        while True:
            try:
                await self.look()
                is_away = False
            except Unavailable as error:
                if not is_away:
                    log.warning("station_watch_waits", error=error.message)
                is_away = True
            await asyncio.sleep(WATCH_S)

    async def look(self) -> Standing:
        """Compare now, and mark what is wrong. Raises Conflict for another station's Redis, Unavailable."""
        keys = self._plane.keys
        with translated(self._plane.link):
            stored, mark = await self._plane.redis.mget(keys.station_id(), keys.station_loss())
        found = stored.decode(errors="replace") if stored else ""
        if not self.expected and self._table is not None:
            row = await self._table.read()
            self.expected = row.id if row is not None else ""
        standing = judge(found, self.expected)
        if standing is Standing.FOREIGN:
            raise foreign(self._plane, found, self.expected)
        if not found and mark:  # a process that has started since does not know which id there was
            with contextlib.suppress(msgspec.MsgspecError):
                self._set(msgspec.json.decode(mark, type=Loss))
            return Standing.LOST
        if standing is Standing.LOST:
            await self._mark()
        elif self.loss is not None:
            log.warning("station_data_restored", station=found)
            self.loss = None
        if standing is Standing.ADOPT or (standing is Standing.NEW and self._table is not None):
            await self._settle(found)
            return Standing.OK
        return standing

    async def _settle(self, found: str) -> None:
        """A fresh Redis gets an id, a fresh SQL that of Redis. Redis decides when several begin at once: they may have
        different databases."""
        keys, now = self._plane.keys, clock.now_ms()
        if not found:
            with translated(self._plane.link):
                await self._plane.redis.set(keys.station_id(), ids.new_id(), nx=True)
                stored = await self._plane.redis.get(keys.station_id())
            found = stored.decode(errors="replace") if stored else ""
        if found and self._table is not None:
            self.expected = await self._table.add(found, now)
        else:
            self.expected = found

    async def _mark(self) -> None:
        """Say that Redis has lost its data: once in the log of each process, once as a fault. A process without SQL
        leaves the fault to the others for a while: they bring the notification policy back first."""
        loss = self.loss or Loss(self.expected, clock.now_ms(), self._name)
        self._set(loss)
        if self._table is None and clock.now_ms() - loss.since_ms < OTHERS_MS:
            return
        if self._on_loss is not None:
            try:
                await self._on_loss()
            except TradewindError as error:
                log.error("notification_policy_not_restored", error=error.message)
        keys = self._plane.keys
        message = f"Redis came back without the data of this station\n{loss}; {RESTORE}"
        args: list[Arg] = [msgspec.json.encode(loss), CODE, SOURCE, "Critical", message, clock.now_ms()]
        await self._scripts.run("loss_mark", [keys.station_id(), keys.station_loss(), keys.faults()], args)

    def _set(self, loss: Loss) -> None:
        if self.loss is None:
            log.error(
                "station_data_lost", station=loss.station, since=iso(loss.since_ms), error=str(loss), hint=RESTORE
            )
        self.loss = loss


def foreign(plane: Plane, found: str, expected: str) -> Conflict:
    return Conflict(
        f"the Redis at {plane.link} belongs to station {found}, the SQL database to station {expected}: nothing is "
        "done, or the data of two stations would be mixed",
        code="other_station",
        hint="correct redis.url, redis.db or key_prefix, or sql.url and data_dir; see docs/recovery.md",
    )
