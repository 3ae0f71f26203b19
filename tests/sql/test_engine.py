"""Opening, pinging, losing and closing a database."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests import servers
from tests.sql.databases import DIALECTS, fresh_database
from tradewind.errors import Invalid, Unavailable
from tradewind.sql import engine as engine_module
from tradewind.sql import open_sql


@pytest.fixture(params=DIALECTS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with fresh_database(request, request.param, tmp_path) as url:
        yield url


async def test_an_opened_database_answers_and_closes(url: str) -> None:
    sql = await open_sql(url, None)
    await sql.ping()
    assert url.startswith(sql.dialect)
    await sql.close()


async def test_a_write_that_fails_leaves_nothing(url: str) -> None:
    sql = await open_sql(url, None)
    insert = text("INSERT INTO task_tags (task_id, tag, finished_ms) VALUES ('a', 'b', 1)")
    with pytest.raises(Invalid):
        async with sql.write("test") as connection:
            await connection.execute(insert)
            await connection.execute(insert)
    async with sql.read("test") as connection:
        assert (await connection.execute(text("SELECT count(*) FROM task_tags"))).scalar() == 0
    await sql.close()


async def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """It has copies of definitions with their secrets."""
    sql = await open_sql("", tmp_path)
    async with sql.write("test") as connection:
        await connection.execute(text("INSERT INTO task_tags (task_id, tag, finished_ms) VALUES ('a', 'b', 1)"))
    modes = {
        path.name: path.stat().st_mode & 0o077 for path in tmp_path.glob("tradewind.db*") if path.suffix != ".lock"
    }
    assert "tradewind.db-wal" in modes and set(modes.values()) == {0}
    await sql.close()


async def test_an_empty_url_is_a_wal_file_in_the_data_folder(tmp_path: Path) -> None:
    sql = await open_sql("", tmp_path / "new" / "data")
    await sql.ping()
    await sql.close()
    with sqlite3.connect(tmp_path / "new" / "data" / "tradewind.db") as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_every_sqlite_connection_syncs_each_commit(tmp_path: Path) -> None:
    sql = await open_sql("", tmp_path)
    assert sql.writer is not None
    async with sql.read("test") as connection:
        assert (await connection.execute(text("PRAGMA synchronous"))).scalar() == 2
    assert await sql.writer.run(lambda raw: raw.execute("PRAGMA synchronous").fetchone()) == (2,)
    await sql.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg2"])
async def test_postgres_urls_are_taken_with_any_driver_name(postgres: servers.Server, scheme: str) -> None:
    sql = await open_sql(f"{scheme}{postgres.url.removeprefix('postgresql')}?sslmode=prefer", None)
    await sql.ping()
    await sql.close()


@pytest.mark.parametrize(
    "url",
    ["mysql://host/db", "nonsense", "sqlite://", "sqlite:///:memory:", "sqlite:///x.db?mode=ro", "sqlite://host/x.db"],
)
async def test_a_url_that_cannot_be_used_is_invalid(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        await open_sql(url, None)
    assert "sqlite:///" in caught.value.hint


async def test_no_url_and_no_folder_is_invalid() -> None:
    with pytest.raises(Invalid):
        await open_sql("", None)


async def test_a_wrong_postgres_option_is_invalid() -> None:
    with pytest.raises(Invalid):
        await open_sql("postgresql://u:secret@127.0.0.1/db?sslmode=perhaps", None)


async def test_an_unreachable_server_is_unavailable_and_the_password_stays_hidden() -> None:
    url = f"postgresql://me:secret@127.0.0.1:{servers.free_port()}/db?password=secret"
    with pytest.raises(Unavailable) as caught:
        await open_sql(url, None)
    assert "127.0.0.1" in caught.value.message
    assert "secret" not in caught.value.message + caught.value.hint


async def test_an_unknown_postgres_database_says_so(postgres: servers.Server) -> None:
    with pytest.raises(Unavailable, match="nowhere") as caught:
        await open_sql(f"{postgres.url.rpartition('/')[0]}/nowhere", None)
    assert "create" in caught.value.hint


async def test_a_sqlite_folder_that_is_missing_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await open_sql(f"sqlite:///{tmp_path}/missing/x.db", None)


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(Unavailable, match="not a database"):
        await open_sql(f"sqlite:///{tmp_path}/x.db", None)
    assert (tmp_path / "x.db").read_bytes().startswith(b"something")


async def test_a_lock_held_too_long_is_unavailable_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "BUSY_S", 0.1)
    sql = await open_sql("", tmp_path)
    assert sql.writer is not None
    other = sqlite3.connect(tmp_path / "tradewind.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked") as caught:
        async with sql.write("test"):
            pass
    assert "write lock" in caught.value.hint
    with pytest.raises(sqlite3.OperationalError):
        await sql.writer.run(lambda raw: None)
    await sql.ping()
    other.execute("ROLLBACK")
    other.close()
    async with sql.write("test"):
        pass
    await sql.writer.run(lambda raw: None)
    await sql.close()


async def test_a_restart_of_postgres_is_survived() -> None:
    with servers.postgres_server() as server:
        sql = await open_sql(server.url, None)
        await sql.ping()
        server.kill()
        with pytest.raises(Unavailable):
            await sql.ping()
        server.start()
        await sql.ping()
        await sql.close()
