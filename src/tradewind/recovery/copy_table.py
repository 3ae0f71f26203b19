"""Copies of what stands in Redis alone, in SQL: by station, kind and id. Every method raises Unavailable."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from tradewind.sql import Sql
from tradewind.sql.tables import alarm_journal, definition_copies, flow_cycles

#: Rows, and ids in a condition, of one statement.
BATCH = 200


class Copy(NamedTuple):
    kind: str
    id: str
    digest: str
    body: str


class CopyTable:
    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def digests(self, station_id: str) -> dict[str, dict[str, str]]:
        """Digest by kind and id."""
        table = definition_copies.c
        query = select(table.kind, table.id, table.digest).where(table.station_id == station_id)
        found: dict[str, dict[str, str]] = {}
        async with self._sql.read("read the copies of definitions") as connection:
            for kind, name, digest in await connection.execute(query):
                found.setdefault(kind, {})[name] = digest
        return found

    async def bodies(self, station_id: str, kind: str, ids: Collection[str]) -> dict[str, str]:
        table = definition_copies.c
        wanted, found = sorted(ids), dict[str, str]()
        async with self._sql.read("read the copies of definitions") as connection:
            for start in range(0, len(wanted), BATCH):
                some = table.id.in_(wanted[start : start + BATCH])
                query = select(table.id, table.body).where(table.station_id == station_id, table.kind == kind, some)
                found |= {name: body for name, body in await connection.execute(query)}
        return found

    async def put(self, station_id: str, copies: Sequence[Copy], now_ms: int) -> None:
        """In one transaction: keep it small."""
        table = definition_copies
        make: Any = postgresql.insert if self._sql.dialect == "postgresql" else sqlite.insert
        insert = make(table)
        insert = insert.on_conflict_do_update(
            index_elements=[table.c.station_id, table.c.kind, table.c.id],
            set_={name: insert.excluded[name] for name in ("digest", "copied_ms", "body")},
        )
        rows = [
            {
                "station_id": station_id,
                "kind": c.kind,
                "id": c.id,
                "digest": c.digest,
                "copied_ms": now_ms,
                "body": c.body,
            }
            for c in copies
        ]
        async with self._sql.write("copy definitions") as connection:
            await connection.execute(insert, rows)

    async def remove(self, station_id: str, kind: str, ids: Collection[str]) -> None:
        table = definition_copies.c
        names = sorted(ids)
        async with self._sql.write("remove copies of definitions") as connection:
            for start in range(0, len(names), BATCH):
                mine = (table.station_id == station_id) & (table.kind == kind)
                some = table.id.in_(names[start : start + BATCH])
                await connection.execute(delete(definition_copies).where(mine, some))

    async def last_cycles(self, flow_ids: Sequence[str]) -> dict[str, int]:
        """The highest number of a cycle that the record has, by flow."""
        table, found = flow_cycles.c, dict[str, int]()
        async with self._sql.read("read the last cycles of flows") as connection:
            for start in range(0, len(flow_ids), BATCH):
                some = table.flow_id.in_(flow_ids[start : start + BATCH])
                query = select(table.flow_id, func.max(table.cycle)).where(some).group_by(table.flow_id)
                found |= {flow: int(cycle) for flow, cycle in await connection.execute(query)}
        return found

    async def last_transitions(self, alarm_ids: Sequence[str]) -> Mapping[str, tuple[int, str]]:
        """The newest version of each alarm in the journal, and the status that it went to."""
        table, found = alarm_journal.c, dict[str, tuple[int, str]]()
        async with self._sql.read("read the journal of alarms") as connection:
            for start in range(0, len(alarm_ids), BATCH):
                some = table.alarm_id.in_(alarm_ids[start : start + BATCH])
                query = select(table.alarm_id, table.version, table.to_status).where(some).order_by(table.version)
                found |= {alarm: (int(version), status) for alarm, version, status in await connection.execute(query)}
        return found
