"""Listening to a driver that pushes, in tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from tradewind.points.driver import Driver
from tradewind.points.spec import Reading


class Heard:
    """What came so far; `until` waits for what should come."""

    def __init__(self) -> None:
        self.all: list[Reading] = []
        self.listener: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def deliver(self, readings: Sequence[Reading]) -> None:
        self.all += readings
        self._news.set()

    def last(self, point: str) -> Reading | None:
        return next((reading for reading in reversed(self.all) if reading.id == point), None)

    async def until(self, is_true: Callable[[], bool], timeout_s: float = 10) -> None:
        async with asyncio.timeout(timeout_s):
            while not is_true():
                assert self.listener is None or not self.listener.done(), f"ended: {self.listener.exception()}"
                self._news.clear()
                await self._news.wait()

    async def value(self, point: str, raw: float) -> Reading:
        """The reading that brings this value."""
        await self.until(lambda: (found := self.last(point)) is not None and found.raw == raw)
        found = self.last(point)
        assert found is not None
        return found


@contextlib.asynccontextmanager
async def listening(driver: Driver) -> AsyncIterator[Heard]:
    """Connected and listening; closed at the end."""
    heard = Heard()
    await driver.connect()
    heard.listener = asyncio.create_task(driver.listen(heard.deliver))
    try:
        yield heard
    finally:
        heard.listener.cancel()
        await asyncio.gather(heard.listener, return_exceptions=True)
        await driver.close()
