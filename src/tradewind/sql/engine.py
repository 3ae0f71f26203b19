"""Opening the record: from a URL to a migrated database behind SQLAlchemy's async Core. No queries here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import asyncpg  # type: ignore[import-untyped, unused-ignore]
from sqlalchemy import URL, Connection, event, make_url, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tradewind.errors import Invalid
from tradewind.private_files import make_folder
from tradewind.sql.faults import sql_errors
from tradewind.sql.migrate import LOCK_WAIT_S, migrate_postgres, migrate_sqlite
from tradewind.sql.probe import POSTGRES_WRITE, probe_sqlite
from tradewind.sql.sqlite_writer import WRITE_PRAGMAS, SqliteWriter

BUSY_S = 10.0
CONNECT_S = 10.0
COMMAND_S = 30.0
POOL_SIZE = 5
_HINT = "use sqlite:///relative.db, sqlite:////absolute/path.db or postgresql://user:password@host:5432/database"
_DIALECTS: dict[str, Literal["sqlite", "postgresql"]] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
}


class Sql:
    """An open, migrated database. `writer` and `path` are there for SQLite only; `where` is the URL without secrets."""

    def __init__(
        self,
        engine: AsyncEngine,
        dialect: Literal["sqlite", "postgresql"],
        where: str,
        writer: SqliteWriter | None,
        path: Path | None = None,
    ) -> None:
        self.engine = engine
        self.dialect = dialect
        self.where = where
        self.writer = writer
        self._path = path
        self._writing = engine.execution_options(begin_immediate=True)

    @asynccontextmanager
    async def read(self, doing: str) -> AsyncIterator[AsyncConnection]:
        """A connection for queries; `doing` is for the message: "cannot {doing}". Raises Unavailable."""
        with sql_errors(doing, self.where):
            async with self.engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self, doing: str) -> AsyncIterator[AsyncConnection]:
        """A transaction that commits at the end; on SQLite it holds the write lock from its first moment, because one
        that reads first and writes later fails at once when another process wrote in between.

        Raises Unavailable, or Invalid for data that the database refuses.
        """
        with sql_errors(doing, self.where):
            async with self._writing.begin() as connection:
                yield connection

    async def ping(self) -> None:
        """Raises Unavailable."""
        with sql_errors("reach the database", self.where):
            async with asyncio.timeout(CONNECT_S), self.engine.connect() as connection:
                await connection.execute(text("SELECT 1"))

    async def probe(self) -> None:
        """A tiny write that changes nothing. Raises Unavailable when the database takes none."""
        if self._path is not None:
            await asyncio.to_thread(probe_sqlite, self._path)
            return
        with sql_errors("write", self.where):
            async with asyncio.timeout(CONNECT_S), self.engine.begin() as connection:
                await connection.execute(text(POSTGRES_WRITE))

    async def close(self) -> None:
        if self.writer is not None:
            await self.writer.close()
        await self.engine.dispose()


async def open_sql(url: str, data_dir: Path | None) -> Sql:
    """Open and migrate. An empty URL is `tradewind.db` in `data_dir`, which is created.

    Raises Invalid for a URL that cannot be used, Unavailable when nothing answers there, Conflict when a newer version
    has migrated the database.
    """
    if not url:
        if data_dir is None:
            raise Invalid("neither a SQL URL nor a data folder is given", code="bad_sql_url", hint=_HINT)
        with sql_errors("create the data folder", str(data_dir)):
            await asyncio.to_thread(make_folder, data_dir)
        return await _open_sqlite(data_dir / "tradewind.db")
    parsed, dialect = _parse(url)
    if dialect == "postgresql":
        return await _open_postgres(parsed)
    return await _open_sqlite(_file_of(parsed))


async def probe_url(url: str, data_dir: Path) -> str:
    """A tiny write to a database that is there; its dialect, or nothing when it is not made yet. Raises Invalid,
    Unavailable."""
    parsed, dialect = _parse(url) if url else (None, _DIALECTS["sqlite"])
    if dialect == "sqlite":
        path = _file_of(parsed) if parsed is not None else data_dir / "tradewind.db"
        if not path.exists():
            return ""
        await asyncio.to_thread(probe_sqlite, path)
        return dialect
    with sql_errors("write", "the database"):
        connection = await asyncpg.connect(_dsn(make_url(url)), timeout=CONNECT_S, command_timeout=CONNECT_S)
        try:
            await connection.execute(POSTGRES_WRITE)
        finally:
            await connection.close()
    return dialect


def _parse(url: str) -> tuple[URL, Literal["sqlite", "postgresql"]]:
    # Messages never quote the URL: it may hold a password.
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise Invalid("the SQL URL cannot be read", code="bad_sql_url", hint=_HINT) from error
    dialect = _DIALECTS.get(parsed.drivername.partition("+")[0])
    if dialect is None:
        raise Invalid(f"no such SQL database: {parsed.drivername}", code="bad_sql_url", hint=_HINT)
    if dialect == "sqlite" and (parsed.query or parsed.host):
        raise Invalid("a SQLite URL takes neither host nor options", code="bad_sql_url", hint=_HINT)
    return parsed, dialect


def _file_of(url: URL) -> Path:
    if not url.database or ":memory:" in url.database or url.database.startswith("file:"):
        raise Invalid("the SQLite URL names no file", code="bad_sql_url", hint=_HINT)
    return Path(url.database).absolute()  # connections are opened later too, perhaps after a change of folder


async def _open_sqlite(path: Path) -> Sql:
    where = f"sqlite:///{path}"
    with sql_errors("open the database", where):
        await asyncio.to_thread(migrate_sqlite, path)
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        connect_args={"timeout": BUSY_S, "isolation_level": None},
        pool_size=POOL_SIZE,
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "connect", _on_sqlite_connect)
    event.listen(engine.sync_engine, "begin", _on_sqlite_begin)
    return Sql(engine, "sqlite", where, SqliteWriter(path, busy_s=BUSY_S), path)


def _on_sqlite_connect(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in WRITE_PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _on_sqlite_begin(connection: Connection) -> None:
    # The driver begins nothing by itself: with its own rules DDL and SELECT would stay outside the transaction.
    is_immediate = connection.get_execution_options().get("begin_immediate")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_immediate else "BEGIN")


def _dsn(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


async def _open_postgres(url: URL) -> Sql:
    # asyncpg reads the URL itself: it knows the options of libpq (sslmode, target_session_attrs, several hosts).
    dsn = _dsn(url)
    shown = {name: value for name, value in url.query.items() if name in ("host", "port")}
    where = URL.create("postgresql", url.username, None, url.host, url.port, url.database, shown).render_as_string()

    async def connect() -> Any:
        return await asyncpg.connect(dsn, timeout=CONNECT_S, command_timeout=COMMAND_S)

    async def connect_patiently() -> Any:
        return await asyncpg.connect(dsn, timeout=CONNECT_S, command_timeout=2 * LOCK_WAIT_S)

    with sql_errors("open the database", where):
        await asyncio.to_thread(migrate_postgres, connect_patiently, where)
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        pool_size=POOL_SIZE,
        pool_pre_ping=True,  # so that a restart of the server is not noticed by the callers
        hide_parameters=True,
    )
    return Sql(engine, "postgresql", where, None)
