"""A workbench for command tests: a channel with points of every sort, and a device that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from tradewind.clock import Clock
from tradewind.points.board import Batch, Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.command_record import Command, CommandRequest
from tradewind.points.command_run import CommandRunner
from tradewind.points.commands import Accepted, Commands, FindControl
from tradewind.points.driver import Driver
from tradewind.points.plane import PointPlane
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Reading
from tradewind.redis.connection import Link
from tradewind.settings import Settings

CHANNEL = ChannelSpec(
    "1001",
    timeout_ms=500,
    points=(
        PointSpec(Kind.MEASUREMENT, "10001"),
        PointSpec(Kind.MEASUREMENT, "10002", scale=0.1, data_type="int16"),
        PointSpec(Kind.SIGNAL, "20001"),
        PointSpec(Kind.CONTROL, "30001"),
        PointSpec(Kind.CONTROL, "30002", control_type="pulse", pulse_ms=50),
        PointSpec(Kind.CONTROL, "30003", interlock="s20001 == 0 and {comsrv:1001:m:10001} < 50"),
        PointSpec(Kind.CONTROL, "30004", select_first=True),
        PointSpec(Kind.CONTROL, "30005", reverse=True),
        PointSpec(Kind.ADJUSTMENT, "40001", min=0, max=100, step=0.5, unit="kW"),
        PointSpec(Kind.ADJUSTMENT, "40002", read_back="m:10001", tolerance=0.2),
        PointSpec(Kind.ADJUSTMENT, "40003", read_back="m10002", scale=0.1, data_type="int16"),
    ),
)


class Device(Driver):
    """Raw values by kind and id; `trouble` is raised by the next write, after it has or has not taken effect."""

    protocol: ClassVar[str] = "bench"

    def __init__(self, channel: ChannelSpec = CHANNEL) -> None:
        super().__init__(channel)
        self.written: list[tuple[str, float]] = []
        self.values: dict[tuple[str, str], float] = {}
        self.follows: dict[str, tuple[str, str]] = {}
        self.trouble: Exception | None = None
        self.began = asyncio.Event()
        self.hangs = asyncio.Event()
        self.hangs.set()
        self.can_read = True

    async def connect(self) -> None: ...

    async def poll(self) -> Sequence[Reading]:
        return [Reading(Kind(kind), name, raw) for (kind, name), raw in self.values.items()]

    async def write(self, point: PointSpec, raw: float) -> None:
        self.written.append((point.id, raw))
        self.began.set()
        await self.hangs.wait()
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        if point.id in self.follows:
            self.values[self.follows[point.id]] = raw

    async def read(self, point: PointSpec) -> Reading | None:
        raw = self.values.get((point.kind, point.id)) if self.can_read else None
        return None if raw is None else Reading(point.kind, point.id, raw)


class PushDevice(Device):
    is_polled: ClassVar[bool] = False


class Workbench:
    def __init__(
        self,
        link: Link,
        prefix: str,
        clock: Clock | None = None,
        find_control: FindControl | None = None,
        **groups: Any,
    ) -> None:
        self.plane = PointPlane(link, Settings(key_prefix=prefix, **groups), clock)
        self.board = Board(self.plane)
        self.channels = ChannelStore(link, self.plane.keys)
        self.commands = Commands(self.plane, self.board, self.channels, find_control)
        self.store = self.commands.store
        self.runner = CommandRunner(self.store, self.board, "me")
        self.device = Device()

    async def online(self, channel: ChannelSpec = CHANNEL) -> None:
        await self.channels.put([channel])
        key = self.plane.keys.channel_status(channel.id)
        await self.plane.at(channel.id).redis.hset(key, "online", "1")

    async def send(self, kind: str, point: str, value: float, **options: object) -> Accepted:
        request = CommandRequest(address=f"comsrv:1001:{kind}:{point}", value=value, **options)  # type: ignore[arg-type]
        return await self.commands.submit(request)

    async def carry_out(self, kind: str, point: str, value: float, **options: object) -> Command:
        """Submit it, carry it out, say how it ended."""
        accepted = await self.send(kind, point, value, **options)
        assert await self.runner.run_next(CHANNEL, self.device)
        return await self.commands.get(accepted.id)

    async def show(self, kind: str, point: str, value: float, ts_ms: int = 0, quality: str = "") -> None:
        batch = Batch(f"comsrv:1001:{kind}", {point: value}, ts_ms, {point: quality} if quality else {})
        await self.board.write([batch])

    async def stored(self, kind: str, point: str) -> str | None:
        raw = await self.plane.at("1001").redis.hget(self.plane.keys.points("1001", kind), point)
        return None if raw is None else raw.decode()
