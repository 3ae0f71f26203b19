"""The embedded sink: history in SQLite files of our own, no server.

One thread writes, a few read, each on connections of their own; other processes may read and write the same folder.
`sqlite_writer` stores, `sqlite_upkeep` makes rollups and drops what is old, `sqlite_reader` answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from tradewind.clock import now_ms
from tradewind.history.keeping import Keeping, KeepingSource, always
from tradewind.history.sample import MAX_TS_MS, Row
from tradewind.history.sink import (
    GAP_MS,
    Bucket,
    KeptFrom,
    Retained,
    Sample,
    SeriesInfo,
    Sink,
    SinkAway,
    SinkStats,
    Written,
    check_buckets,
    check_range,
)
from tradewind.history.sqlite_connections import TooLong
from tradewind.history.sqlite_listing import count_all, list_series, marks_of
from tradewind.history.sqlite_reader import Reader
from tradewind.history.sqlite_tail import TailCache
from tradewind.history.sqlite_upkeep import Upkeep
from tradewind.history.sqlite_writer import TAIL_ROWS, Writer

T = TypeVar("T")
log = structlog.get_logger(__name__)

READERS = 2
#: Samples that a question may go through before it counts as long: a quarter of a second. Long ones begin again in
#: threads of their own, so many at a time, so that the others do not wait for them.
LONG_READERS = 2
SHORT = 500_000
#: After upkeep failed, as on a full disk, it waits so long.
PAUSE_S = 5.0
#: How often, and how many times, a step of upkeep looks whether others write, before it begins all the same.
LOOK_S = 0.01
LOOKS = 50


class SqliteSink(Sink):
    """`folder` is made with the first write. `keeping`: how long each series is kept; without it, `days` of samples,
    minutes and hours, 0 is for ever."""

    has_rollups = True
    at_once = 24

    def __init__(
        self,
        folder: Path,
        days: tuple[int, int, int] = (0, 0, 0),
        *,
        keeping: KeepingSource | None = None,
        tail_rows: int = TAIL_ROWS,
        now: Callable[[], int] = now_ms,
    ) -> None:
        self.folder = folder
        self._writer = Writer(folder, tail_rows=tail_rows)
        self._upkeep = Upkeep(self._writer, now)
        self._keeping = keeping or always(Keeping(days))
        self._cache = TailCache()
        self._readers: queue.SimpleQueue[Reader] = queue.SimpleQueue()
        self._writing: ThreadPoolExecutor | None = None
        self._reading: ThreadPoolExecutor | None = None
        self._reading_long: ThreadPoolExecutor | None = None
        self._tending: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._damage: dict[str, str] = {}

    async def open(self) -> None:
        if self._writing is None:
            self._writing = ThreadPoolExecutor(1, thread_name_prefix="history-writer")
            self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="history-reader")
            self._reading_long = ThreadPoolExecutor(LONG_READERS, thread_name_prefix="history-reader-long")
            for _ in range(READERS + LONG_READERS):
                self._readers.put(Reader(self.folder, self._cache, self._on_damage))

    async def close(self) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait({self._tending})
        writing, reading, reading_long = self._writing, self._reading, self._reading_long
        self._writing = self._reading = self._reading_long = None
        if writing is not None and reading is not None and reading_long is not None:
            await asyncio.to_thread(reading.shutdown)
            await asyncio.to_thread(reading_long.shutdown)
            writing.submit(self._writer.close)
            await asyncio.to_thread(writing.shutdown)
            self._writer.turn.close()
            while not self._readers.empty():
                self._readers.get().close()

    async def write(self, rows: Sequence[Row]) -> Written:
        written, is_tail_long = await self._write(self._writer.write, rows)
        if is_tail_long:
            self._keep_up(move=True)
        return written

    async def read(self, series: Sequence[str], from_ms: int, to_ms: int, limit: int) -> dict[str, list[Sample]]:
        check_range(from_ms, to_ms, limit)
        from_ms, to_ms = _clamped(from_ms, to_ms)
        return await self._read(lambda reader: reader.read(series, from_ms, to_ms, limit))

    async def buckets(
        self,
        series: Sequence[str],
        from_ms: int,
        to_ms: int,
        bucket_ms: int,
        aggs: Sequence[str],
        limit: int,
        gap_ms: int = GAP_MS,
    ) -> dict[str, list[Bucket]]:
        check_range(from_ms, to_ms, limit)
        check_buckets(bucket_ms, aggs, gap_ms)
        from_ms, to_ms = _clamped(from_ms, to_ms)
        gap_ms = min(gap_ms, MAX_TS_MS)
        return await self._read(
            lambda reader: reader.buckets(series, from_ms, to_ms, bucket_ms, aggs, limit, gap_ms),
        )

    async def latest(self, series: Sequence[str]) -> dict[str, Sample | None]:
        return await self._read(lambda reader: reader.latest(series))

    async def series(self, pattern: str = "*", limit: int = 1000, after: str = "") -> list[SeriesInfo]:
        check_range(0, 0, limit)
        return await self._read(lambda reader: list_series(reader, pattern, limit, after))

    async def stats(self) -> SinkStats:
        keeping: Keeping | None = None
        with contextlib.suppress(SinkAway):
            keeping = await self._keeping()
        return await self._read(lambda reader: count_all(reader, self._problems(), keeping))

    async def problems(self) -> tuple[str, ...]:
        try:
            return tuple(await asyncio.to_thread(self._problems))
        except OSError as error:
            return (f"{self.folder}: {error.strerror}",)

    async def kept_from(self, series: Sequence[str]) -> dict[str, KeptFrom]:
        return await self._read(lambda reader: marks_of(reader, series))

    async def retain(self, now_ms: int) -> Retained:
        done = await self._steps(self._upkeep.retain(now_ms, await self._keeping()))
        self._keep_up(move=False)
        return done

    async def forget(self, series: Sequence[str]) -> int:
        await self._steps(self._upkeep.moves())
        return await self._write(self._upkeep.forget, series)

    async def keep_up(self) -> None:
        """What upkeep does by itself sooner or later, now: move the tail, make the rollups of hours that are over."""
        await self._steps(self._upkeep.moves())
        while await self._step(self._upkeep.step):
            pass

    async def _write(self, work: Callable[..., T], *arguments: object) -> T:
        if self._writing is None:
            raise SinkAway("the sink is closed", hint="open it first")
        return await asyncio.get_running_loop().run_in_executor(self._writing, work, *arguments)

    async def _steps(self, steps: Generator[None, None, T]) -> T:
        """One by one, each behind the writes that wait."""
        found: list[T] = []

        def step() -> bool:
            try:
                next(steps)
            except StopIteration as end:
                found.append(end.value)
            return not found

        while await self._step(step):
            pass
        return found[0]

    async def _step(self, step: Callable[[], bool]) -> bool:
        """In the thread of the writer, behind the writes that wait; those of other processes too, within reason."""
        for _ in range(LOOKS):
            if self._writer.turn.is_ours():
                break
            await asyncio.sleep(LOOK_S)
        return await self._write(step)

    async def _read(self, work: Callable[[Reader], T]) -> T:
        with contextlib.suppress(TooLong):
            return await self._read_in(self._reading, work, SHORT)
        return await self._read_in(self._reading_long, work, None)

    async def _read_in(self, threads: ThreadPoolExecutor | None, work: Callable[[Reader], T], room: int | None) -> T:
        def run() -> T:
            reader = self._readers.get()  # there is one for each thread
            try:
                with reader.bounded(room):
                    return work(reader)
            finally:
                self._readers.put(reader)

        if threads is None:
            raise SinkAway("the sink is closed", hint="open it first")
        return await asyncio.get_running_loop().run_in_executor(threads, run)

    def _keep_up(self, *, move: bool) -> None:
        if self._writing is not None and self._tending is None and time.monotonic() >= self._not_before:
            self._tending = asyncio.create_task(self._tend(move), name="history upkeep")

    async def _tend(self, move: bool) -> None:
        try:
            while move:
                move = await self._step(self._upkeep.move_some)
            while await self._step(self._upkeep.step):
                pass
        except SinkAway as error:
            self._not_before = time.monotonic() + PAUSE_S
            log.warning("history_upkeep_failed", error=error.message, hint=error.hint)
        except Exception:
            self._not_before = time.monotonic() + PAUSE_S
            log.exception("history_upkeep_failed", folder=str(self.folder))
        finally:
            self._tending = None

    def _on_damage(self, name: str, what: str) -> None:
        """From a reader's thread. The writer has a look; what it can set aside is out of the way then."""
        if name in self._damage:
            return
        self._damage[name] = what
        log.error("history_file_unreadable", file=name, error=what)
        writing = self._writing
        if writing is not None:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                writing.submit(self._examine, name)

    def _examine(self, name: str) -> None:
        try:
            if self._writer.examine(name):
                self._damage.pop(name, None)
        except SinkAway as error:
            self._damage.pop(name, None)
            log.warning("history_file_not_examined", file=name, error=error.message)

    def _problems(self) -> list[str]:
        files = self._writer.files
        aside = [f"{name}: damaged and set aside; what it held is missing" for name in files.aside()]
        damage = sorted(self._damage.items())
        return aside + [f"{name}: {what}" for name, what in damage if (files.folder / name).exists()]


def _clamped(from_ms: int, to_ms: int) -> tuple[int, int]:
    return max(from_ms, 0), max(min(to_ms, MAX_TS_MS + 1), 0)
