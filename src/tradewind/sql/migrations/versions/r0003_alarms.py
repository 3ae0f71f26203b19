"""The journal of alarms, and alarms that have left Redis."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "alarm_journal",
        sa.Column("alarm_id", _bytewise(64), primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("from_status", sa.Text, nullable=False),
        sa.Column("to_status", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("rule_id", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("raised", sa.BigInteger, nullable=False),
        sa.Column("actual_value", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
    )
    op.create_index("alarm_journal_by_time", "alarm_journal", ["at_ms", "alarm_id", "version"])
    op.create_table(
        "alarms_closed",
        sa.Column("id", _bytewise(64), primary_key=True),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("rule_id", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_ms", sa.BigInteger, nullable=False),
        sa.Column("removed_ms", sa.BigInteger, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("alarms_closed_by_time", "alarms_closed", ["created_ms", "id"])
    op.create_index("alarms_closed_by_removal", "alarms_closed", ["removed_ms"])


def downgrade() -> None:
    op.drop_table("alarms_closed")
    op.drop_table("alarm_journal")


def _bytewise(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
