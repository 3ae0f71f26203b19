"""How long a key of Redis lives: checked from both sides, because a key that goes too early loses what it holds."""

from __future__ import annotations

from typing import Any

SPENT_S = 60


async def lives(redis: Any, key: str, seconds: float, spent_s: float = SPENT_S) -> None:
    """It was given `seconds` at most `spent_s` ago; a key without expiry, or none at all, fails."""
    left_ms = await redis.pttl(key)
    assert max(0.0, seconds - spent_s) * 1000 < left_ms <= seconds * 1000, f"{key}: {left_ms} ms of {seconds} s"
