"""Batches that were read and are not stored yet: a bounded queue between who reads and who stores."""

from __future__ import annotations

import asyncio

from tradewind.history.batcher import Batch

#: Batches that are read ahead while one is stored. They go in one write then, up to about so many rows: a write that
#: is long for its size alone must not look like a sink that is slow.
AHEAD = 8
WRITE_ROWS = 10_000


class InHand:
    """One puts, one takes; None is the end. What neither of them could finish is in `rest`."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Batch | None] = asyncio.Queue(AHEAD)
        self._storing = Batch()
        self._waiting: Batch | None = None

    async def put(self, batch: Batch | None, timeout_s: float) -> bool:
        """False when there was no room in that time; then it is to be put again before any other."""
        self._waiting = batch
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.put(batch)
        except TimeoutError:
            return False
        self._waiting = None
        return True

    async def gathered(self) -> tuple[Batch, bool]:
        """What has been read ahead, as one batch, and whether None, the end, came behind it. Say `stored` then."""
        self._storing = whole = Batch()
        part = await self._queue.get()
        while part is not None:
            whole.join(part)
            if self._queue.empty() or len(whole.rows) >= WRITE_ROWS:
                return whole, False
            part = self._queue.get_nowait()
        return whole, True

    def stored(self) -> None:
        self._storing = Batch()

    def rest(self) -> Batch:
        """All that was put and not said to be stored, in order; for the end, when nobody puts or takes any more."""
        whole = self._storing
        while not self._queue.empty():
            if (part := self._queue.get_nowait()) is not None:
                whole.join(part)
        if self._waiting is not None:
            whole.join(self._waiting)
        return whole
