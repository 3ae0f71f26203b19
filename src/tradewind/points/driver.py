"""The seam for protocols: one small class per protocol, found through the entry points `tradewind.drivers`.

A driver knows its device and raw values; scaling, deadbands, the board, reconnecting and commands are not its business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from tradewind.errors import Problem, Unavailable
from tradewind.points.spec import ChannelSpec, PointSpec, Reading

Deliver = Callable[[Sequence[Reading]], None]


class DeviceTrouble(Unavailable):
    """The device does not answer, or not as it should. The channel is connected again after a pause."""

    code = "device_trouble"


class Driver(ABC):
    """One connection of one channel. Calls come one at a time, except `write`, which may come while `listen` runs.

    Life: `connect`, then `poll` again and again (polled protocols) or `listen` once (those that push), `close` at last.
    After an exception of any of them the object is closed and a new one is made. Every call ends within
    `channel.timeout_ms` (listen: within that time of being cancelled).
    """

    protocol: ClassVar[str]
    is_polled: ClassVar[bool] = True
    #: Readings that were lost on the way from the device, and messages that were refused unread. A driver counts them;
    #: they are shown in the channel's status and raise an alarm.
    dropped = 0
    refused = 0

    def __init__(self, channel: ChannelSpec) -> None:
        self.channel = channel

    @classmethod
    def check(cls, channel: ChannelSpec) -> list[Problem]:
        """What is wrong with the channel; paths like `parameters.port`, `points[3].mapping.register`."""
        return []

    @abstractmethod
    async def connect(self) -> None:
        """Raises DeviceTrouble."""

    async def poll(self) -> Sequence[Reading]:
        """Read every m and s point once; points that the device refuses come with quality bad. A point may come several
        times with times of their own: each is an event.

        Raises DeviceTrouble when the connection is of no use any more.
        """
        raise NotImplementedError

    async def listen(self, deliver: Deliver) -> None:
        """Hand over what the device sends until the connection ends. Raises DeviceTrouble then.

        Readings with a time of their own are all written, in the order of their times; of those without one only the
        last of a point, if several come within a moment.
        """
        raise NotImplementedError

    @abstractmethod
    async def write(self, point: PointSpec, raw: float) -> None:
        """Write a raw value to a c or a point. Returns when the device has confirmed it.

        Raises DeviceTrouble when the outcome is unknown, Invalid or Conflict when the device refused it.
        """

    async def read(self, point: PointSpec) -> Reading | None:
        """Read one point now, for a read-back; None: the protocol cannot."""
        return None

    async def close(self) -> None:  # noqa: B027 — a driver without a connection has nothing to let go
        """Let go; never raises."""
