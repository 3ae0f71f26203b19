"""A fresh database for a test, in either dialect."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

DIALECTS = ("sqlite", "postgresql")


@asynccontextmanager
async def fresh_database(request: pytest.FixtureRequest, dialect: str, folder: Path) -> AsyncIterator[str]:
    """The URL of an empty database: a file in `folder`, or one in the shared server, dropped at the end."""
    if dialect == "sqlite":
        yield f"sqlite:///{folder}/test.db"
        return
    server = request.getfixturevalue("postgres")
    name = f"t{secrets.token_hex(5)}"
    await run_sql(server.url, f"CREATE DATABASE {name}")
    yield f"{server.url.rpartition('/')[0]}/{name}"
    await run_sql(server.url, f"DROP DATABASE {name} WITH (FORCE)")


async def run_sql(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
