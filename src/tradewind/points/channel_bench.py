"""What the runners of a process share, and the seam to commands."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

from tradewind.clock import Clock
from tradewind.points.address import Address
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

    def unsure(self, channel: str) -> Set[Address]:
        """The points of a channel that commands left unknown; always the same set, which changes."""
        ...

    async def settle(self, channel: ChannelSpec, driver: Driver) -> None:
        """Do what is owed to the device and read back what commands left unknown.

        Called as `run_next`. Raises DeviceTrouble, or Unavailable without Redis.
        """
        ...

    async def release_former(self, channel: str, now: ChannelSpec | None, drivers: DriverRegistry) -> bool:
        """Do what is owed to targets that `now` does not describe; True when nothing of that is left."""
        ...

    async def adopt(self, channel: str) -> None:
        """Look through what waits for a channel: what nobody can carry out is refused. Raises Unavailable."""
        ...

    async def sweep(self) -> None:
        """End commands whose time is over. Raises Unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runners of a process share. `is_ours`: whether this process may poll a channel now, by its own clock."""

    board: Board
    drivers: DriverRegistry
    clock: Clock
    stale_s: float
    commands: CommandSource | None = None
    is_ours: Callable[[str], bool] = lambda _: True
