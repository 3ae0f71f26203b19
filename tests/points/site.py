"""An acquisition role by hand: board, channel store and engine on one Redis, and ways to wait for things."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tests.process import Server
from tradewind.points.acquisition import Acquisition
from tradewind.points.board import Board, PointValue
from tradewind.points.channel_store import ChannelStore
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.plane import PointPlane
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.redis.connection import Link
from tradewind.settings import Settings


class Site:
    def __init__(self, link: Link, prefix: str, **groups: Any) -> None:
        self.settings = Settings(key_prefix=prefix, **groups)
        self.plane = PointPlane(link, self.settings)
        self.board = Board(self.plane)
        self.store = ChannelStore(link, self.plane.keys)

    @contextlib.asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[Acquisition]:
        options.setdefault("drivers", DriverRegistry())
        engine = Acquisition(self.plane, self.board, self.store, **options)
        stop = asyncio.Event()
        task = asyncio.create_task(engine.run(stop))
        try:
            yield engine
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)

    async def values(self, channel: str, kind: Kind = Kind.MEASUREMENT) -> dict[str, PointValue]:
        found = await self.board.read_channel(channel, [kind])
        return {point.address.rpartition(":")[2]: point for point in found}

    async def qualities(self, channel: str, kind: Kind = Kind.MEASUREMENT) -> set[str]:
        return {point.quality for point in (await self.values(channel, kind)).values()}

    async def status(self, channel: str) -> dict[str, str]:
        stored = await self.plane.at(channel).redis.hgetall(self.plane.keys.channel_status(channel))
        return {name.decode(): value.decode() for name, value in stored.items()}

    async def until(self, is_true: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 15) -> float:
        """How long it took."""
        began = time.monotonic()
        while not await is_true():
            if time.monotonic() - began > timeout_s:
                raise TimeoutError(f"{what} did not happen within {timeout_s} s")
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def online(self, channel: str) -> float:
        """A polled channel is waited for until its second poll: then the values of the first are on the board."""

        async def is_online() -> bool:
            status = await self.status(channel)
            return status.get("online") == "1" and status["polls"] != "1"

        return await self.until(is_online, f"channel {channel} online")


def modbus_channel(
    server: Server, channel: str = "1001", *points: PointSpec, every_ms: int = 250, timeout_ms: int = 1000, **more: Any
) -> ChannelSpec:
    return ChannelSpec(
        channel,
        protocol="modbus_tcp",
        poll_interval_ms=every_ms,
        timeout_ms=timeout_ms,
        parameters={"host": "127.0.0.1", "port": server.port, **more},
        points=points,
    )


def register(number: int, kind: Kind = Kind.MEASUREMENT, **more: Any) -> PointSpec:
    mapping = {"register_address": number, "data_type": "uint16", **more.pop("mapping", {})}
    return PointSpec(kind, str(number), data_type="uint16", mapping=mapping, **more)


def virtual_channel(channel: str = "1", *points: PointSpec, **more: Any) -> ChannelSpec:
    given = {"protocol": "virtual", "poll_interval_ms": 50, "timeout_ms": 500, **more}
    return ChannelSpec(
        channel, points=points or (PointSpec(Kind.MEASUREMENT, "1", mapping={"expression": "t"}),), **given
    )
