"""What the rules' scripts are told of settings: the context of the alarm scripts and how long executions are kept."""

from __future__ import annotations

from tradewind import codec
from tradewind.alarms.context import script_context
from tradewind.redis.keys import Keys
from tradewind.rules.history import DAY_MS
from tradewind.settings import Settings


def rule_context(keys: Keys, settings: Settings) -> bytes:
    """JSON, the first argument of each script."""
    rules = settings.rules
    kept = {"history_keep": rules.history_keep, "history_ms": rules.history_days * DAY_MS}
    return codec.encode({**codec.decode(script_context(keys, settings)), **kept})
