"""The promise of history under fire: numbered samples are recorded while the sink is stopped twice, the recorder is
killed three times and Redis once. Sample n of each point has the value n, so count, sum and sequence show everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests import servers
from tests.history.history_room import until
from tests.history.recorder_process import settings_of
from tradewind.clock import now_ms
from tradewind.errors import Unavailable
from tradewind.history.sqlite_files import MAIN
from tradewind.points.board import Batch
from tradewind.points.feed_trim import trim_feed
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings
from tradewind.station_history import HistoryRoom, folder_of
from tradewind.station_points import PointRoom

STEP_MS = 10
#: What happens when such a share of the samples is written.
KILLS = (0.33, 0.5, 0.92)  # the first and the last while rows wait on disk
OUTAGES = (0.1, 0.7)
RESTART = 0.4


@dataclass(frozen=True, slots=True)
class Plan:
    """`steps` samples of each of `points`, in `write_s` at the soonest; the sink is away twice for `outage_s`."""

    points: int
    steps: int
    outage_s: float
    write_s: float
    settle_s: float = 60.0


@dataclass
class Found:
    """`wrong`: what is not as it should be of some series. `seconds` until all was in the sink."""

    count: int = 0
    total: float = 0.0
    wrong: list[str] = field(default_factory=list)
    status: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class Recording:
    """The recorder as a process of its own."""

    def __init__(self, *args: str) -> None:
        self._argv = [sys.executable, "-m", "tests.history.recorder_process", *args]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._argv, stdout=subprocess.DEVNULL, preexec_fn=servers.die_with_parent)

    def kill(self) -> None:
        if self._process is not None:
            assert self._process.poll() is None, "the recorder ended by itself"
            self._process.kill()
            self._process.wait()


class Soak:
    def __init__(self, link: Link, redis: servers.Server, folder: Path, influx: servers.Server | None) -> None:
        self._redis, self._influx = redis, influx
        url = influx.url if influx is not None else ""
        prefix = "soak:"
        self.history = HistoryRoom(PointRoom(link, settings_of(prefix, folder, url)))
        self._recording = Recording(redis.url, prefix, str(folder), *([url] if url else []))
        self._start_ms = 0
        self._outage: asyncio.Task[None] | None = None

    async def run(self, plan: Plan) -> Found:
        began = time.monotonic()
        self._start_ms = now_ms() - plan.steps * STEP_MS - 60_000
        self._recording.start()
        trimming = asyncio.create_task(self._trim())
        try:
            await self._write(plan)
            if self._outage is not None:
                await self._outage
            await until(self._is_stored, plan.settle_s)
            found = await self._look(plan)
            await until(self._is_told)
            found.status = await self.history.store.status()
            found.seconds = time.monotonic() - began
            return found
        finally:
            trimming.cancel()
            self._recording.kill()

    async def _write(self, plan: Plan) -> None:
        events = sorted(
            [(int(share * plan.steps), "kill") for share in KILLS]
            + [(int(share * plan.steps), "outage") for share in OUTAGES]
            + [(int(RESTART * plan.steps), "restart")]
        )
        began = time.monotonic()
        for step in range(plan.steps):
            while events and events[0][0] <= step:
                await self._happen(events.pop(0)[1], plan)
            values = {str(point): float(step) for point in range(1, plan.points + 1)}
            batch = Batch.of_channel("1001", "m", values, self._start_ms + step * STEP_MS)
            while True:
                with contextlib.suppress(Unavailable):
                    await self.history.points.board.write([batch])
                    break
                await asyncio.sleep(0.05)
            await asyncio.sleep(max(0.0, began + step * plan.write_s / plan.steps - time.monotonic()))

    async def _happen(self, event: str, plan: Plan) -> None:
        if event == "kill":
            self._recording.kill()
            self._recording.start()
        elif event == "restart":
            self._redis.kill()
            self._redis.start()
        else:
            await until(self._is_used)
            self._outage = asyncio.create_task(self._be_away(plan.outage_s))

    async def _be_away(self, seconds: float) -> None:
        if self._influx is not None:
            self._influx.kill()
            await asyncio.sleep(seconds)
            self._influx.start()
            return
        with _locked(folder_of(self.history.plane.all_settings) / MAIN):
            await asyncio.sleep(seconds)

    async def _trim(self) -> None:
        """As the leader of a station does: what every consumer has behind it is gone for good."""
        while True:
            with contextlib.suppress(Unavailable):
                await trim_feed(self.history.plane)
            await asyncio.sleep(0.5)

    async def _is_used(self) -> bool:
        """Something has reached the sink."""
        return int((await self.history.store.status()).get("written", "0")) > 0

    async def _is_stored(self) -> bool:
        plane = self.history.plane
        last = await plane.redis.xrevrange(plane.keys.feed(), count=1)
        cursor = await plane.redis.hget(plane.keys.feed_cursors(), "history")
        spool = folder_of(plane.all_settings) / "spool"
        return (not last or cursor == last[0][0]) and not any(spool.glob("*.seg"))

    async def _is_told(self) -> bool:
        status = await self.history.store.status()
        return status["spool_rows"] == "0" and status["behind"] == "0"

    async def _look(self, plan: Plan) -> Found:
        found = Found()
        end = self._start_ms + plan.steps * STEP_MS
        expected = [(self._start_ms + step * STEP_MS, float(step), 0) for step in range(plan.steps)]
        async with self.history.sink() as sink:
            for point in range(1, plan.points + 1):
                series = f"comsrv:1001:m:{point}"
                samples = (await sink.read([series], self._start_ms - 1, end + 1, plan.steps * 2))[series]
                found.count += len(samples)
                found.total += sum(value for _, value, _ in samples)
                if samples != expected:
                    missing = sorted({ts for ts, _, _ in expected} - {ts for ts, _, _ in samples})
                    found.wrong.append(f"{series}: {len(samples)} samples, missing from step " + _steps(missing, self))
        return found

    @property
    def start_ms(self) -> int:
        return self._start_ms


def _steps(missing: list[int], soak: Soak) -> str:
    steps = [(ts - soak.start_ms) // STEP_MS for ts in missing]
    return f"{steps[0]} to {steps[-1]}" if steps else "none"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Nobody else can write to the embedded sink meanwhile."""
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


async def soak(plan: Plan, folder: Path, influx: servers.Server | None) -> Found:
    with servers.redis_server(appendonly=True, extra=("--appendfsync", "always")) as redis:
        link = await open_link(RedisSettings(url=redis.url))
        try:
            return await Soak(link, redis, folder, influx).run(plan)
        finally:
            await link.close()
