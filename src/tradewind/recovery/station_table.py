"""The station's own row in SQL: its id, and when definitions were last copied. Every method raises Unavailable."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.dialects import postgresql, sqlite

from tradewind.sql import Sql
from tradewind.sql.tables import stations


class StationRow(NamedTuple):
    """`copied_ms`: when a copy was last complete; 0: never, in this database."""

    id: str
    created_ms: int
    copied_ms: int


class StationTable:
    """Stations that share a database are told apart by their key prefixes."""

    def __init__(self, sql: Sql, key_prefix: str) -> None:
        self._sql = sql
        self._prefix = key_prefix

    async def read(self) -> StationRow | None:
        query = select(stations.c.id, stations.c.created_ms, stations.c.copied_ms)
        async with self._sql.read("read the id of the station") as connection:
            row = (await connection.execute(query.where(stations.c.key_prefix == self._prefix))).one_or_none()
        return StationRow(*row) if row is not None else None

    async def add(self, station_id: str, now_ms: int) -> str:
        """Note the id unless there is one; the one that stands there now."""
        row = {"key_prefix": self._prefix, "id": station_id, "created_ms": now_ms, "copied_ms": 0}
        insert = postgresql.insert if self._sql.dialect == "postgresql" else sqlite.insert
        async with self._sql.write("note the id of the station") as connection:
            await connection.execute(insert(stations).values(row).on_conflict_do_nothing())
        found = await self.read()
        return found.id if found is not None else station_id

    async def set_copied(self, station_id: str, now_ms: int) -> None:
        mine = (stations.c.key_prefix == self._prefix) & (stations.c.id == station_id)
        async with self._sql.write("note when definitions were copied") as connection:
            await connection.execute(update(stations).where(mine).values(copied_ms=now_ms))
