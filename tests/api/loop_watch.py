"""Measures how much the process computed between two turns of its event loop: so long nobody else was served.

Time on the processor, not on the wall: what others on the machine do must not count against the code under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

STEP_S = 0.001


class Watch:
    """`held_s`: the most that was computed between two turns."""

    def __init__(self) -> None:
        self.held_s = 0.0

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        self.held_s = 0.0
        beating = asyncio.create_task(self._beat(), name="loop watch")
        await asyncio.sleep(2 * STEP_S)
        try:
            yield
            await asyncio.sleep(2 * STEP_S)
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        seen = time.process_time()
        while True:
            await asyncio.sleep(STEP_S)
            now = time.process_time()
            self.held_s = max(self.held_s, now - seen)
            seen = now
