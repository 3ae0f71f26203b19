"""Brings a database to the newest schema. Blocking: `open_sql` calls it in a thread.

Any number of processes and threads may migrate the same database at once: one does the work, the others wait.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tradewind.errors import Conflict, Unavailable
from tradewind.private_files import make_file, tighten_database

LOCK_WAIT_S = 120
#: Any fixed number; it only has to differ from the advisory locks of other programs in the same PostgreSQL database.
_PG_LOCK = 0x7472_6164_6577_6E64
# `alembic.context` and `alembic.op` are global to the process, so two upgrades may never overlap in it.
_alembic = threading.Lock()


def alembic_config() -> Config:
    """For Alembic's own commands: `alembic.command.revision(alembic_config(), "message", rev_id="0002")`."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.set_main_option("file_template", "r%%(rev)s_%%(slug)s")
    return config


def migrate_sqlite(path: Path) -> None:
    """Create or upgrade the file, and switch it to WAL."""
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(path, timeout=LOCK_WAIT_S, isolation_level=None),
        poolclass=NullPool,
    )
    # BEGIN IMMEDIATE alone is not enough: several processes switching a new file to WAL fail with "locked" at once.
    with _alembic, _file_lock(path.with_name(f"{path.name}.lock")):
        make_file(path)  # it holds secrets of definitions; what SQLite makes beside it gets the same rights
        tighten_database(path)
        with closing(sqlite3.connect(path, timeout=LOCK_WAIT_S)) as raw:
            raw.execute("PRAGMA journal_mode=WAL")
        with engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            _upgrade(connection, str(path))


def migrate_postgres(connect: Callable[[], Awaitable[Any]], where: str) -> None:
    """Create or upgrade the tables; `connect` makes an asyncpg connection."""

    async def run() -> None:
        engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
        async with engine.begin() as connection:
            await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'"))
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_PG_LOCK})"))
            await connection.run_sync(_upgrade, where)

    with _alembic:
        asyncio.run(run())


def _upgrade(connection: Connection, where: str) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    current = set(MigrationContext.configure(connection).get_current_heads())
    unknown = current - {script.revision for script in scripts.walk_revisions()}
    if unknown:
        raise Conflict(
            f"{where} has schema {', '.join(sorted(unknown))}, which this version does not know "
            f"(its newest is {', '.join(scripts.get_heads())})",
            code="newer_schema",
            hint="a newer Tradewind has used this database: run that version, or name another database",
        )
    if current != set(scripts.get_heads()):
        command.upgrade(config, "head")


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    # The file stays: removing it would let a third process lock a new one while a second holds the old.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Unavailable(
                        f"another process has been migrating for {LOCK_WAIT_S} s: {path}",
                        code="sql_unavailable",
                        hint="find the process that holds this lock file",
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)
