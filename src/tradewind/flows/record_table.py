"""The tables `flow_logs`, `flow_signals` and `flow_cycles`, as the recorder writes them. Reading: `record_query.py`.

Every method raises Unavailable when the database cannot be used now.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Table, text

from tradewind import codec
from tradewind.flows.record_row import FAILED, RUNNING, CycleRow, LogRow, Record, SignalRow
from tradewind.sql import Sql
from tradewind.sql.bulk import insert_postgres, insert_sqlite
from tradewind.sql.faults import sql_errors
from tradewind.sql.tables import flow_cycles, flow_logs, flow_signals

R = TypeVar("R", SignalRow, CycleRow)

ALL = (flow_logs, flow_signals, flow_cycles)
#: Rows that one transaction deletes at most, so that others get their turn.
DELETE = 5000
#: Running cycles whose logs are spared although newer cycles have ended.
_RUNNING_KEPT = 1000


class Span(NamedTuple):
    """The cycles of a flow between two numbers, both excluded."""

    flow_id: str
    above: int
    below: int


class Standing(NamedTuple):
    """What retention has to know of a flow, newest first: the last cycles, the last failed ones, those that run, and
    the first of the last `records` cycles (None if there are fewer)."""

    newest: list[int]
    failed: list[int]
    running: list[int]
    record_floor: int | None


class FlowRecordTable:
    def __init__(self, sql: Sql) -> None:
        self.sql = sql

    async def write(self, records: Sequence[Record]) -> None:
        """All rows, durably, or none. Writing them again changes nothing: a log line is known by its entry, a signal by
        its edge, and a cycle that has ended does not run again.

        Raises Invalid, for the whole batch, when the database will never take one of the rows.
        """
        work: list[tuple[Table, tuple[str, ...], list[Any], str]] = [
            (flow_cycles, CycleRow._fields, _last_of(c for r in records for c in r.cycles), _CYCLE),
            (flow_logs, LogRow._fields, [row for r in records for row in r.logs], _LOG),
            (flow_signals, SignalRow._fields, _last_of(s for r in records for s in r.signals), _SIGNAL),
        ]

        def write(connection: sqlite3.Connection) -> None:
            for part in work:
                insert_sqlite(connection, *part)

        doing = f"record {len(records)} facts of flows"
        if self.sql.writer is not None:
            with sql_errors(doing, self.sql.where):
                await self.sql.writer.run(write)
            return
        async with self.sql.write(doing) as connection:
            for part in work:
                await insert_postgres(connection, *part)

    async def delete(self, table: Table, spans: Sequence[Span]) -> Counter[str]:
        """Delete the rows of those cycles, in transactions of bounded size; how many of each flow."""
        total: Counter[str] = Counter()
        while spans:
            some = await self._delete_some(table, spans)
            total += some
            if some.total() < DELETE:
                break
        return total

    async def forget(self, flow_ids: Sequence[str]) -> None:
        """Delete every row of these flows."""
        spans = [Span(flow_id, -2, 2**62 + 1) for flow_id in flow_ids]
        for table in ALL:
            await self.delete(table, spans)

    async def standing(self, flow_ids: Sequence[str], *, last: int, failed: int, records: int) -> dict[str, Standing]:
        """How the flows stand; those without a cycle are missing."""
        doing = "look at the cycles of flows"
        limits = (last, failed, failed, _RUNNING_KEPT, records)
        if self.sql.writer is not None:
            flows = codec.encode(list(flow_ids)).decode()
            values = [value for limit in limits for value in (flows, limit)]
            with sql_errors(doing, self.sql.where):
                rows = await self.sql.writer.run(lambda c: c.execute(_STANDING_SQLITE, values).fetchall())
        else:
            async with self.sql.read(doing) as connection:
                found = await connection.exec_driver_sql(_STANDING_POSTGRES, (list(flow_ids), *limits))
                rows = [tuple(row) for row in found]
        return _standings(rows, failed)

    async def orphans(self, before_ms: int) -> list[str]:
        """Flows that have logs or signals, none of them younger than that, and no cycle: what came in after the flow
        was deleted."""
        found: set[str] = set()
        async with self.sql.read("look for records of deleted flows") as connection:
            for table in (flow_logs, flow_signals):
                query = text(_ORPHANS.format(table=table.name))
                found.update((await connection.execute(query, {"before": before_ms})).scalars())
        return sorted(found)

    async def _delete_some(self, table: Table, spans: Sequence[Span]) -> Counter[str]:
        doing = f"delete old rows of {table.name}"
        if self.sql.writer is not None:
            with sql_errors(doing, self.sql.where):
                return await self.sql.writer.run(lambda connection: _delete_sqlite(connection, table, spans))
        flows, above, below = (list(column) for column in zip(*spans, strict=True))
        async with self.sql.write(doing) as connection:
            rows = await connection.exec_driver_sql(_delete_postgres(table), (flows, above, below, DELETE))
            return Counter({row.flow_id: row.rows for row in rows})


def _last_of(rows: Iterable[R]) -> list[R]:
    """One row per key, in the order of the keys: PostgreSQL writes none twice in one statement."""
    last: dict[tuple[Any, ...], R] = {}
    for row in rows:
        key = row.key
        last[key] = row.over(last[key]) if key in last else row
    return [last[key] for key in sorted(last)]


def _standings(rows: Sequence[tuple[Any, ...]], failed: int) -> dict[str, Standing]:
    found: dict[str, tuple[list[int], list[int], list[int], list[int]]] = {}
    for flow_id, kind, cycle in rows:
        found.setdefault(flow_id, ([], [], [], []))[kind].append(cycle)
    for lists in found.values():
        for cycles in lists:
            cycles.sort(reverse=True)
    return {
        flow_id: Standing(newest, bad[:failed], running, floor[0] if floor else None)
        for flow_id, (newest, bad, running, floor) in found.items()
    }


def _delete_sqlite(connection: sqlite3.Connection, table: Table, spans: Sequence[Span]) -> Counter[str]:
    query = f"""SELECT t.rowid, t.flow_id FROM json_each(?) g CROSS JOIN {table.name} t
        WHERE t.flow_id = json_extract(g.value, '$[0]') AND t.cycle > json_extract(g.value, '$[1]')
        AND t.cycle < json_extract(g.value, '$[2]') LIMIT {DELETE}"""
    rows = connection.execute(query, (codec.encode(spans).decode(),)).fetchall()
    if rows:
        ids = codec.encode([row[0] for row in rows]).decode()
        connection.execute(f"DELETE FROM {table.name} WHERE rowid IN (SELECT value FROM json_each(?))", (ids,))
    return Counter(row[1] for row in rows)


@cache
def _delete_postgres(table: Table) -> str:
    return f"""WITH gone AS (
        DELETE FROM {table.name} WHERE ctid = ANY (ARRAY(
            SELECT t.ctid FROM unnest($1::text[], $2::int8[], $3::int8[]) AS g (flow_id, above, below)
            JOIN {table.name} t ON t.flow_id = g.flow_id AND t.cycle > g.above AND t.cycle < g.below LIMIT $4::int8
        )) RETURNING flow_id
    ) SELECT flow_id, count(*) AS rows FROM gone GROUP BY flow_id"""


def _update(row: type[SignalRow] | type[CycleRow], keys: int) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in row._fields[keys:])


_LOG = "(flow_id, entry_id) DO NOTHING"
_SIGNAL = f"""(flow_id, cycle, source_node, source_handle, target_node, target_handle)
    DO UPDATE SET {_update(SignalRow, 6)} WHERE excluded.created_ms >= flow_signals.created_ms"""
_CYCLE = f"""(flow_id, cycle) DO UPDATE SET {_update(CycleRow, 2).removesuffix("excluded.nodes")}
    CASE WHEN excluded.nodes = '' THEN flow_cycles.nodes ELSE excluded.nodes END
    WHERE excluded.status <> '{RUNNING}' OR flow_cycles.status = '{RUNNING}'"""

# The five lists of a Standing: (kind, condition, how many). One statement for all flows, in either database.
_BAD = sorted(FAILED)
_PARTS = (
    (0, "", "LIMIT {}"),
    (1, f"AND n.status = '{_BAD[0]}'", "LIMIT {}"),
    (1, f"AND n.status = '{_BAD[1]}'", "LIMIT {}"),
    (2, f"AND n.status = '{RUNNING}'", "LIMIT {}"),
    (3, "", "LIMIT 1 OFFSET {} - 1"),
)


def _part(where: str, limit: str) -> str:
    return f"SELECT n.cycle FROM flow_cycles n WHERE n.flow_id = f.value {where} ORDER BY n.cycle DESC {limit}"


_STANDING_SQLITE = " UNION ALL ".join(
    f"SELECT f.value, {kind}, c.cycle FROM json_each(?) f CROSS JOIN flow_cycles c "
    f"WHERE c.flow_id = f.value AND c.cycle IN ({_part(where, limit.format('?'))})"
    for kind, where, limit in _PARTS
)
_STANDING_POSTGRES = " UNION ALL ".join(
    f"SELECT f.value, {kind}, c.cycle FROM unnest($1::text[]) AS f (value) "
    f"CROSS JOIN LATERAL ({_part(where, limit.format(f'${n}::int8'))}) c"
    for n, (kind, where, limit) in enumerate(_PARTS, 2)
)
# From flow to flow by index, without a look at their rows.
_ORPHANS = """WITH RECURSIVE f (id) AS (
        SELECT min(flow_id) FROM {table}
        UNION ALL SELECT (SELECT min(t.flow_id) FROM {table} t WHERE t.flow_id > f.id) FROM f WHERE f.id IS NOT NULL
    ) SELECT id FROM f WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM flow_cycles c WHERE c.flow_id = f.id)
    AND NOT EXISTS (SELECT 1 FROM {table} t WHERE t.flow_id = f.id AND t.created_ms >= :before)"""
