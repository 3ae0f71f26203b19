"""Many rows in one statement, in either database. The caller holds the transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncConnection

#: Rows per SQLite statement. sqlite3 lets go of the GIL at every statement and, in a process whose loop is busy, waits
#: up to 5 ms to get it back: many rows a statement, and few sizes so that the statements stay prepared.
_SIZES = (500, 100, 20, 4, 1)


def insert_sqlite(
    connection: sqlite3.Connection,
    table: Table,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    on_conflict: str,
) -> None:
    """`on_conflict` is the clause that follows the words ON CONFLICT."""
    start = 0
    for size in _SIZES:
        while len(rows) - start >= size:
            values = list(chain.from_iterable(rows[start : start + size]))
            connection.execute(_sqlite_statement(table, columns, size, on_conflict), values)
            start += size


async def insert_postgres(
    connection: AsyncConnection,
    table: Table,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    on_conflict: str,
) -> None:
    """One array per column: a batch of any size is one statement and one round trip. No two rows of one key."""
    if rows:
        arrays = tuple(list(values) for values in zip(*rows, strict=True))
        await connection.exec_driver_sql(_postgres_statement(table, columns, on_conflict), arrays)


@cache
def _sqlite_statement(table: Table, columns: tuple[str, ...], rows: int, on_conflict: str) -> str:
    row = f"({', '.join('?' * len(columns))})"
    values = ", ".join([row] * rows)
    return f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES {values} ON CONFLICT {on_conflict}"


@cache
def _postgres_statement(table: Table, columns: tuple[str, ...], on_conflict: str) -> str:
    kinds = {"INTEGER": "int4[]", "BIGINT": "int8[]"}
    arrays = (f"${n}::{kinds.get(str(table.c[name].type), 'text[]')}" for n, name in enumerate(columns, 1))
    names = ", ".join(columns)
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({', '.join(arrays)}) ON CONFLICT {on_conflict}"
