"""Processes that write, read or move, to be killed: `python -m tests.history.sqlite_process write|read|move FOLDER`."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.history.sink_contract import DAY0, HOUR, SECOND
from tradewind.history import sqlite_move
from tradewind.history.sample import Row
from tradewind.history.sqlite import SqliteSink
from tradewind.history.sqlite_upkeep import Upkeep
from tradewind.history.sqlite_writer import Writer

NAMES = [f"comsrv:1:m:{n}" for n in range(10)]
BATCH = 200  # rows of each series
MOST = 100  # batches of one process: what readers must look at does not grow with their slowness


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
    """Says after each batch how many are stored; goes on behind what is there, and waits for its end after MOST."""
    in_small_portions()
    async with SqliteSink(folder, tail_rows=5000) as sink:
        (info,) = await sink.series(NAMES[0], 1, "") or [None]
        stored = (info.count if info else 0) // BATCH
        for number in range(stored + 1, stored + 1 + MOST):
            await sink.write(batch_of(number - 1))
            say(number)
        await asyncio.Event().wait()


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


def in_small_portions() -> None:
    """A series at a time, the smallest portions of a move that there are."""
    sqlite_move.SLICE, sqlite_move.PORTION_S = 1, -1.0


async def move(folder: Path) -> None:
    """Moves the tail of a store in copies of it, `1`, `2`, … beside it: in the first it dies after the first commit, in
    the second after the second, and so on. Says how many there are; in the last one it came to the end."""
    in_small_portions()
    for commits in itertools.count(1):
        copy = folder.parent / str(commits)
        shutil.copytree(folder, copy)
        child = os.fork()
        if not child:
            Dying.left = commits
            connect = sqlite3.connect
            sqlite3.connect = partial(connect, factory=Dying)  # type: ignore[assignment]
            upkeep = Upkeep(Writer(copy))
            while upkeep.move_some():
                pass
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            say(commits)
            return


class Dying(sqlite3.Connection):
    left = 0

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        done = super().execute(sql, *rest)
        if sql == "COMMIT":
            Dying.left -= 1
            if not Dying.left:
                os.kill(os.getpid(), signal.SIGKILL)
        return done


if __name__ == "__main__":
    asyncio.run({"write": write, "read": read, "move": move}[sys.argv[1]](Path(sys.argv[2])))
