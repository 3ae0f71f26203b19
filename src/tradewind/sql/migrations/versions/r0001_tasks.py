"""Finished tasks and their tags."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    task_id = sa.String(160).with_variant(postgresql.VARCHAR(160, collation="C"), "postgresql")
    op.create_table(
        "tasks",
        sa.Column("id", task_id, primary_key=True),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("priority", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("stalls", sa.Integer, nullable=False),
        sa.Column("worker_id", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("finished_ms", sa.BigInteger, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("error_type", sa.Text, nullable=False),
        sa.Column("error_message", sa.Text, nullable=False),
        sa.Column("error_traceback", sa.Text, nullable=False),
        sa.Column("progress", sa.Text, nullable=False),
    )
    op.create_index("tasks_by_status", "tasks", ["status", "finished_ms", "id"])
    op.create_index("tasks_by_type", "tasks", ["type", "status", "finished_ms", "id"])
    op.create_table(
        "task_tags",
        sa.Column("task_id", task_id, primary_key=True),
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Column("finished_ms", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("task_tags_by_tag", "task_tags", ["tag", "finished_ms", "task_id"])


def downgrade() -> None:
    op.drop_table("task_tags")
    op.drop_table("tasks")
