"""What every part of the point room needs to reach Redis: link, key names, scripts, settings, clock.

In a cluster each channel has a slot of its own; `at` finds the way to it. Elsewhere everything is in one place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.clock import Clock
from tradewind.errors import Unavailable
from tradewind.redis.connection import RETRYABLE, Link, translated
from tradewind.redis.faults import WrongType, is_wrong_type
from tradewind.redis.fences import sorted_out
from tradewind.redis.keys import Keys
from tradewind.redis.packing import pack
from tradewind.redis.scripts import Scripts
from tradewind.settings import Settings

PACKAGE = "tradewind.points"


@dataclass(frozen=True, slots=True)
class Place:
    """Where some keys are."""

    link: Link
    scripts: Scripts

    @property
    def redis(self) -> Any:
        """The link's client; Any, because redis-py types every reply as str or bytes or more and ours are bytes."""
        return self.link.client

    async def ask(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Read with several commands at one instant; tried twice. Raises Unavailable."""

        async def once() -> list[Any]:
            pipe = self.redis.pipeline(transaction=True)
            for command in commands:
                pipe.execute_command(*command)
            replies: list[Any] = await pipe.execute()
            return replies

        return await self._twice(once)

    async def ask_each(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """As `ask`, with a WrongType in the place of each reply about a key of another type: it holds up no other."""

        async def once() -> list[Any]:
            pipe = self.redis.pipeline(transaction=True)
            for command in commands:
                pipe.execute_command(*command)
            return sorted_out(commands, await pipe.execute(raise_on_error=False))

        return await self._twice(once)

    async def ask_raw(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """As `ask`, with replies as the server sends them (a hash is a flat list), at half the cost."""

        async def once() -> list[Any]:
            pool = self.redis.connection_pool  # a WaitingPool
            connection = await pool.borrow()
            try:
                packed = [pack(tuple(command)) for command in (("MULTI",), *commands, ("EXEC",))]
                await connection.send_packed_command([b"".join(packed)])
                replies: list[Any] = []
                for _ in packed:
                    replies = await connection.read_response()
            except BaseException:  # also a cancellation: unread replies must not meet the next caller
                await connection.disconnect(nowait=True)
                await pool.release(connection)
                raise
            await pool.give_back(connection)
            for command, reply in zip(commands, replies, strict=True):
                if is_wrong_type(reply):
                    raise WrongType([str(command[1])])
                if isinstance(reply, Exception):
                    raise reply
            return replies

        return await self._twice(once)

    async def _twice(self, once: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        with translated(self.link):
            try:
                return await once()
            except RETRYABLE:
                with contextlib.suppress(Unavailable, *RETRYABLE):
                    await self.link.refresh()
                return await once()


class PointPlane:
    def __init__(self, link: Link, settings: Settings, clock: Clock | None = None) -> None:
        self.link = link
        self.all_settings = settings
        self.settings = settings.points
        self.keys = Keys(settings.key_prefix, cluster=link.cluster)
        self.clock = clock or Clock()
        self.home = Place(link, Scripts(link, PACKAGE, settings.redis.max_retries))
        self._places: dict[str, Place] = {}

    @property
    def redis(self) -> Any:
        return self.home.redis

    @property
    def scripts(self) -> Scripts:
        return self.home.scripts

    def at(self, channel: str) -> Place:
        """Where the keys of a channel are; `` for everything that belongs to no channel."""
        if not channel or not self.link.cluster:
            return self.home
        place = self._places.get(channel)
        if place is None:
            settings = self.all_settings.redis
            link = Link(self.link.target, settings, tag=channel)
            place = self._places[channel] = Place(link, Scripts(link, PACKAGE, settings.max_retries))
        return place

    async def forget(self, channel: str) -> None:
        """Close the connections to the slot of a channel that is gone; they are made again when needed."""
        place = self._places.pop(channel, None)
        if place is not None:
            await place.link.close()

    async def close(self) -> None:
        """Close what this plane opened; the link it was given stays open."""
        for channel in list(self._places):
            await self.forget(channel)
