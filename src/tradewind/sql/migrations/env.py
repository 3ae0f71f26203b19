"""What Alembic runs: the migrations, on the connection, in the transaction and under the lock of `migrate.py`."""

from __future__ import annotations

from alembic import context

from tradewind.sql.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
