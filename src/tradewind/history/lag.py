"""How far the recorder is behind the change feed: entries that are not stored yet, and the age of the oldest one.

A stream tells how many entries it ever had and how many it has, not how many lie behind a cursor. That is known when
the cursor is at the end or the feed is trimmed to it, and from then on by counting what is stored.
"""

from __future__ import annotations

from typing import NamedTuple

import redis

from tradewind.points.feed import BEFORE_ALL, field_of, id_of
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated


class _Stream(NamedTuple):
    """`behind`: entries behind the cursor, at most; `is_exact`: just so many. `oldest_ms`: of the first, 0: none is."""

    added: int = 0
    behind: int = 0
    is_exact: bool = True
    oldest_ms: int = 0


class FeedLag:
    """`stored` is to be counted up, by the entries of a batch, when its cursor is committed; in between `is_moving` is
    to be set."""

    def __init__(self, plane: PointPlane, consumer: str) -> None:
        self.stored = 0
        self.is_moving = False
        self._plane = plane
        self._consumer = consumer
        self._done: int | None = None  # of all entries ever added those that were done with when `stored` was 0

    async def look(self, now_ms: int) -> tuple[int, int]:
        """Entries that are not stored (until the end was reached once: at most), and the age of the oldest in ms.
        Raises Unavailable."""
        plane, keys, stored = self._plane, self._plane.keys, self.stored
        raw_cursors, channels = await plane.home.ask([("HGETALL", keys.feed_cursors()), ("SMEMBERS", keys.feeds())])
        cursors = {field.decode(): at.decode() for field, at in raw_cursors.items()}
        streams = []
        for channel in ["", *(name.decode() for name in channels)]:
            streams.append(await self._stream(channel, cursors.get(field_of(self._consumer, channel), BEFORE_ALL)))
        added, behind = sum(each.added for each in streams), sum(each.behind for each in streams)
        if all(each.is_exact for each in streams):
            is_settled = stored == self.stored and not self.is_moving
            self._done = added - behind - stored if is_settled else self._done
        elif self._done is not None:
            behind = max(0, min(behind, added - self._done - self.stored))
        oldest = min((each.oldest_ms for each in streams if each.oldest_ms), default=0)
        return behind, max(0, now_ms - oldest) if oldest else 0

    async def _stream(self, channel: str, at: str) -> _Stream:
        client, key = self._plane.at(channel).redis, self._plane.keys.feed(channel)
        with translated(self._plane.link):
            try:
                info = await client.xinfo_stream(key)
            except redis.ResponseError as error:
                if "no such key" in str(error):
                    return _Stream()
                raise
            length, added, first = info["length"], info["entries-added"], info["first-entry"]
            if not length or id_of(info["last-generated-id"].decode()) <= id_of(at):
                return _Stream(added)
            first_id = id_of(first[0].decode())
            if first_id > id_of(at):
                return _Stream(added, length, oldest_ms=first_id[0])
            unread = await client.xrange(key, min=f"({at}", count=1)
            oldest_ms = id_of(unread[0][0].decode())[0] if unread else 0
            return _Stream(added, length - 1, first_id == id_of(at), oldest_ms)
