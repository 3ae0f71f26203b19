"""A process that computes the models until it is killed: `python -m tests.models.engine_process URL PREFIX`."""

from __future__ import annotations

import asyncio
import sys

from tests.models.model_room import ModelRoom
from tradewind.clock import Clock
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings


async def main(url: str, prefix: str) -> None:
    link = await open_link(RedisSettings(url=url))
    room = ModelRoom(link, prefix, Clock())
    async with room.engine():
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
