"""A connection pool whose callers wait for a free connection when all are in use.

redis-py's own BlockingConnectionPool takes a condition for every command, also when connections are free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from redis.asyncio.connection import ConnectionPool
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import MaxConnectionsError

#: Connections that stay borrowed between two uses: redis-py's way through its pool costs as much as a quick script.
AT_HAND = 4


class WaitingPool(ConnectionPool):
    """Raises MaxConnectionsError only after `timeout` seconds without a free connection."""

    def __init__(self, *, timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._timeout_s = timeout
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._at_hand: list[Any] = []

    async def borrow(self) -> Any:
        """Like get_connection, but first one of the few at hand, if it is fit for use; ends with `give_back`."""
        while self._at_hand:
            connection = self._at_hand.pop()
            if connection.is_quiet():
                return connection
            await self.release(connection)
        return await self.get_connection()

    async def give_back(self, connection: Any) -> None:
        """For a connection that has nothing unread."""
        if len(self._at_hand) < AT_HAND and not self._waiters:
            self._at_hand.append(connection)
        else:
            await self.release(connection)

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Any:
        if self._at_hand and not self.can_get_connection():
            await self.release(self._at_hand.pop())
        if self.can_get_connection():
            try:
                return await super().get_connection()  # type: ignore[no-untyped-call]
            except MaxConnectionsError:
                pass  # somebody was faster
        try:
            async with asyncio.timeout(self._timeout_s) as waiting:
                while True:
                    await self._wait_for_release()
                    try:
                        connection = self.get_available_connection()  # type: ignore[no-untyped-call]
                        break
                    except MaxConnectionsError:
                        continue
        except TimeoutError:
            if waiting.expired():
                raise MaxConnectionsError(f"no free connection within {self._timeout_s:g} s") from None
            raise
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def ensure_connection(self, connection: Any) -> None:
        if not connection.is_quiet():
            await super().ensure_connection(connection)

    async def release(self, connection: Any) -> None:
        try:
            await super().release(connection)
        finally:
            self._wake_one()

    async def _wait_for_release(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            if not self.can_get_connection():
                await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake_one()  # this turn was ours, and we do not take it
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class WaitingMasterPool(SentinelConnectionPool, WaitingPool):
    """The same for the master that Sentinel names."""
