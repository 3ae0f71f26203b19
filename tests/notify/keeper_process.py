"""A process that keeps the notifications until it is killed: `python -m tests.notify.keeper_process URL PREFIX`."""

from __future__ import annotations

import asyncio
import sys

from tests.notify.notify_room import NotifyRoom
from tradewind.clock import Clock
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings


async def main(url: str, prefix: str) -> None:
    link = await open_link(RedisSettings(url=url))
    room = NotifyRoom(link, prefix, Clock())
    async with room.keeper():
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
