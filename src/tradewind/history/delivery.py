"""Rows on their way to the sink: straight there, or through the spool while it is away or slow; always in order."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import structlog

from tradewind.errors import Unavailable
from tradewind.history.columns import Columns
from tradewind.history.late_rows import LateRows
from tradewind.history.sample import Row
from tradewind.history.sink import Sink, SinkAway, Written
from tradewind.history.spool import Spool
from tradewind.history.spool_disk import LOW_BYTES, SpoolFull, free_bytes
from tradewind.history.spools import Spools
from tradewind.history.status import Faults, Figures, words_of
from tradewind.history.store import HistoryStore

log = structlog.get_logger(__name__)
#: A write that lasts longer is left to itself, and its rows go to the spool as well.
SLOW_S = 5.0
#: How long the sink may be away before that is a fault.
AWAY_S = 5.0
#: How long another process may have a spool with rows before that is a fault: one that stands by has it for a moment.
HELD_S = 5.0
#: Rows of the spool that make one write.
DRAIN_ROWS = 20_000
#: Between tries while the sink is away.
PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
MAX_RETRY_AFTER_S = 60.0
FULL_PAUSE_S = 0.5
FILES_HINT = "bring them back from a backup, or move them out of the folder of history: then the alarm ends"


class Delivery:
    """`take` and `drain` run side by side; the spools are open."""

    def __init__(self, sink: Sink, spool: Spools, store: HistoryStore, figures: Figures, faults: Faults) -> None:
        self._sink = sink
        self._spool = spool
        self._store = store
        self._figures = figures
        self._faults = faults
        self._late: dict[Spool, LateRows] = {}
        self._newest_ms = 0
        self._slow: asyncio.Task[Written] | None = None
        self._slow_rows: Sequence[Row] = ()
        self._is_waiting = asyncio.Event()
        self._away_since = self._held_since = 0.0
        self._pause_s = PAUSE_S
        self.look_for_rows()

    def look_for_rows(self) -> None:
        """The spool was opened: what a former process left in it is to be delivered."""
        if not self._spool.is_empty:
            self._is_waiting.set()

    async def take(self, rows: Sequence[Row]) -> None:
        """The rows are safe when it returns: in the sink or on the disk. Waits while neither takes them."""
        while rows:
            if self._spool.is_empty and await self._write_now(rows):
                if self._spool.is_open:
                    self._figures.spool_error = ""
                    await self._faults.set("history:spool", False, "history_disk_full", "the sink took what waited")
                return
            try:
                await asyncio.to_thread(self._spool.append, rows, self._spool.steady_ms())
            except Unavailable as error:
                code = "history_disk_full" if isinstance(error, SpoolFull) else error.code
                self._figures.spool_error = words_of(error)
                await self._faults.set("history:spool", True, code, words_of(error))
                await asyncio.sleep(FULL_PAUSE_S)
                continue
            self._figures.spooled += len(rows)
            self._figures.spool_error = ""
            self._is_waiting.set()
            await self._faults.set("history:spool", False, "history_disk_full", "the spool can be written")
            return

    async def take_late(self, rows: Sequence[Row]) -> None:
        """Rows of a term that is over: as `take`, but what the sink has under their keys stays."""
        if self._spool.is_empty:
            with contextlib.suppress(SinkAway):
                rows = await LateRows(self._sink).missing(rows)
        await self.take(rows)

    def newest_ms(self) -> int:
        """Time of the newest sample that went to the sink; 0 before the first."""
        return self._newest_ms

    async def drain(self) -> None:
        """Bring what waits on the disk to the sink, until cancelled."""
        while True:
            await self._is_waiting.wait()
            if not await self.drain_some():
                self._is_waiting.clear()

    def close(self) -> None:
        if self._slow is not None:
            self._slow.cancel()

    async def drain_some(self) -> bool:
        """Try to bring the oldest rows to the sink, and pause if it is away; False when none waited. They are read
        anew for each try, since the spool may have dropped them meanwhile."""
        found = await asyncio.to_thread(self._spool.peek, DRAIN_ROWS)
        if found is None:
            return not self._spool.is_empty
        spool, portion = found
        await self._await_slow(None)
        rows = portion.rows
        try:
            if portion.is_late:
                late = self._late.setdefault(spool, LateRows(self._sink))
                rows = await late.missing(rows)
            await self._wrote(rows, await self._sink.write(rows))
        except SinkAway as error:
            self._not_ok("away", words_of(error))
            await asyncio.sleep(max(self._pause_s, min(error.retry_after_s or 0.0, MAX_RETRY_AFTER_S)))
            self._pause_s = min(MAX_PAUSE_S, self._pause_s * 2)
            return True
        self._pause_s = PAUSE_S
        await asyncio.to_thread(self._spool.ack, spool, portion.upto)
        return True

    async def watch(self) -> None:
        """Once a second: what is too old goes, what went is told, and how the sink and its files do."""
        await asyncio.to_thread(self._spool.expire)
        figures, before = self._figures, self._figures.dropped
        figures.look_at(self._spool)
        if figures.dropped > before:
            text = f"{figures.dropped - before} samples were dropped from the spool and are lost; since ever "
            text += f"{figures.dropped_bytes} for its size, {figures.dropped_age} for their age, "
            text += f"{figures.dropped_corrupt} for damage"
            await self._faults.tell("history:dropped", "history_dropped", text)
        if not self._away_since:
            await self._faults.set("history:sink", False, "history_sink_away", "the sink takes samples")
        elif time.monotonic() - self._away_since > AWAY_S:
            text = f"the sink of history is {figures.sink}: {figures.sink_error}; samples wait on disk"
            await self._faults.set("history:sink", True, "history_sink_away", text)
        await self._watch_other_spools()
        await self._watch_disk()
        problems = await self._sink.problems()
        text = f"{'; '.join(problems[:5])} ({len(problems)} in all; {FILES_HINT})"
        text = text if problems else "no file of history is damaged"
        await self._faults.set("history:files", bool(problems), "history_files_damaged", text, problems)

    async def _watch_other_spools(self) -> None:
        count, now = self._spool.elsewhere_bytes, time.monotonic()
        self._held_since = (self._held_since or now) if count else 0.0
        is_held = bool(count) and now - self._held_since >= HELD_S
        self._figures.spool_elsewhere_bytes = count if is_held else 0
        text = f"{count} bytes of samples wait in a spool that another process has open and does not deliver from; "
        text += "they are delivered when it goes on, or is ended"
        text = text if is_held else "no process keeps samples from the sink"
        await self._faults.set("history:spool-held", is_held, "history_spool_held", text)

    async def _watch_disk(self) -> None:
        """Also while nothing is recorded: the next sample would find it full."""
        free = await asyncio.to_thread(free_bytes, self._spool.folder.parent)
        is_full = free is not None and free < LOW_BYTES
        text = f"the disk of {self._spool.folder.parent} is full: {free} bytes are free" if is_full else ""
        self._figures.disk_error = text
        text = text or "the disk of history has room"
        await self._faults.set("history:disk", is_full, "history_disk_full", text)

    async def _write_now(self, rows: Sequence[Row]) -> bool:
        """False when the sink is away, or has not answered yet."""
        if self._slow is not None and self._slow_rows is rows:  # the disk did not take them
            write, self._slow = self._slow, None
        elif not await self._await_slow(SLOW_S):
            return False
        else:
            write = asyncio.create_task(self._sink.write(rows), name="history write")
        try:
            done, _ = await asyncio.wait({write}, timeout=SLOW_S)
        except asyncio.CancelledError:
            write.cancel()
            raise
        if not done:
            self._slow, self._slow_rows = write, rows
            self._not_ok("slow", f"a write has lasted longer than {SLOW_S:g} s")
            return False
        try:
            await self._wrote(rows, write.result())
        except SinkAway as error:
            self._not_ok("away", words_of(error))
            return False
        return True

    async def _await_slow(self, timeout_s: float | None) -> bool:
        """A slow write holds older values, which are in the spool, too, or were dropped from it: what follows must not
        be overtaken by it. False when it goes on for longer than that."""
        slow = self._slow
        if slow is None:
            return True
        done, _ = await asyncio.wait({slow}, timeout=timeout_s)
        if done:
            with contextlib.suppress(SinkAway, asyncio.CancelledError):
                slow.result()
            if self._slow is slow:
                self._slow, self._slow_rows = None, ()
        return bool(done)

    async def _wrote(self, rows: Sequence[Row], written: Written) -> None:
        figures = self._figures
        times = rows.ts if isinstance(rows, Columns) else [row.ts_ms for row in rows]
        self._newest_ms = max(self._newest_ms, max(times, default=0))
        figures.written += written.stored
        figures.batches += 1
        if self._away_since:
            log.info("the sink takes samples again", away_s=round(time.monotonic() - self._away_since, 1))
        self._away_since = 0.0
        figures.sink, figures.sink_error = "ok", ""
        if written.refused:
            figures.refused += len(written.refused)
            await self._store.add_refused(written.refused)
            row, reason = written.refused[0]
            text = f"the sink refused {len(written.refused)} samples, the first of {row.series}: {reason}"
            await self._faults.tell("history:refused", "history_refused", text)

    def _not_ok(self, state: str, why: str) -> None:
        if not self._away_since:
            log.warning("the sink takes no samples now; they wait on disk", state=state, why=why)
            self._away_since = time.monotonic()
        self._figures.sink, self._figures.sink_error = state, why
