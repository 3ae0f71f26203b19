"""A process that raises the same alarm again and again: `python -m tests.alarms.raise_process URL PREFIX TIMES`."""

from __future__ import annotations

import asyncio
import sys

from tests.alarms.alarm_room import AlarmRoom, hot
from tradewind.clock import Clock
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings


async def main(url: str, prefix: str, times: str) -> None:
    link = await open_link(RedisSettings(url=url))
    room = AlarmRoom(link, prefix, Clock())
    await asyncio.gather(*(room.store.raise_(hot()) for _ in range(int(times))))
    await link.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
