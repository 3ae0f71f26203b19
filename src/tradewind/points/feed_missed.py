"""Reports entries of the change feed that consumers have missed; whoever removed or missed them has counted them."""

from __future__ import annotations

import structlog

from tradewind.points.plane import PointPlane
from tradewind.points.values import whole
from tradewind.redis.connection import translated
from tradewind.redis.faults import report

log = structlog.get_logger(__name__)


async def tell_missed(plane: PointPlane) -> None:
    """A fault of the station for each consumer that has missed more than was told. A crash in between tells it twice,
    and not never. Raises Unavailable."""
    keys = plane.keys
    missed, cursors = await plane.home.ask([("HGETALL", keys.feed_missed()), ("HGETALL", keys.feed_cursors())])
    for field, count in missed.items():
        name = field.decode(errors="replace")
        total, told = whole(count), whole(cursors.get(f"{name}#told".encode()))
        if total <= told or "@" in name:  # with a channel: of one feed of a cluster, counted in the sum
            continue
        text = f"{name} has missed {total - told} entries of the change feed: it reads too slowly, or not at all"
        log.error("feed_entries_missed", consumer=name, entries=total - told, since_ever=total)
        await report(plane.link, keys, "feed_missed", f"points:feed:{name}", text)
        with translated(plane.link):
            await plane.redis.hset(keys.feed_cursors(), f"{name}#told", total)
