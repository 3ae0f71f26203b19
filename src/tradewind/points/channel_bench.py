"""What the runners of a process share, and the seam to commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tradewind.clock import Clock
from tradewind.points.board import Board
from tradewind.points.driver import Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.spec import ChannelSpec


class CommandSource(Protocol):
    """Where the commands of channels come from: command_run.CommandRunner."""

    async def run_next(self, channel: ChannelSpec, driver: Driver) -> bool:
        """Take the next command of the channel, carry it out and record how it ended; False when none waits.

        One call at a time per channel, and no other call of the driver runs, except `listen`. Raises DeviceTrouble,
        once all is recorded, when the connection is of no use any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runners of a process share."""

    board: Board
    drivers: DriverRegistry
    clock: Clock
    stale_s: float
    commands: CommandSource | None = None
