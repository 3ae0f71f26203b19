"""Finished tasks in SQL: batches in, pages out. Not the outbox that feeds it.

Every method raises Unavailable when the database cannot be used now.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import Select, Table, delete, func, select, tuple_, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from tradewind.errors import Invalid
from tradewind.sql import Sql
from tradewind.sql.faults import sql_errors
from tradewind.sql.tables import task_tags, tasks
from tradewind.tasks.archive_row import ArchiveRow, row_from_task, task_from_columns
from tradewind.tasks.record import TERMINAL, Status, Task

T = TypeVar("T")

_ENDED = tuple(sorted(str(status) for status in TERMINAL))
_COLUMNS = len(tasks.columns)
#: Ids per IN list; both databases take far more, but their planners do not like it.
_IDS = 1000
#: Rows per SQLite statement. sqlite3 lets go of the GIL at every statement and, in a process whose loop is busy, waits
#: up to 5 ms to get it back: many rows a statement, and few sizes so that the statements stay prepared.
_SIZES = (500, 100, 20, 4, 1)


class TaskArchive:
    """The tables `tasks` and `task_tags`. Other processes may use them at the same time."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def write(self, finished: Sequence[Task]) -> None:
        """`write_rows` for tasks."""
        await self.write_rows([row_from_task(task) for task in finished])

    async def write_rows(self, rows: Sequence[ArchiveRow]) -> None:
        """All rows, durably, or none. A row replaces the one of its id unless that one finished later, so that a batch
        may be written again, and late.

        Raises Invalid, for the whole batch, when a row can never be stored: not ended, or refused by the database.
        """
        alive = next((row for row in rows if row.status not in TERMINAL), None)
        if alive is not None:
            raise Invalid(
                f"task {alive.id} is {alive.status}: only ended tasks are archived",
                code="bad_row",
                hint="leave this row out",
            )
        if not rows:
            return
        newest = _newest(rows)
        columns = [row[:_COLUMNS] for row in newest]
        tags = [(row.id, tag, row.finished_ms) for row in newest if row.tags for tag in dict.fromkeys(row.tags)]
        doing = f"archive {len(rows)} tasks"
        if self._sql.writer is not None:
            with sql_errors(doing, self._sql.where):
                await self._sql.writer.run(lambda connection: _write_sqlite(connection, columns, tags))
            return
        async with self._sql.write(doing) as connection:
            await connection.exec_driver_sql(
                _postgres_upsert(tasks), tuple(list(c) for c in zip(*columns, strict=True))
            )
            if tags:
                arrays = tuple(list(column) for column in zip(*tags, strict=True))
                await connection.exec_driver_sql(_postgres_upsert(task_tags), arrays)

    async def get(self, task_id: str) -> Task | None:
        return (await self.get_many([task_id])).get(task_id)

    async def get_many(self, ids: Collection[str]) -> dict[str, Task]:
        """By id; the unknown ones are missing."""
        found: dict[str, Task] = {}
        async with self._sql.read("read tasks") as connection:
            for some in _slices(list(ids), _IDS):
                for row in await connection.execute(select(tasks).where(tasks.c.id.in_(some))):
                    found[row.id] = task_from_columns(row)
        return found

    async def page(
        self,
        *,
        statuses: Collection[Status] | None = None,
        type: str | None = None,
        tag: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 100,
    ) -> list[Task]:
        """Newest finished first; `before` is (finished_ms, id) of the last task of the page before.

        Costs an index walk of about `limit` rows; with a tag, of as many as have the tag until `limit` of them match.
        """
        wanted = [status for status in _ENDED if statuses is None or status in statuses]
        if not wanted or limit < 1:
            return []
        keys = _tagged(tag, type, wanted, before, limit) if tag is not None else _merged(type, wanted, before, limit)
        query = (
            select(tasks).join(keys, tasks.c.id == keys.c.id).order_by(tasks.c.finished_ms.desc(), tasks.c.id.desc())
        )
        async with self._sql.read("list tasks") as connection:
            return [task_from_columns(row) for row in await connection.execute(query)]

    async def counts(self) -> dict[str, int]:
        """Tasks by terminal status, zeros too. Reads a whole index: for a page that somebody opens, not for a tick."""
        query = select(tasks.c.status, func.count()).group_by(tasks.c.status)
        async with self._sql.read("count tasks") as connection:
            rows = (await connection.execute(query)).all()
        return {**dict.fromkeys(_ENDED, 0), **{status: count for status, count in rows}}

    async def purge(self, before_ms: int, limit: int = 5000) -> int:
        """Delete up to `limit` tasks that finished before then, with their tags; how many: 0 when none is left."""
        old = (
            select(tasks.c.id)
            .where(tasks.c.status.in_(_ENDED), tasks.c.finished_ms < before_ms)
            .limit(limit)
            .with_for_update(skip_locked=True)  # PostgreSQL: not one that is being replaced by a newer run right now
        )
        async with self._sql.write("purge tasks") as connection:
            return await self._delete(connection, [row.id for row in await connection.execute(old)])

    async def delete(self, ids: Collection[str]) -> int:
        """Delete these tasks with their tags; how many there were."""
        async with self._sql.write("delete tasks") as connection:
            return await self._delete(connection, list(ids))

    async def _delete(self, connection: AsyncConnection, ids: list[str]) -> int:
        count = 0
        for some in _slices(sorted(ids), _IDS):
            count += (await connection.execute(delete(tasks).where(tasks.c.id.in_(some)))).rowcount
            await connection.execute(delete(task_tags).where(task_tags.c.task_id.in_(some)))
        return count


def _newest(rows: Sequence[ArchiveRow]) -> list[ArchiveRow]:
    """One row per id, the last of the newest. In id order: two writers that lock the same rows then never deadlock."""
    newest: dict[str, ArchiveRow] = {}
    for row in rows:
        other = newest.get(row.id)
        if other is None or row.finished_ms >= other.finished_ms:
            newest[row.id] = row
    return [newest[task_id] for task_id in sorted(newest)]


def _merged(type: str | None, statuses: Sequence[str], before: tuple[int, str] | None, limit: int) -> Any:
    """Keys of a page: the newest of each status by index, then the newest of those."""
    parts = []
    for status in statuses:
        part = select(tasks.c.id, tasks.c.finished_ms).where(tasks.c.status == status)
        if type is not None:
            part = part.where(tasks.c.type == type)
        if before is not None:
            part = part.where(tuple_(tasks.c.finished_ms, tasks.c.id) < before)
        part = part.order_by(tasks.c.finished_ms.desc(), tasks.c.id.desc()).limit(limit)
        parts.append(select(part.subquery()))
    merged = union_all(*parts).subquery()
    return select(merged).order_by(merged.c.finished_ms.desc(), merged.c.id.desc()).limit(limit).subquery()


def _tagged(tag: str, type: str | None, statuses: Sequence[str], before: tuple[int, str] | None, limit: int) -> Any:
    # Equal times: the tags of an earlier run of the same task stay behind, and must not be found.
    match = (tasks.c.id == task_tags.c.task_id) & (tasks.c.finished_ms == task_tags.c.finished_ms)
    query: Select[Any] = select(tasks.c.id).select_from(task_tags.join(tasks, match)).where(task_tags.c.tag == tag)
    if len(statuses) < len(_ENDED):
        query = query.where(tasks.c.status.in_(statuses))
    if type is not None:
        query = query.where(tasks.c.type == type)
    if before is not None:
        query = query.where(tuple_(task_tags.c.finished_ms, task_tags.c.task_id) < before)
    return query.order_by(task_tags.c.finished_ms.desc(), task_tags.c.task_id.desc()).limit(limit).subquery()


def _write_sqlite(connection: sqlite3.Connection, columns: list[tuple[Any, ...]], tags: list[tuple[Any, ...]]) -> None:
    for table, rows in ((tasks, columns), (task_tags, tags)):
        start = 0
        for size in _SIZES:
            while len(rows) - start >= size:
                values = list(chain.from_iterable(rows[start : start + size]))
                connection.execute(_sqlite_upsert(table, size), values)
                start += size


@cache
def _sqlite_upsert(table: Table, rows: int) -> str:
    row = f"({', '.join('?' * len(table.columns))})"
    return f"INSERT INTO {table.name} ({_names(table)}) VALUES {', '.join([row] * rows)} {_on_conflict(table)}"


@cache
def _postgres_upsert(table: Table) -> str:
    """One array per column: a batch of any size is one statement and one round trip."""
    kinds = {"INTEGER": "int4[]", "BIGINT": "int8[]"}
    arrays = (f"${n}::{kinds.get(str(c.type), 'text[]')}" for n, c in enumerate(table.columns, 1))
    return f"INSERT INTO {table.name} ({_names(table)}) SELECT * FROM unnest({', '.join(arrays)}) {_on_conflict(table)}"


def _names(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


def _on_conflict(table: Table) -> str:
    # At equal times the later write wins: the same row again, or a run that ended within the same millisecond.
    keys = ", ".join(column.name for column in table.primary_key)
    rest = ", ".join(f"{c.name} = excluded.{c.name}" for c in table.columns if not c.primary_key)
    return f"ON CONFLICT ({keys}) DO UPDATE SET {rest} WHERE excluded.finished_ms >= {table.name}.finished_ms"


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


__all__ = ["ArchiveRow", "TaskArchive"]
