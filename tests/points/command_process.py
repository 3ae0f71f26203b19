"""A process that carries commands of channel 1001 out on a device that notes each write in a file and then hangs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.points.command_bench import CHANNEL, Device, Workbench
from tradewind.ids import short_random
from tradewind.points.command_run import CommandRunner
from tradewind.points.spec import PointSpec
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings


class Noting(Device):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    async def write(self, point: PointSpec, raw: float) -> None:
        with self.file.open("a") as out:
            out.write(f"{point.id}={raw}\n")
        await asyncio.Event().wait()


async def main(url: str, prefix: str, file: str) -> None:
    link = await open_link(RedisSettings(url=url))
    bench = Workbench(link, prefix)
    runner = CommandRunner(bench.store, bench.board, short_random())
    device = Noting(Path(file))
    while True:
        if not await runner.run_next(CHANNEL, device):
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
