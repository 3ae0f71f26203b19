"""A process that writes batches until it is killed: every point of a batch has the number of the batch as its value."""

from __future__ import annotations

import asyncio
import sys

from tradewind.points.board import Batch, Board
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings


async def main(url: str, points: int) -> None:
    link = await open_link(RedisSettings(url=url))
    board = Board(PointPlane(link, Settings()))
    number = 0
    while True:
        number += 1
        values = {str(point): float(number) for point in range(points)}
        switched = {str(point): number % 2 for point in range(points)}
        await board.write([Batch.of_channel("1", "m", values), Batch.of_channel("1", "s", switched)])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
