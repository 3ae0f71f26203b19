"""A board on any Redis with a key prefix of its own, and bare looks at what it stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tradewind.clock import Clock, FakeClock
from tradewind.points.board import Board
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link
from tradewind.settings import Settings


class BoardRoom:
    def __init__(self, link: Link, prefix: str, clock: Clock, **points: Any) -> None:
        self.clock = clock
        self.plane = PointPlane(link, Settings(key_prefix=prefix, points=points), clock)
        self.board = Board(self.plane)
        self.keys = self.plane.keys

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    async def hash_of(self, key: str, side: int = 0) -> dict[str, str]:
        """The values (0), times (1) or qualities (2) of `comsrv:1001:m`, as a bare client sees them."""
        channel = key.split(":")[1] if key.startswith("comsrv") else ""
        found = await self.plane.at(channel).redis.hgetall(self.board._names(key)[side])
        return {field.decode(): value.decode() for field, value in found.items()}

    async def feed_of(self, channel: str = "1001") -> list[dict[str, str]]:
        rows = await self.plane.at(channel).redis.xrange(self.keys.feed(channel))
        return [{field.decode(): value.decode() for field, value in fields.items()} for _, fields in rows]


@asynccontextmanager
async def board_room(link: Link, prefix: str, clock: Clock | None = None, **points: Any) -> AsyncIterator[BoardRoom]:
    room = BoardRoom(link, prefix, clock or FakeClock(), **points)
    try:
        yield room
    finally:
        await room.plane.close()
