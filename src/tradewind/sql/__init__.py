"""The record: SQLite by default, PostgreSQL by URL. Opened and migrated by `open_sql`.

Needs nothing but its database, emits no events. The tables live here; the rooms own the queries on theirs.
"""

from __future__ import annotations

from tradewind.sql.engine import Sql, open_sql, probe_url

__all__ = ["Sql", "open_sql", "probe_url"]
