"""Whether the database takes writes: a tiny one that changes nothing, and how much room its disk has."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tradewind.errors import Unavailable
from tradewind.sql.faults import sql_errors

BUSY_S = 2.0
#: With less than this on its disk a database counts as full: what was freed in its files may take a tiny write still.
LOW_BYTES = 4_000_000
#: Assigns a transaction id, which is written to the log of the server at the commit; refused by one that only reads.
POSTGRES_WRITE = "SELECT txid_current()"


def probe_sqlite(path: Path) -> None:
    """Blocking. Raises Unavailable."""
    where = f"sqlite:///{path}"
    with sql_errors("write", where):
        db = sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            db.execute(f"PRAGMA user_version = {int(version)}")
            db.execute("COMMIT")
        finally:
            db.close()
    check_room(path, where)


def check_room(path: Path, where: str) -> None:
    """Raises Unavailable when the disk of that file or folder is full, or nearly."""
    free = free_bytes(path)
    if free is not None and free < LOW_BYTES:
        hint = "free some space on the disk; what waits is written by itself then"
        raise Unavailable(f"the disk of {where} is full: {free} bytes are free", code="disk_full", hint=hint)


def free_bytes(path: Path) -> int | None:
    """What this user may still write to the disk of that path; None when that cannot be told."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
