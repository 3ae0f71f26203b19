"""The acquisition role in a process of its own, on the loop that it ships with: `modbus_role.py REDIS-URL`.

Each line on its standard input is answered by a line of JSON: the figures of its channels, and the milliseconds that
each poll took since the last question. Ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence

import uvloop
from shared import quiet_logs

from tradewind.points.acquisition import Acquisition
from tradewind.points.board import Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers.modbus import ModbusTcp
from tradewind.points.plane import PointPlane
from tradewind.points.spec import Reading
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings

took_ms: list[float] = []


class Timed(ModbusTcp):
    async def poll(self) -> Sequence[Reading]:
        began = time.perf_counter()
        found = await super().poll()
        took_ms.append(round((time.perf_counter() - began) * 1000, 3))
        return found


async def main(url: str) -> None:
    quiet_logs()
    link = await open_link(RedisSettings(url=url))
    plane = PointPlane(link, Settings())
    drivers = DriverRegistry()
    drivers.add(Timed)
    role = Acquisition(plane, Board(plane), ChannelStore(link, plane.keys), drivers=drivers)
    stop = asyncio.Event()
    running = asyncio.create_task(role.run(stop))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        print(json.dumps({"channels": role.statistics(), "took": took_ms}), flush=True)
        took_ms.clear()
    stop.set()
    await running
    await link.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
