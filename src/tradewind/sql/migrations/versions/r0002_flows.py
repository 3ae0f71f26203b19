"""Logs, signals and cycles of flows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "flow_logs",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("flow_id", _bytewise(64), nullable=False),
        sa.Column("entry_id", _bytewise(64), nullable=False),
        sa.Column("cycle", sa.BigInteger, nullable=False),
        sa.Column("node_id", sa.Text),
        sa.Column("log_level", sa.Text, nullable=False),
        sa.Column("log_source", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("log_metadata", sa.Text),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("flow_logs_by_entry", "flow_logs", ["flow_id", "entry_id"], unique=True)
    op.create_index("flow_logs_by_flow", "flow_logs", ["flow_id", "seq"])
    op.create_index("flow_logs_by_cycle", "flow_logs", ["flow_id", "cycle", "seq"])
    op.create_table(
        "flow_signals",
        sa.Column("flow_id", _bytewise(64), primary_key=True),
        sa.Column("cycle", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("source_node", _bytewise(128), primary_key=True),
        sa.Column("source_handle", _bytewise(128), primary_key=True),
        sa.Column("target_node", _bytewise(128), primary_key=True),
        sa.Column("target_handle", _bytewise(128), primary_key=True),
        sa.Column("signal_id", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "flow_cycles",
        sa.Column("flow_id", _bytewise(64), primary_key=True),
        sa.Column("cycle", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("trigger", sa.Text, nullable=False),
        sa.Column("slot_ms", sa.BigInteger, nullable=False),
        sa.Column("start_ms", sa.BigInteger, nullable=False),
        sa.Column("end_ms", sa.BigInteger, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("completed", sa.Integer, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False),
        sa.Column("skipped", sa.Integer, nullable=False),
        sa.Column("terminated", sa.Integer, nullable=False),
        sa.Column("stopped_by", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("nodes", sa.Text, nullable=False),
    )
    op.create_index("flow_cycles_by_status", "flow_cycles", ["flow_id", "status", "cycle"])


def downgrade() -> None:
    op.drop_table("flow_cycles")
    op.drop_table("flow_signals")
    op.drop_table("flow_logs")


def _bytewise(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
