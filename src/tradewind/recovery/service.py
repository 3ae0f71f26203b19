"""What a station's process does for recovery, and what health, the API and the CLI may ask of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tradewind.errors import Conflict
from tradewind.recovery.standing import Standing
from tradewind.recovery.watch import RESTORE, StationWatch
from tradewind.tasks.plane import Plane

if TYPE_CHECKING:  # heavy, and not every role needs it
    from tradewind.recovery.station_table import StationTable
    from tradewind.sql import Sql


class Recovery:
    """Without `sql` a loss is noticed by what this process has seen, and nothing is copied or restored."""

    def __init__(self, plane: Plane, sql: Sql | None, name: str = "") -> None:
        self._plane = plane
        self._table = _table(sql, plane.all_settings.key_prefix) if sql is not None else None
        self.watch = StationWatch(plane, self._table, name)

    async def check_in(self) -> None:
        """Before the roles begin. Raises Conflict when this Redis is another station's, Unavailable."""
        await self.watch.look()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises Conflict when Redis turns out to be another station's."""
        watching = asyncio.create_task(self.watch.run(), name="station watch")
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([watching, stopped], return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            watching.cancel()
            stopped.cancel()
            await asyncio.gather(watching, stopped, return_exceptions=True)

    async def look(self) -> dict[str, tuple[bool | None, str]]:
        """For health: whether Redis has the data of this station (None: nobody can know). Raises Unavailable."""
        try:
            standing = await self.watch.look()
        except Conflict as error:
            return {"store": (False, error.message)}
        if standing is Standing.LOST:
            return {"store": (False, f"{self.watch.loss}; {RESTORE}")}
        if self._table is None:
            return {"store": (None, "no SQL in this process: a loss of Redis before its start is not noticed")}
        return {"store": (True, f"station {self.watch.expected}")}


def _table(sql: Sql, key_prefix: str) -> StationTable:
    from tradewind.recovery.station_table import StationTable

    return StationTable(sql, key_prefix)
