"""Reads the feed with an exact alarm clock: a waiting server ends its wait only at its next beat, up to 0.1 s late, so
the wait for the next timer happens here while the read goes on."""

from __future__ import annotations

import asyncio

from tradewind.points.feed import WAIT_MS, FeedBatch, FeedReader
from tradewind.rules.lead import ServerClock

#: How long what was sent before a timer was due may still be on its way; and when it is likely that there is more.
GRACE_S = 0.001
MORE_S = 0.05


class PatientReader:
    """`count`: entries of a full batch, as the reader has it."""

    def __init__(self, reader: FeedReader, clock: ServerClock, count: int) -> None:
        self._reader = reader
        self._clock = clock
        self._count = count
        self._has_more = False
        self._reading: asyncio.Task[FeedBatch | None] | None = None

    async def open(self) -> None:
        await self._reader.open()

    async def read(self, wait_ms: int, due_ms: int) -> tuple[FeedBatch | None, int]:
        """The next entries, None when none came in that time; and until when all that was written has been read, if the
        batch is not full. `due_ms`: that of the next timer, 0: none. Raises Unavailable."""
        until = self._clock.now_ms()
        if self._reader.plane.link.cluster:  # nobody waits on the servers there
            return await self._reader.read(wait_ms), until
        if self._reading is None:
            self._reading = asyncio.create_task(self._reader.read(WAIT_MS), name="rule feed")
        reading = self._reading
        await asyncio.wait([reading], timeout=wait_ms / 1000)
        if not reading.done() and 0 < due_ms <= self._clock.now_ms():
            # The server answers in order: what was written before it told this time arrives with the answer.
            until = await self._clock.look()
            await asyncio.wait([reading], timeout=MORE_S if self._has_more else GRACE_S)
            self._has_more = False
        if not reading.done():
            return None, until
        self._reading = None
        batch = reading.result()
        self._has_more = batch is not None and len(batch.entries) >= self._count
        return batch, until

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._reader.close()
