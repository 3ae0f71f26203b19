"""A process that writes or reads, to be killed: `python -m tests.history.sqlite_process write|read FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.history.sink_contract import DAY0, HOUR, SECOND
from tradewind.history.sample import Row
from tradewind.history.sqlite import SqliteSink

NAMES = [f"comsrv:1:m:{n}" for n in range(10)]
BATCH = 200  # rows of each series


def batch_of(number: int) -> list[Row]:
    """Sample n of each series has the value n; four samples a minute, so that days and hours pass by quickly."""
    return [
        Row(name, DAY0 + n * 15 * SECOND, float(n), 0)
        for n in range(number * BATCH, (number + 1) * BATCH)
        for name in NAMES
    ]


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


async def write(folder: Path) -> None:
    """Says after each batch how many are stored; goes on behind what is there."""
    async with SqliteSink(folder, tail_rows=5000) as sink:
        (info,) = await sink.series(NAMES[0], 1, "") or [None]
        number = (info.count if info else 0) // BATCH
        while True:
            await sink.write(batch_of(number))
            number += 1
            say(number)


async def read(folder: Path) -> None:
    """Says the newest count for as long as every answer is whole; ends with an assertion otherwise."""
    async with SqliteSink(folder) as sink:
        seen = 0
        while True:
            name = NAMES[seen % len(NAMES)]
            got = (await sink.read([name], 0, 2 * DAY0, 10**9))[name]
            assert [value for _, value, _ in got] == [float(n) for n in range(len(got))], "a hole"
            assert len(got) >= seen, "something is gone"
            buckets = (await sink.buckets([name], 0, 2 * DAY0, HOUR, ["count", "sum"], 10**9))[name]
            count = sum(int(row[1] or 0) for row in buckets)
            assert count >= len(got), "rollups lag behind"
            assert sum(row[2] or 0 for row in buckets) == count * (count - 1) / 2, "rollups are wrong"
            seen = len(got)
            say(seen)


if __name__ == "__main__":
    asyncio.run({"write": write, "read": read}[sys.argv[1]](Path(sys.argv[2])))
