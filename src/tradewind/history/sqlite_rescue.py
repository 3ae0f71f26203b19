"""What is wrong with a file of the embedded sink, and how a lost `main.db` is made anew."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress

import structlog

from tradewind.history.sqlite_columns import Damaged
from tradewind.history.sqlite_files import MAIN, Files, Partition, is_damage, meta_of
from tradewind.history.sqlite_tail import load_tail

log = structlog.get_logger(__name__)


def samples_damaged(partition: Partition, what: str) -> None:
    """Some samples of a file are skipped; the others are not touched by that."""
    log.error("history_samples_damaged", file=partition.name, what=what)


def verdict_of(files: Files, name: str) -> str:
    """`ok`, also for a file that is not there, or what is wrong. Raises sqlite3.Error for what may pass."""
    try:
        db = files.connect(name)
        if db is None:
            return "ok"
        with closing(db):
            if name == MAIN:
                load_tail(db)
            return str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except (sqlite3.DatabaseError, Damaged) as error:
        if not is_damage(error):
            raise
        return str(error)


def relearn(files: Files, main: sqlite3.Connection) -> None:
    """Fill a new `main.db` from the other files, which know the names of their series, and which runs they have: new
    ones must not look like these."""
    last_run = 0
    for kind in ("raw", "minute", "hour"):
        for partition in files.partitions(kind):
            with suppress(sqlite3.Error):
                db = files.connect(partition.name)
                if db is not None:
                    with closing(db):
                        names = db.execute("SELECT id, address FROM series").fetchall()
                        last_run = max(last_run, meta_of(db, "move_run") if kind == "raw" else 0)
                    main.executemany("INSERT OR IGNORE INTO series (id, address) VALUES (?, ?)", names)
    if last_run:
        main.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('run', ?)", (last_run,))
