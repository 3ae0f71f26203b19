"""Requests on their way to InfluxDB, two at a time: while the server works on one, the next is already there.

Which of two the server does first nobody knows. So one that has a key (series, time) of the other waits until that is
answered: of two values for one key the later one stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from tradewind.history.columns import Columns, share_a_key
from tradewind.history.sample import Refused

MOST = 2


class Flight:
    """Leaving it waits for all, also after an error: nothing may be under way any more when the same rows are tried
    again. When the caller is cancelled, so are they."""

    def __init__(self) -> None:
        self._under_way: list[tuple[Columns, asyncio.Task[list[Refused]]]] = []

    async def start(self, rows: Columns, send: Callable[[], Awaitable[list[Refused]]]) -> list[Refused]:
        """Begins when it may; returns what was refused of those that had to end first. Raises what they raise."""
        refused: list[Refused] = []
        while len(self._under_way) >= MOST or any(share_a_key(other, rows) for other, _ in self._under_way):
            refused += await self._next()
        self._under_way.append((rows, asyncio.create_task(_sent(send), name="history request")))
        await asyncio.sleep(0)  # or it would begin only when the caller has made the next one
        return refused

    async def end(self) -> list[Refused]:
        """All are answered; what was refused of them. Raises what they raise."""
        return [one for _ in tuple(self._under_way) for one in await self._next()]

    async def _next(self) -> list[Refused]:
        refused = await self._under_way[0][1]
        del self._under_way[0]
        return refused

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [task for _, task in self._under_way]
        if isinstance(error, asyncio.CancelledError):
            for task in tasks:
                task.cancel()
        try:
            # Not `wait`: that leaves them alone when this is cancelled.
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._under_way.clear()


async def _sent(send: Callable[[], Awaitable[list[Refused]]]) -> list[Refused]:
    return await send()
