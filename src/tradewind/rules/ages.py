"""Points that say themselves how old their values may be, for the rules that read them."""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.points.channel_store import ChannelStore


async def point_ages(channels: ChannelStore) -> Mapping[str, int]:
    """Address → ms, of points with a `max_age_s` of their own. Raises Unavailable."""
    return {
        f"comsrv:{channel.id}:{point.kind}:{point.id}": int(point.max_age_s * 1000)
        for channel in await channels.list()
        for point in channel.points
        if point.max_age_s is not None
    }
