"""Resolved alarms that nobody has acknowledged: retention never takes them, so somebody should know how many."""

from __future__ import annotations

from tradewind.alarms.transitions import Status
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.text import text_of

_SCAN = 1000


async def count_unseen(plane: PointPlane) -> int:
    """Looks at every resolved alarm, in small steps. Raises Unavailable."""
    keys, cursor, unseen = plane.keys, 0, set()
    while True:
        with translated(plane.link):
            cursor, some = await plane.redis.sscan(keys.alarm_status(Status.RESOLVED), cursor, count=_SCAN)
        ids = list(map(text_of, some))
        seen = await plane.home.ask_each([("HEXISTS", keys.alarm(id), "acknowledged_at") for id in ids]) if ids else []
        unseen |= {id for id, is_seen in zip(ids, seen, strict=True) if not is_seen}
        if not cursor:
            return len(unseen)
