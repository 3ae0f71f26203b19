"""Tasks: a distributed task scheduler on Redis — queues, a leader that assigns, workers that run, an archive in SQL.

Needs: redis, sql. Emits: `task:events` (created, assigned, started, completed, failed, retrying, cancelled, dead).
"""

from tradewind.tasks.function import task
from tradewind.tasks.running import Abort, Retry, current

__all__ = ["Abort", "Retry", "current", "task"]
