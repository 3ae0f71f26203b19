"""What a stream of the feed tells of itself: how many entries it ever had, and how many of them are gone, whoever
removed them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import redis

from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import is_wrong_type

_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")


class StreamCount(NamedTuple):
    """Entries ever added, those of them that were removed, and the ids of the first and the last one that are there;
    0-0 when none is."""

    added: int = 0
    gone: int = 0
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (0, 0)

    def read_upto(self, at: tuple[int, int]) -> int | None:
        """How many of all entries lie behind a cursor, its own included; None when that cannot be told."""
        if self.added == self.gone or self.last <= at:
            return self.added
        if self.first >= at:
            return self.gone + (self.first == at)
        return None

    def lost(self, at: tuple[int, int], read: int) -> int:
        """How many entries behind a cursor, that has `read` of them before it, are gone: at least so many. Of a feed
        that was removed and made anew nobody knows; that counts as one."""
        if self.first > at and self.gone < read:
            return self.gone + 1
        return max(0, self.gone - read)


async def count_stream(plane: PointPlane, channel: str = "") -> StreamCount:
    """Of the feed of a channel (in a cluster), or the home feed. Raises Unavailable."""
    with translated(plane.link):
        try:
            info = await plane.at(channel).redis.xinfo_stream(plane.keys.feed(channel))
        except redis.ResponseError as error:
            # In a cluster one of many: while it holds another type nobody can write to it either; its channel says so.
            if "no such key" in str(error) or (channel and is_wrong_type(error)):
                return StreamCount()
            raise
    added, length = info["entries-added"], info["length"]
    if not length:
        return StreamCount(added, added)
    return StreamCount(added, added - length, id_of(info["first-entry"][0]), id_of(info["last-entry"][0]))


async def count_missed(plane: PointPlane, name: str, channel: str, count: int) -> None:
    """Entries of a feed that a consumer will never read. Raises Unavailable."""
    with translated(plane.link):
        pipe = plane.redis.pipeline(transaction=True)
        pipe.hincrby(plane.keys.feed_missed(), name, count)
        if channel:
            pipe.hincrby(plane.keys.feed_missed(), f"{name}@{channel}", count)
        await pipe.execute()


def readable_cursors(stored: Mapping[bytes, bytes]) -> dict[str, str]:
    """The fields of `points:cursors`; those that another program wrote and that are no cursor are left out."""
    found = {field.decode(errors="replace"): at.decode(errors="replace") for field, at in stored.items()}
    return {field: at for field, at in found.items() if "#" in field or _ID.fullmatch(at)}


def id_of(text: str | bytes) -> tuple[int, int]:
    """A stream id that can be compared."""
    ms, _, number = (text.decode() if isinstance(text, bytes) else text).partition("-")
    return int(ms), int(number or 0)


def before(at: tuple[int, int]) -> tuple[int, int]:
    """The id just before."""
    ms, number = at
    return (ms, number - 1) if number else (ms - 1, 2**64 - 1) if ms else at
