"""The tables as the newest migration leaves them; a test compares the two. `docs/sql-schema.md` describes them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import postgresql

metadata = MetaData()

#: Bytewise order in both databases: a PostgreSQL locale would sort ids its own way, and compare them more slowly.
TaskId = String(160).with_variant(postgresql.VARCHAR(160, collation="C"), "postgresql")

FlowId = String(64).with_variant(postgresql.VARCHAR(64, collation="C"), "postgresql")
#: Nodes and handles; four of them in one key still fit into an index page of PostgreSQL.
Name = String(128).with_variant(postgresql.VARCHAR(128, collation="C"), "postgresql")
AlarmId = String(64).with_variant(postgresql.VARCHAR(64, collation="C"), "postgresql")
Word = String(64).with_variant(postgresql.VARCHAR(64, collation="C"), "postgresql")
EntryId = String(64).with_variant(postgresql.VARCHAR(64, collation="C"), "postgresql")

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

flow_logs = Table(
    "flow_logs",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("flow_id", FlowId, nullable=False),
    Column("entry_id", EntryId, nullable=False),
    Column("cycle", BigInteger, nullable=False),
    Column("node_id", Text),
    Column("log_level", Text, nullable=False),
    Column("log_source", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("log_metadata", Text),
    Column("created_ms", BigInteger, nullable=False),
    # With the flow before it: two stations may share a database, and their streams may count alike.
    Index("flow_logs_by_entry", "flow_id", "entry_id", unique=True),
    Index("flow_logs_by_flow", "flow_id", "seq"),
    Index("flow_logs_by_cycle", "flow_id", "cycle", "seq"),
    sqlite_autoincrement=True,  # else numbers of deleted rows come again, and a reader's cursor would skip them
)

flow_signals = Table(
    "flow_signals",
    metadata,
    Column("flow_id", FlowId, primary_key=True),
    Column("cycle", BigInteger, primary_key=True, autoincrement=False),
    Column("source_node", Name, primary_key=True),
    Column("source_handle", Name, primary_key=True),
    Column("target_node", Name, primary_key=True),
    Column("target_handle", Name, primary_key=True),
    Column("signal_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

flow_cycles = Table(
    "flow_cycles",
    metadata,
    Column("flow_id", FlowId, primary_key=True),
    Column("cycle", BigInteger, primary_key=True, autoincrement=False),
    Column("status", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("slot_ms", BigInteger, nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger, nullable=False),
    Column("total", Integer, nullable=False),
    Column("completed", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("skipped", Integer, nullable=False),
    Column("terminated", Integer, nullable=False),
    Column("stopped_by", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("nodes", Text, nullable=False),
    Index("flow_cycles_by_status", "flow_id", "status", "cycle"),
)

alarm_journal = Table(
    "alarm_journal",
    metadata,
    Column("alarm_id", AlarmId, primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("event", Text, nullable=False),
    Column("from_status", Text, nullable=False),
    Column("to_status", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("rule_id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("raised", BigInteger, nullable=False),
    Column("actual_value", Text, nullable=False),
    Column("title", Text, nullable=False),
    Index("alarm_journal_by_time", "at_ms", "alarm_id", "version"),
)

alarms_closed = Table(
    "alarms_closed",
    metadata,
    Column("id", AlarmId, primary_key=True),
    Column("level", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("rule_id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger, nullable=False),
    Column("removed_ms", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
    Index("alarms_closed_by_time", "created_ms", "id"),
    Index("alarms_closed_by_removal", "removed_ms"),
)

stations = Table(
    "stations",
    metadata,
    Column("key_prefix", Word, primary_key=True),
    Column("id", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("copied_ms", BigInteger, nullable=False),
)

definition_copies = Table(
    "definition_copies",
    metadata,
    Column("station_id", Word, primary_key=True),
    Column("kind", Word, primary_key=True),
    Column("id", TaskId, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("copied_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)
