"""Records every change (role hissrv): reads the feed, makes batches, has them stored, and only then moves its cursor.

Only the process that holds `history:leader` reads; the others stand by, and bring to the sink what a term of theirs
left on their disk. At least once: what is stored again is the same sample again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from tradewind.clock import now_ms
from tradewind.errors import Invalid, Unavailable
from tradewind.history.batcher import Batch, Batcher
from tradewind.history.delivery import Delivery
from tradewind.history.policy import Policy
from tradewind.history.sample import Row
from tradewind.history.sink import Sample, Sink, SinkAway
from tradewind.history.spool import Spool
from tradewind.history.status import Faults, Figures, feed_lag, words_of
from tradewind.history.store import CONSUMER, HistoryStore, policy_of
from tradewind.history.untold import Untold
from tradewind.ids import short_random
from tradewind.points.feed import FeedBatch, FeedReader
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.tasks.leader import Leadership

log = structlog.get_logger(__name__)
TICK_S = 1.0
RETAIN_S = 60.0
TROUBLE_PAUSE_S = 0.5
#: About how much of the feed one read takes: some 15,000 samples.
READ_BYTES = 250_000
MAX_ENTRIES = 2000
#: Batches that are read ahead while one is stored. They go in one write then, up to about so many rows: a write that
#: is long for its size alone must not look like a sink that is slow.
AHEAD = 8
WRITE_ROWS = 10_000
#: How long the end waits for what was read to be stored; what was not is read again by the next one.
STOP_S = 10.0
LATEST_S = 5.0


class HistoryLead(Leadership):
    """Who records; the election of the task room under keys of our own."""

    def __init__(self, plane: PointPlane, recorder_id: str) -> None:
        super().__init__(plane, recorder_id, plane.keys.history_leader(), plane.keys.history_epoch())


class HistoryRecorder:
    """`folder`: of the spool, on a disk that stays. Opens and closes the sink."""

    def __init__(self, plane: PointPlane, sink: Sink, folder: Path, *, recorder_id: str = "") -> None:
        self.plane = plane
        self.id = recorder_id or f"hissrv-{short_random()}"
        self.figures = Figures(recorder=self.id, since_ms=now_ms())
        self.is_leading = False
        settings = plane.all_settings.history
        self._sink = sink
        self._spool = Spool(folder, settings.spool_max_bytes, settings.spool_max_age_s)
        self._store = HistoryStore(plane.link, plane.keys)
        self._faults = Faults(plane)
        self._policy_text: bytes | None = None
        self._batcher = Batcher(Policy())
        self._untold = Untold(plane, self._batcher, self._latest)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; gives the lead up then."""
        await self._sink.open()
        lead = HistoryLead(self.plane, self.id)
        lead.start()
        try:
            while not stop.is_set():
                epoch = lead.epoch
                if epoch:
                    try:
                        await self._term(lead, epoch, stop)
                    except* Unavailable as errors:
                        log.warning("history_waits", recorder=self.id, error=str(errors.exceptions[0]))
                    await _wait(TROUBLE_PAUSE_S, stop)
                else:
                    await _wait(TICK_S, stop, lead.changed)
                    lead.changed.clear()
                if not stop.is_set() and not lead.epoch:
                    await self._drain_while_standing_by(lead, stop)
        finally:
            self.is_leading = False
            await lead.stop()
            await self._sink.close()

    async def _term(self, lead: HistoryLead, epoch: int, stop: asyncio.Event) -> None:
        """Record until the lead is lost or `stop` is set. Raises a group with Unavailable when Redis is."""
        reader = FeedReader(self.plane, CONSUMER, start="oldest", count=20)
        delivery: Delivery | None = None
        try:
            await asyncio.to_thread(self._spool.open)
            self.figures.go_on_from(await self._store.status())
            self._batcher.restart()
            self._policy_text = None
            await self._look_at_policy()
            with translated(self.plane.link):
                has_cursor = await self.plane.redis.hexists(self.plane.keys.feed_cursors(), CONSUMER)
            await reader.open()
            self._untold.owe(is_whole=not has_cursor)
            delivery = Delivery(self._sink, self._spool, self._store, self.figures, self._faults)
            log.info("history_recorded", recorder=self.id, epoch=epoch, waiting=self._spool.rows)
            self.is_leading = True
            queue: asyncio.Queue[Batch | None] = asyncio.Queue(AHEAD)
            async with asyncio.TaskGroup() as group:
                draining = group.create_task(delivery.drain(), name="history drain")
                telling = group.create_task(self._tell(delivery), name="history status")
                retaining = group.create_task(self._retain(), name="history retention")
                storing = group.create_task(self._store_batches(queue, delivery, reader), name="history store")
                if await self._read(reader, queue, lead, epoch, stop):
                    await asyncio.wait({storing}, timeout=STOP_S)
                for task in (draining, telling, retaining, storing):
                    task.cancel()
            with contextlib.suppress(Unavailable):
                await self._tell_once(delivery)
        finally:
            self.is_leading = False
            await reader.close()
            if delivery is not None:
                delivery.close()
            await asyncio.to_thread(self._spool.close)

    async def _read(
        self,
        reader: FeedReader,
        queue: asyncio.Queue[Batch | None],
        lead: HistoryLead,
        epoch: int,
        stop: asyncio.Event,
    ) -> bool:
        """Until the lead is lost or `stop` is set. True when everything that was read is in the queue, with its end."""
        batcher = self._batcher
        batch: Batch | None = None

        def goes_on() -> bool:
            return lead.epoch == epoch and not stop.is_set()

        while goes_on():
            wait_s = min(batcher.wait_s(time.monotonic()), TICK_S)
            found = await reader.read(max(1, int(wait_s * 1000))) if wait_s > 0 else None
            if found is not None:
                await self._take_in(reader, found)
            if found is None or len(found.entries) < reader.count:
                await self._untold.caught_up()
            if batcher.wait_s(time.monotonic()) <= 0:
                batch = batcher.take(time.monotonic())
                while batch is not None and goes_on():
                    if await _put(queue, batch):
                        batch = None
        if not stop.is_set():
            return False
        # Also what the minimum interval holds back. None may pass one before it: the cursor would, too.
        for last in (batch, batcher.take(time.monotonic(), is_last=True)):
            if last is not None and not await _put(queue, last):
                return False
        return await _put(queue, None)

    async def _take_in(self, reader: FeedReader, found: FeedBatch) -> None:
        entries, batcher, figures = found.entries, self._batcher, self.figures
        if found.missed:
            figures.missed = int(dict(zip(found.cursor[::2], found.cursor[1::2], strict=True))[f"{CONSUMER}#missed"])
            text = f"{found.missed} entries of the change feed were trimmed before history had them: samples are lost"
            await self._faults.tell("history:missed", "history_missed", text)
            self._untold.owe(is_whole=True)
        new = batcher.unseeded(entries)
        if new:
            await self._seed(new)
        batcher.add(entries, found.cursor, time.monotonic())
        if entries:
            average = sum(len(entry.data) for entry in entries) // len(entries) + 1
            reader.count = max(1, min(MAX_ENTRIES, READ_BYTES // average))

    async def _latest(self, series: Sequence[str]) -> Mapping[str, Sample | None]:
        try:
            async with asyncio.timeout(LATEST_S):
                return await self._sink.latest(series)
        except (SinkAway, TimeoutError):
            return {}

    async def _seed(self, series: list[str]) -> None:
        """What the sink has last of series that are thinned; when it is away the next change is simply recorded."""
        found = await self._latest(series)
        for name in series:
            last = found.get(name)
            self._batcher.thinner.seed(name, Row(name, *last) if last is not None else None)

    async def _store_batches(self, queue: asyncio.Queue[Batch | None], delivery: Delivery, reader: FeedReader) -> None:
        is_end = False
        while not is_end:
            batch, is_end = await _gathered(queue)
            await delivery.take(batch.rows)
            cursor = tuple(part for item in batch.cursor.items() for part in item)
            if cursor:
                await reader.commit(FeedBatch((), 0, cursor))
            self.figures.entries += batch.entries

    async def _tell(self, delivery: Delivery) -> None:
        while True:
            await self._look_at_policy()
            await self._tell_once(delivery)
            await asyncio.sleep(TICK_S)

    async def _retain(self) -> None:
        while True:
            with contextlib.suppress(SinkAway):
                await self._sink.retain(now_ms())
            await asyncio.sleep(RETAIN_S)

    async def _tell_once(self, delivery: Delivery) -> None:
        figures, tally = self.figures, self._batcher.tally
        await delivery.watch()
        figures.not_finite += tally.not_finite
        figures.unreadable += tally.unreadable
        figures.thinned += self._batcher.thinner.left_out
        tally.not_finite = tally.unreadable = self._batcher.thinner.left_out = 0
        with translated(self.plane.link):
            seconds, micros = await self.plane.redis.time()
        figures.behind, figures.lag_ms = await feed_lag(self.plane, CONSUMER, seconds * 1000 + micros // 1000)
        figures.at_ms = now_ms()
        await self._store.put_status(figures.fields())

    async def _look_at_policy(self) -> None:
        """Follow the policy; one that cannot be read changes nothing, and is told."""
        text = await self._store.policy_text()
        if text == self._policy_text:
            return
        self._policy_text = text
        try:
            self._batcher.use(policy_of(text))
            self.figures.policy_error = ""
            await self._faults.set("history:policy", False, "history_policy", "the policy of history is in use")
        except Invalid as error:
            self.figures.policy_error = error.message
            await self._faults.set("history:policy", True, "history_policy", words_of(error))

    async def _drain_while_standing_by(self, lead: HistoryLead, stop: asyncio.Event) -> None:
        """What a term of this folder left is brought to the sink also when another process records; for a moment only,
        since the one that records may share the folder."""
        if not any(self._spool.folder.glob("*.seg")):
            return
        with contextlib.suppress(Unavailable):
            await asyncio.to_thread(self._spool.open)
            try:
                delivery = Delivery(self._sink, self._spool, self._store, self.figures, self._faults)
                async with asyncio.timeout(TICK_S):
                    while not lead.epoch and not stop.is_set() and await delivery.drain_some():
                        pass
            except TimeoutError:
                pass
            finally:
                await asyncio.to_thread(self._spool.close)


async def _gathered(queue: asyncio.Queue[Batch | None]) -> tuple[Batch, bool]:
    """What has been read ahead, as one batch, and whether None, the end, came behind it."""
    whole, part = Batch(), await queue.get()
    while part is not None:
        whole.join(part)
        if queue.empty() or len(whole.rows) >= WRITE_ROWS:
            return whole, False
        part = queue.get_nowait()
    return whole, True


async def _put(queue: asyncio.Queue[Batch | None], batch: Batch | None) -> bool:
    """False when there was no room for a second."""
    try:
        async with asyncio.timeout(TICK_S):
            await queue.put(batch)
    except TimeoutError:
        return False
    return True


async def _wait(timeout_s: float, *events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
