"""Records every change (role hissrv): reads the feed, makes batches, has them stored, and only then moves its cursor.

Only the process that holds `history:leader` reads; the others stand by, and bring to the sink what a term of theirs
left on their disk. At least once: what is stored again is the same sample again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from tradewind.clock import now_ms
from tradewind.errors import Unavailable, error_text
from tradewind.history.batcher import Batch, Batcher
from tradewind.history.delivery import Delivery
from tradewind.history.in_hand import InHand
from tradewind.history.lag import FeedLag
from tradewind.history.policy import Policy
from tradewind.history.policy_follow import PolicyFollower
from tradewind.history.policy_memory import FILE as POLICY_FILE
from tradewind.history.policy_memory import PolicyMemory
from tradewind.history.retention import Retention
from tradewind.history.sample import Row
from tradewind.history.sink import Sample, Sink, SinkAway
from tradewind.history.spool_opener import SpoolOpener
from tradewind.history.spools import Spools
from tradewind.history.status import Faults, Figures
from tradewind.history.store import CONSUMER, HistoryStore
from tradewind.history.untold import Untold
from tradewind.ids import short_random
from tradewind.points.feed import BEFORE_ALL, FeedBatch, FeedReader
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.tasks.leader import Leadership, either

log = structlog.get_logger(__name__)
TICK_S = 1.0
TROUBLE_PAUSE_S = 0.5
#: About how much of the feed one read takes: some 15,000 samples.
READ_BYTES = 250_000
MAX_ENTRIES = 2000
#: How long the end waits for what was read to be stored; what was not is read again by the next one.
STOP_S = 10.0
LATEST_S = 5.0


class HistoryLead(Leadership):
    """Who records; the election of the task room under keys of our own."""

    def __init__(self, plane: PointPlane, recorder_id: str) -> None:
        super().__init__(plane, recorder_id, plane.keys.history_leader(), plane.keys.history_epoch())


class HistoryRecorder:
    """`folder`: of the spool, on a disk that stays; beside it stands what must be known without Redis. Opens and closes
    the sink."""

    def __init__(self, plane: PointPlane, sink: Sink, folder: Path, *, recorder_id: str = "") -> None:
        self.plane = plane
        self.id = recorder_id or f"hissrv-{short_random()}"
        self.figures = Figures(recorder=self.id, since_ms=now_ms())
        self.is_leading = False
        settings = plane.all_settings.history
        self._sink = sink
        self._spool = Spools(folder, settings.spool_max_bytes, settings.spool_max_age_s)
        self._store = HistoryStore(plane.link, plane.keys)
        self._faults = Faults(plane)
        self._opener = SpoolOpener(self._spool, self.figures, self._faults)
        self._retention = Retention(sink, folder.parent, self._faults)
        self._batcher = Batcher(Policy())
        memory = PolicyMemory(folder.with_name(POLICY_FILE))
        self._policy = PolicyFollower(self._store, memory, self._batcher, self.figures, self._faults)
        self._untold = Untold(plane, self._batcher, self._latest)
        self._lag = FeedLag(plane, CONSUMER)
        self._has_read = False

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
                        log.warning("history_waits", recorder=self.id, error=error_text(errors.exceptions[0]))
                    await either(stop, timeout_s=TROUBLE_PAUSE_S)
                else:
                    await either(stop, lead.changed, timeout_s=TICK_S)
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
            self.figures.go_on_from(await self._store.status())
            await self._opener.open(epoch)
            self._batcher.restart()
            self._lag = FeedLag(self.plane, CONSUMER)
            await self._policy.look(is_first=True)
            with translated(self.plane.link):
                at = await self.plane.redis.hget(self.plane.keys.feed_cursors(), CONSUMER)
            has_cursor = at is not None and at.decode() != BEFORE_ALL  # the leader may hold the feed for one who comes
            await reader.open()
            self._untold.owe(is_whole=not has_cursor)
            if self._has_read and not has_cursor:
                text = "Redis came back without its data: what it had and history had not read yet is lost"
                await self._faults.tell("history:missed", "history_missed", text)
            self._has_read = True
            delivery = Delivery(self._sink, self._spool, self._store, self.figures, self._faults)
            log.info("history_recorded", recorder=self.id, epoch=epoch, waiting=self._spool.rows)
            self.is_leading = True
            hand = InHand()
            try:
                async with asyncio.TaskGroup() as group:
                    draining = group.create_task(delivery.drain(), name="history drain")
                    telling = group.create_task(self._tell(delivery, epoch), name="history status")
                    retaining = group.create_task(self._retention.run(delivery.newest_ms), name="history retention")
                    keeping = self._store_batches(hand, delivery, reader, lambda: lead.is_held(epoch))
                    storing = group.create_task(keeping, name="history store")
                    if await self._read(reader, hand, lambda: lead.is_held(epoch) and not storing.done(), stop):
                        await asyncio.wait({storing}, timeout=STOP_S)
                    is_over = stop.is_set()
                    for task in (draining, telling, retaining, storing):
                        task.cancel()
            except* Unavailable:
                await self._save(hand, delivery)
                raise
            if not is_over:  # the lead is lost, as it is by a Redis that hangs; another one may record
                await self._save(hand, delivery)
            else:
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
        hand: InHand,
        is_stored: Callable[[], bool],
        stop: asyncio.Event,
    ) -> bool:
        """Until nobody stores any more (the lead is lost) or `stop` is set. True when everything that was read is in
        the queue, with its end."""
        batcher = self._batcher
        batch: Batch | None = None

        def goes_on() -> bool:
            return is_stored() and not stop.is_set()

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
                    if await hand.put(batch, TICK_S):
                        batch = None
        if not stop.is_set():
            return False
        # Also what the minimum interval holds back. None may pass one before it: the cursor would, too.
        for last in (batch, batcher.take(time.monotonic(), is_last=True)):
            if last is not None and not await hand.put(last, TICK_S):
                return False
        return await hand.put(None, TICK_S)

    async def _save(self, hand: InHand, delivery: Delivery) -> None:
        """Redis went away, and may come back without what was read: that is stored, only the cursor waits. Whoever
        leads next may have stored newer values by now."""
        whole = hand.rest()
        if (last := self._batcher.take(time.monotonic(), is_last=True)) is not None:
            whole.join(last)
        try:
            async with asyncio.timeout(STOP_S):
                await delivery.take_late(whole.rows)
        except TimeoutError:
            log.warning("what was read could not be stored; it is read again", rows=len(whole.rows))

    async def _take_in(self, reader: FeedReader, found: FeedBatch) -> None:
        entries, batcher, figures = found.entries, self._batcher, self.figures
        if found.missed:
            ever = int(dict(zip(found.cursor[::2], found.cursor[1::2], strict=True))[f"{CONSUMER}#missed"])
            # Less than was known: Redis has lost its own count.
            figures.missed = ever if ever >= figures.missed else figures.missed + found.missed
            text = f"{found.missed} entries of the change feed were removed before history had them: samples are lost"
            await self._faults.tell("history:missed", "history_missed", text)
            self._untold.owe(is_whole=True)
        batcher.tally.unreadable += found.unreadable
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

    async def _store_batches(
        self, hand: InHand, delivery: Delivery, reader: FeedReader, is_held: Callable[[], bool]
    ) -> None:
        """Until the end comes, or the lead is not held any more: what is in hand then is for `_save`."""
        is_end = False
        while not is_end:
            batch, is_end = await hand.gathered()
            if not is_held():
                return
            await delivery.take(batch.rows)
            if not is_held():
                return
            hand.stored()
            cursor = tuple(part for item in batch.cursor.items() for part in item)
            if cursor:
                self._lag.is_moving = True
                await reader.commit(FeedBatch((), 0, cursor))
                self._lag.is_moving = False
            self._lag.stored += batch.entries
            self.figures.entries += batch.entries

    async def _tell(self, delivery: Delivery, epoch: int) -> None:
        while True:
            await self._policy.look()
            with contextlib.suppress(Unavailable):
                if self._spool.is_open:
                    await asyncio.to_thread(self._spool.look_around)
                else:
                    await self._opener.open(epoch)
                delivery.look_for_rows()
            await self._tell_once(delivery)
            await asyncio.sleep(TICK_S)

    async def _tell_once(self, delivery: Delivery) -> None:
        figures, tally = self.figures, self._batcher.tally
        await delivery.watch()
        await self._faults.flush()
        figures.not_finite += tally.not_finite
        figures.unreadable += tally.unreadable
        figures.thinned += self._batcher.thinner.left_out
        tally.not_finite = tally.unreadable = self._batcher.thinner.left_out = 0
        with translated(self.plane.link):
            seconds, micros = await self.plane.redis.time()
        figures.behind, figures.lag_ms = await self._lag.look(seconds * 1000 + micros // 1000)
        figures.at_ms = now_ms()
        await self._store.put_status(figures.fields())

    async def _drain_while_standing_by(self, lead: HistoryLead, stop: asyncio.Event) -> None:
        """What a term of this data folder left is brought to the sink also when another process records; for a moment
        only, since the one that records may share the folder."""
        if not self._spool.is_anything_left:
            return
        with contextlib.suppress(Unavailable):
            try:
                await asyncio.to_thread(self._spool.open_left)
                delivery = Delivery(self._sink, self._spool, self._store, self.figures, self._faults)
                async with asyncio.timeout(TICK_S):
                    while not lead.epoch and not stop.is_set() and await delivery.drain_some():
                        pass
            except TimeoutError:
                pass
            finally:
                await asyncio.to_thread(self._spool.close)
