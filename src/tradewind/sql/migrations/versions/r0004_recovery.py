"""Which station a database belongs to, and copies of what stands in Redis alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "stations",
        sa.Column("key_prefix", _bytewise(64), primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("copied_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "definition_copies",
        sa.Column("station_id", _bytewise(64), primary_key=True),
        sa.Column("kind", _bytewise(64), primary_key=True),
        sa.Column("id", _bytewise(160), primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("copied_ms", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("definition_copies")
    op.drop_table("stations")


def _bytewise(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
