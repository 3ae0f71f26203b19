"""Migrations: the same schema as the tables say, once, however many open at the same time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from tests.sql.databases import DIALECTS, fresh_database
from tradewind.errors import Conflict
from tradewind.sql import open_sql
from tradewind.sql.tables import metadata

OPENER = """
import asyncio, sys
from tradewind.sql import open_sql
async def main():
    sql = await open_sql(sys.argv[1], None)
    await sql.ping()
    await sql.close()
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
print("opened", flush=True)
"""


@pytest.fixture(params=DIALECTS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with fresh_database(request, request.param, tmp_path) as url:
        yield url


async def test_migrations_end_at_the_declared_tables(url: str) -> None:
    sql = await open_sql(url, None)

    def differences(connection: Connection) -> list[object]:
        assert set(inspect(connection).get_table_names()) == {"alembic_version", *metadata.tables}
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    async with sql.read("test") as connection:
        assert await connection.run_sync(differences) == []
    await sql.close()


async def test_opening_again_keeps_what_is_there(url: str) -> None:
    sql = await open_sql(url, None)
    async with sql.write("test") as connection:
        await connection.execute(text("INSERT INTO task_tags (task_id, tag, finished_ms) VALUES ('a', 'b', 1)"))
    await sql.close()
    sql = await open_sql(url, None)
    async with sql.read("test") as connection:
        assert (await connection.execute(text("SELECT task_id FROM task_tags"))).scalars().all() == ["a"]
    await sql.close()


async def test_four_processes_open_a_new_database_at_once(url: str) -> None:
    argv = [sys.executable, "-c", OPENER, url]
    pipe = subprocess.PIPE
    openers = [subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(4)]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()
    for opener in openers:
        out, err = opener.communicate(timeout=60)
        assert (out, opener.returncode) == ("opened\n", 0), err


async def test_one_process_opens_a_new_database_several_times_at_once(url: str) -> None:
    opened = await asyncio.gather(*(open_sql(url, None) for _ in range(4)))
    for sql in opened:
        await sql.ping()
        await sql.close()


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(url: str) -> None:
    sql = await open_sql(url, None)
    async with sql.write("test") as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Conflict, match="9999") as caught:
        await open_sql(url, None)
    assert caught.value.code == "newer_schema"
    async with sql.read("test") as connection:
        assert (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar() == "9999"
    await sql.close()
