"""The point room of a station: board, channels, models and commands on one plane."""

from __future__ import annotations

from tradewind.models.store import ModelStore
from tradewind.points.board import Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.commands import Commands
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link
from tradewind.settings import Settings


class PointRoom:
    def __init__(self, link: Link, settings: Settings) -> None:
        self.plane = PointPlane(link, settings)
        keys = self.plane.keys
        self.board = Board(self.plane)
        self.channels = ChannelStore(link, keys)
        self.models = ModelStore(link, keys)
        self.commands = Commands(self.plane, self.board, self.channels, self.models.find_control)

    async def close(self) -> None:
        await self.plane.close()

