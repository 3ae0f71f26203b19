"""A recorder that hangs with its spool open (SIGSTOP): another one takes over recording, and nothing of either is lost,
doubled or put over something newer."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.history.history_room import QUICK, until
from tests.history.recorder_process import SLOW_ENV, settings_of
from tradewind.clock import now_ms
from tradewind.history.sqlite_files import MAIN
from tradewind.points.board import Batch
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings
from tradewind.station_history import HistoryRoom, folder_of
from tradewind.station_points import PointRoom

ONE = "comsrv:1001:m:1"
STEP_MS = 10


class Recorder:
    """A process of the role hissrv; `name` is what it calls itself in `history:leader`."""

    def __init__(self, *args: str) -> None:
        argv = [sys.executable, "-m", "tests.history.recorder_process", *args]
        # A write that waits for a lock counts as slow soon, so that the spool is used without a long wait.
        env = os.environ | {SLOW_ENV: "0.3"}
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, preexec_fn=servers.die_with_parent)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Plant:
    """A station's history as a test sees it: writes numbered samples, freezes and starts recorders, asks the sink."""

    def __init__(self, url: str, history: HistoryRoom, folder: Path) -> None:
        self.history = history
        self.start_ms = now_ms() - 1_000_000
        self.written = 0
        self._args = (url, history.settings.key_prefix, str(folder))
        self._started: list[Recorder] = []

    def start(self) -> Recorder:
        self._started.append(Recorder(*self._args))
        return self._started[-1]

    async def leader_other_than(self, name: str) -> str:
        await until(lambda: self._is_other(name))
        return await self.history.store.leader()

    async def _is_other(self, name: str) -> bool:
        return await self.history.store.leader() not in ("", name)

    async def write(self, count: int) -> None:
        for _ in range(count):
            batch = Batch.of_channel("1001", "m", {"1": float(self.written)}, self.start_ms + self.written * STEP_MS)
            await self.history.points.board.write([batch])
            self.written += 1

    async def samples(self) -> list[tuple[int, float]]:
        async with self.history.sink() as sink:
            found = await sink.read([ONE], 0, now_ms(), 100_000)
        return [((ts - self.start_ms) // STEP_MS, value) for ts, value, _ in found[ONE]]

    async def has(self, first: int, last: int) -> bool:
        """Whether the sink has the samples from `first` up to `last`, each once, and their own values."""
        found = [pair for pair in await self.samples() if first <= pair[0] < last]
        return found == [(number, float(number)) for number in range(first, last)]

    async def figure(self, name: str) -> int:
        text = (await self.history.store.status()).get(name, "")
        return int(text) if text.isdigit() else 0

    async def waits_on_disk(self, rows: int) -> bool:
        return await self.figure("spool_rows") >= rows and await self.figure("behind") == 0

    async def is_well(self) -> bool:
        return (await self.history.look())["hissrv"].status == "ok"

    async def tells_what_is_held(self) -> bool:
        found = (await self.history.look())["hissrv"]
        return found.status == "down" and "bytes wait in the spool of a process that hangs" in found.detail

    def end(self) -> None:
        for recorder in self._started:
            recorder.kill()


@pytest.fixture
async def plant(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[Plant]:
    link = await open_link(RedisSettings(url=redis_7.url))
    history = HistoryRoom(PointRoom(link, settings_of(key_prefix, tmp_path)))
    await history.store.put_policy(QUICK)
    plant = Plant(redis_7.url, history, tmp_path)
    try:
        yield plant
    finally:
        plant.end()
        await link.close()


@contextlib.contextmanager
def sink_locked(history: HistoryRoom) -> Iterator[None]:
    """Nobody can write to the files of history meanwhile."""
    db = sqlite3.connect(folder_of(history.settings) / MAIN, timeout=30, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")
    finally:
        db.close()


@pytest.mark.parametrize("end", ["continued", "killed"])
@pytest.mark.timeout(120)
async def test_a_stand_by_records_while_the_spool_of_a_hung_recorder_is_locked(plant: Plant, end: str) -> None:
    first = plant.start()
    leader = await plant.leader_other_than("")
    await plant.write(20)
    await until(lambda: plant.has(0, 20))
    plant.start()
    with sink_locked(plant.history):
        await plant.write(20)
        await until(lambda: plant.waits_on_disk(20))
        first.freeze()  # with twenty samples in its spool, and the lock on it
        leader = await plant.leader_other_than(leader)
        await plant.write(20)
        await until(lambda: plant.waits_on_disk(20))  # the sink is away for the second one, too: it has its own spool
    await until(lambda: plant.has(40, 60))  # and brings what is its own to the sink, whatever the first one does
    await plant.write(20)
    await until(lambda: plant.has(40, 80))
    assert not await plant.has(0, 40)  # they wait where nobody can get at them
    await until(lambda: plant.tells_what_is_held())
    first.go_on() if end == "continued" else first.kill()
    await until(lambda: plant.has(0, 80))
    await until(lambda: plant.is_well())
    await until(lambda: _is_all_done(plant))
    assert [await plant.figure(name) for name in ("dropped", "missed", "refused")] == [0, 0, 0]


@pytest.mark.timeout(120)
async def test_what_a_hung_recorder_held_is_not_put_over_what_was_written_since(plant: Plant) -> None:
    first = plant.start()
    leader = await plant.leader_other_than("")
    await plant.write(1)
    await until(lambda: plant.has(0, 1))
    plant.start()
    with sink_locked(plant.history):
        await plant.write(9)
        await until(lambda: plant.waits_on_disk(9))
        first.freeze()
        await plant.leader_other_than(leader)
    board, at = plant.history.points.board, plant.start_ms + 9 * STEP_MS
    await board.write([Batch.of_channel("1001", "m", {"1": 99.0}, at)])  # the last value of the same time is corrected
    await until(lambda: _is(plant, [(0, 0.0), (9, 99.0)]))
    first.kill()
    await until(lambda: _is(plant, [*((number, float(number)) for number in range(9)), (9, 99.0)]))
    await until(lambda: _is_all_done(plant))
    assert await plant.samples() == [*((number, float(number)) for number in range(9)), (9, 99.0)]


async def _is(plant: Plant, expected: list[tuple[int, float]]) -> bool:
    return await plant.samples() == expected


async def _is_all_done(plant: Plant) -> bool:
    folder = folder_of(plant.history.settings)
    return not list(folder.glob("spool*/*.seg")) and await plant.figure("spool_rows") == 0
