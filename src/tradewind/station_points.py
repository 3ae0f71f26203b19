"""The point room of a station: board, channels, models and commands on one plane."""

from __future__ import annotations

import asyncio
import time

from tradewind.ids import short_random
from tradewind.models.engine import ModelEngine
from tradewind.models.store import ModelStore
from tradewind.points.acquisition import Acquisition
from tradewind.points.address import Address
from tradewind.points.board import Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.command_run import CommandRunner
from tradewind.points.commands import Commands
from tradewind.points.feed_trim import trim_feed
from tradewind.points.plane import PointPlane
from tradewind.points.spec import PointSpec
from tradewind.redis.connection import Link
from tradewind.settings import Settings

#: How old the descriptions of points may be that values are shown with.
FRESH_S = 2.0


class PointRoom:
    def __init__(self, link: Link, settings: Settings) -> None:
        self.plane = PointPlane(link, settings)
        keys = self.plane.keys
        self.board = Board(self.plane, self._describe)
        self.channels = ChannelStore(link, keys)
        self.models = ModelStore(link, keys)
        self.commands = Commands(self.plane, self.board, self.channels, self.models.find_control)
        self._known: dict[tuple[str, str, str], PointSpec] = {}
        self._versions: dict[str, str] = {}
        self._looked = 0.0

    async def look(self) -> None:
        """Learn what the channels say of their points (units, ages), if that was long ago. Raises Unavailable."""
        if time.monotonic() - self._looked < FRESH_S:
            return
        versions = await self.channels.versions()
        changed = [channel for channel, version in versions.items() if self._versions.get(channel) != version]
        gone = set(self._versions) - set(versions)
        if changed or gone:
            stale = gone | set(changed)
            kept = {key: spec for key, spec in self._known.items() if key[0] not in stale}
            for channel in await self.channels.get_many(changed):
                if channel is not None:
                    kept |= {(channel.id, point.kind.value, point.id): point for point in channel.points}
            self._known, self._versions = kept, versions
        self._looked = time.monotonic()

    def _describe(self, address: Address) -> PointSpec | None:
        return self._known.get((address.entity, str(address.kind), address.field))

    def acquisition(self) -> Acquisition:
        """What polls the devices and carries commands out: the role comsrv."""
        owner = f"comsrv-{short_random()}"
        commands = CommandRunner(self.commands.store, self.board, owner)
        return Acquisition(self.plane, self.board, self.channels, commands=commands, owner=owner)

    def engine(self) -> ModelEngine:
        """What computes the models: the role modsrv."""
        return ModelEngine(self.plane, self.board, self.models)

    async def look_after(self) -> None:
        """A job of the leader: the feed is trimmed to its slowest reader, commands that are over end."""
        while True:
            await trim_feed(self.plane)
            await self.commands.sweep()
            await asyncio.sleep(1)

    async def close(self) -> None:
        await self.plane.close()
