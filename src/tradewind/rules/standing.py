"""How rules stand: active or not, as the one who judges has stored it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated

#: Where the flags are in a stored state, and which of them say that the rule is active, or has had a level
#: (state_store.py).
_FLAGS, _ACTIVE, _SETTLED = 2, 1, 2


async def read_active(plane: PointPlane, rule_ids: Sequence[str]) -> dict[str, bool | None]:
    """By rule id; None: it has had no level yet. Raises Unavailable."""
    if not rule_ids:
        return {}
    with translated(plane.link):
        stored = await plane.redis.hmget(plane.keys.rule_states(), list(rule_ids))
    return {rule_id: _is_active(data) for rule_id, data in zip(rule_ids, stored, strict=True)}


def _is_active(data: bytes | None) -> bool | None:
    try:
        flags = msgspec.msgpack.decode(data)[_FLAGS] if data is not None else 0
        return bool(flags & _ACTIVE) if flags & (_ACTIVE | _SETTLED) else None
    except (msgspec.DecodeError, TypeError, IndexError):
        return None
