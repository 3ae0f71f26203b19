"""What the Lua of alarms needs to know of the station, as the one JSON argument that every script with alarms takes."""

from __future__ import annotations

from tradewind import codec
from tradewind.redis.keys import Keys
from tradewind.settings import AlarmSettings

DAY_MS = 86_400_000


def script_context(keys: Keys, settings: AlarmSettings) -> bytes:
    """For `alarm_context(json, now)` of `alarms/alarm.lua`."""
    return codec.encode(
        {
            "prefix": keys.p,
            "channel_prefix": keys.channel_prefix,
            "flood_count": settings.flood_count,
            "flood_end": settings.flood_end,
            "flood_window_ms": int(settings.flood_window_s * 1000),
            "escalate_ms": int(settings.escalate_s * 1000),
            "retention_ms": settings.retention_days * DAY_MS,
        }
    )
