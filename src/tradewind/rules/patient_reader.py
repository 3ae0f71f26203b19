"""Reads the feed with an exact alarm clock: a waiting server ends its wait only at its next beat, up to 0.1 s late, so
the wait for the next timer happens here while the read goes on."""

from __future__ import annotations

import asyncio

from tradewind.points.feed import WAIT_MS, FeedBatch, FeedReader
from tradewind.rules.lead import ServerClock

#: How long entries that are there may take to arrive, before it is left to the next round to look for them.
ARRIVE_S = 2.0


class PatientReader:
    def __init__(self, reader: FeedReader, clock: ServerClock) -> None:
        self._reader = reader
        self._clock = clock
        self._reading: asyncio.Task[FeedBatch | None] | None = None

    async def open(self) -> None:
        await self._reader.open()

    async def read(self, wait_ms: int, due_ms: int) -> tuple[FeedBatch | None, int]:
        """The next entries, None when none came in that time; and until when all that was written has been read, if the
        batch does not say that there may be more. `due_ms`: that of the next timer, 0: none. Raises Unavailable."""
        until = self._clock.now_ms()
        if self._reader.plane.link.cluster:  # nobody waits on the servers there
            return await self._reader.read(wait_ms), until
        if self._reading is None:
            self._reading = asyncio.create_task(self._reader.read(WAIT_MS), name="rule feed")
        reading = self._reading
        await asyncio.wait([reading], timeout=wait_ms / 1000)
        if not reading.done() and 0 < due_ms <= self._clock.now_ms():
            # A timer must not overtake a value: what was written before this time must have been read.
            until = await self._clock.look()
            if not reading.done() and await self._reader.has_unread():
                await asyncio.wait([reading], timeout=ARRIVE_S)
                until = until if reading.done() else 0
        if not reading.done():
            return None, until
        self._reading = None
        return reading.result(), until

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._reader.close()
