"""Every transition of every alarm, in SQL, and the last state of those that have left Redis.

`recorder.py` brings them there from the stream `alarm:journal`. Every method raises Unavailable when SQL is away.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from sqlalchemy import Row, Select, Table, delete, select

from tradewind import codec
from tradewind.alarms.journal_entry import JournalEntry
from tradewind.alarms.record import Alarm, from_fields
from tradewind.sql import Sql
from tradewind.sql.bulk import insert_postgres, insert_sqlite
from tradewind.sql.faults import sql_errors
from tradewind.sql.tables import alarm_journal, alarms_closed

#: Alarms whose journal one transaction deletes.
_DELETE = 500
_ONCE = "DO NOTHING"


class ClosedRow(NamedTuple):
    """An alarm as it left Redis; `record` is JSON of its hash."""

    id: str
    level: str
    category: str
    rule_id: str
    source: str
    created_ms: int
    ended_ms: int
    removed_ms: int
    record: str

    @classmethod
    def of_stream(cls, fields: Mapping[bytes, bytes]) -> Self:
        raw = fields[b"record"].decode(errors="replace")
        record = codec.decode(raw)
        alarm_id, level, category, rule_id, source = (
            str(record[name]) for name in ("id", "level", "category", "rule_id", "source_point")
        )
        return cls(
            alarm_id,
            level,
            category,
            rule_id,
            source,
            int(record["first_seen"]),
            int(record["ended_ms"]),
            int(fields[b"at"]),
            raw,
        )


class AlarmJournal:
    def __init__(self, sql: Sql) -> None:
        self.sql = sql

    async def write(self, entries: Sequence[JournalEntry], closed: Sequence[ClosedRow] = ()) -> None:
        """All, durably, or none; writing them again changes nothing. Raises Invalid for what SQL will never take."""
        work: list[tuple[Table, tuple[str, ...], list[Any], str]] = [
            (alarm_journal, JournalEntry._fields, list({e[:2]: e for e in entries}.values()), _ONCE),
            (alarms_closed, ClosedRow._fields, list({c.id: c for c in closed}.values()), _ONCE),
        ]

        def write(connection: sqlite3.Connection) -> None:
            for part in work:
                insert_sqlite(connection, *part)

        doing = f"record {len(entries)} transitions of alarms"
        if self.sql.writer is not None:
            with sql_errors(doing, self.sql.where):
                await self.sql.writer.run(write)
            return
        async with self.sql.write(doing) as connection:
            for part in work:
                await insert_postgres(connection, *part)

    async def read(self, alarm_id: str) -> list[JournalEntry]:
        """The transitions of one alarm, oldest first."""
        table = alarm_journal.c
        query = select(alarm_journal).where(table.alarm_id == alarm_id).order_by(table.version)
        return [JournalEntry._make(row) for row in await self.rows(query)]

    async def snapshot(self, alarm_id: str) -> Alarm | None:
        """An alarm that has left Redis, as it was last."""
        rows = await self.rows(select(alarms_closed.c.record).where(alarms_closed.c.id == alarm_id))
        return from_fields(codec.decode(rows[0].record)) if rows else None

    async def purge(self, before_ms: int) -> int:
        """Forget alarms that left Redis before that, with their journal; how many. Others keep theirs, however old."""
        total = 0
        while True:
            table = alarms_closed.c
            query = select(table.id).where(table.removed_ms < before_ms).order_by(table.removed_ms).limit(_DELETE)
            old = [row.id for row in await self.rows(query)]
            if old:
                async with self.sql.write("delete old journals of alarms") as connection:
                    await connection.execute(delete(alarm_journal).where(alarm_journal.c.alarm_id.in_(old)))
                    await connection.execute(delete(alarms_closed).where(table.id.in_(old)))
            total += len(old)
            if len(old) < _DELETE:
                return total

    async def rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        async with self.sql.read("read the journal of alarms") as connection:
            rows: Sequence[Row[Any]] = (await connection.execute(query)).all()
            return rows
