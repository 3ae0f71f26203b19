"""The tables as the newest migration leaves them; a test compares the two. `docs/sql-schema.md` describes them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import postgresql

metadata = MetaData()

#: Bytewise order in both databases: a PostgreSQL locale would sort ids its own way, and compare them more slowly.
TaskId = String(160).with_variant(postgresql.VARCHAR(160, collation="C"), "postgresql")

tasks = Table(
    "tasks",
    metadata,
    Column("id", TaskId, primary_key=True),
    Column("type", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("priority", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("stalls", Integer, nullable=False),
    Column("worker_id", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("finished_ms", BigInteger, nullable=False),
    Column("request", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("error_type", Text, nullable=False),
    Column("error_message", Text, nullable=False),
    Column("error_traceback", Text, nullable=False),
    Column("progress", Text, nullable=False),
    # Status stands before time in both: there are five, so that a page over several of them is a merge of five short
    # scans, and no third index has to be paid for at every write.
    Index("tasks_by_status", "status", "finished_ms", "id"),
    Index("tasks_by_type", "type", "status", "finished_ms", "id"),
)

task_tags = Table(
    "task_tags",
    metadata,
    Column("task_id", TaskId, primary_key=True),
    Column("tag", Text, primary_key=True),
    Column("finished_ms", BigInteger, nullable=False),
    Index("task_tags_by_tag", "tag", "finished_ms", "task_id"),
    sqlite_with_rowid=False,
)
