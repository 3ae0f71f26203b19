"""What the Lua of alarms needs to know of the station, as the one JSON argument that every script with alarms takes."""

from __future__ import annotations

from tradewind import codec
from tradewind.redis.keys import Keys
from tradewind.settings import Settings

DAY_MS = 86_400_000


def script_context(keys: Keys, settings: Settings) -> bytes:
    """For `alarm_context(json, now)` of `alarms/alarm.lua`."""
    alarms = settings.alarms
    return codec.encode(
        {
            "prefix": keys.p,
            "channel_prefix": keys.channel_prefix,
            "flood_count": alarms.flood_count,
            "flood_end": alarms.flood_end,
            "flood_window_ms": int(alarms.flood_window_s * 1000),
            "escalate_ms": int(alarms.escalate_s * 1000),
            "retention_ms": alarms.retention_days * DAY_MS,
            "journal_max": alarms.journal_max,
            "outbox_max": settings.notify.outbox_max,
        }
    )
