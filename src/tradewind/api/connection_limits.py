"""Bounds that all HTTP connections of a server share: their number, the memory of unread answers, figures of both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Protocol

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tradewind.errors import Overloaded
from tradewind.settings import ApiSettings

log = structlog.get_logger(__name__)
#: Lists end a page with so many bytes of items, however many were asked for; so much is set aside while one is made.
PAGE_BYTES = 4_000_000
#: How long a list waits for memory before it is refused, and how often it looks.
WAIT_S = 10.0
LOOK_S = 0.1
#: When memory is short, an answer goes whose client has taken nothing of it for so long.
STALLED_S = 0.5
#: At most one line in the log says what was refused or dropped in this time.
TELL_S = 10.0

REFUSED = (
    "malformed", "head_too_large", "too_many_headers", "url_too_long", "bad_chunks", "head_timeout", "body_timeout",
    "too_many_connections",
)  # fmt: skip
DROPPED = ("send_timeout", "unread_answers", "idle_replaced", "body_not_wanted")


class Reader(Protocol):
    """A connection whose client reads an answer."""

    @property
    def moved_at(self) -> float:
        """When its client last took something, in seconds of the loop."""
        ...

    def drop(self, reason: str) -> None: ...


class ConnectionLimits(Collector):
    def __init__(self, settings: ApiSettings) -> None:
        self.settings = settings
        self.refused: Counter[str] = Counter(dict.fromkeys(REFUSED, 0))
        self.dropped: Counter[str] = Counter(dict.fromkeys(DROPPED, 0))
        self.connections = 0
        self._unread: dict[Reader, bytes] = {}
        self._making = 0
        self._freed = asyncio.Event()
        self._told: Counter[str] = Counter()
        self._told_at = 0.0

    @property
    def unread_bytes(self) -> int:
        """Of long answers that wait for their clients; what many of them share counts once."""
        return sum(map(len, {id(body): body for body in self._unread.values()}.values()))

    @contextmanager
    def holding(self, reader: Reader, body: bytes) -> Iterator[None]:
        """While a long answer is sent, one at a time for each. When there are too many, those that stand still go."""
        self._unread[reader] = body
        most = self.settings.max_unread_bytes
        if self.unread_bytes > most:
            self._drop(most, STALLED_S)
        if self.unread_bytes > 2 * most:
            self._drop(2 * most, 0.0)
        try:
            yield
        finally:
            del self._unread[reader]
            self._freed.set()

    def _drop(self, most: int, stalled_s: float) -> None:
        """Until at most so many bytes are left, those first that have stood still for longest."""
        now, left = asyncio.get_running_loop().time(), self.unread_bytes
        for reader in sorted(self._unread, key=lambda reader: reader.moved_at):
            if left <= most or now - reader.moved_at < stalled_s:
                return
            left -= len(self._unread[reader])
            reader.drop("unread_answers")

    @asynccontextmanager
    async def making(self) -> AsyncIterator[None]:
        """While a long answer is made: waits for memory that others hold. Raises Overloaded."""
        if self._is_short:
            await self._wait()
        self._making += 1
        try:
            yield
        finally:
            self._making -= 1
            self._freed.set()

    @property
    def _is_short(self) -> bool:
        return self.unread_bytes + self._making * PAGE_BYTES > self.settings.max_unread_bytes

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while self._is_short:
                    self._drop(max(0, self.settings.max_unread_bytes - (self._making + 1) * PAGE_BYTES), STALLED_S)
                    self._freed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await self._freed.wait()
        except TimeoutError as error:
            raise Overloaded(
                "answers that their clients do not read fill the memory for lists",
                code="too_many_unread",
                hint="try again, or ask for fewer items at once",
                retry_after_s=1,
            ) from error

    def check(self, connections: Iterable[Checked]) -> None:
        """Called about once a second."""
        now = asyncio.get_running_loop().time()
        every = list(connections)
        self.connections = len(every)
        for connection in every:
            connection.check(now)
        self._tell(now)

    def _tell(self, now: float) -> None:
        total = self.refused + self.dropped
        if total != self._told and now - self._told_at >= TELL_S:
            log.warning("http_clients_refused", **(total - self._told))
            self._told, self._told_at = total, now

    def collect(self) -> Iterator[Metric]:
        refused = CounterMetricFamily("tradewind_http_refused", "Requests refused before a route.", labels=["reason"])
        for reason, count in self.refused.items():
            refused.add_metric([reason], count)
        dropped = CounterMetricFamily("tradewind_http_dropped", "Connections that were cut.", labels=["reason"])
        for reason, count in self.dropped.items():
            dropped.add_metric([reason], count)
        yield refused
        yield dropped
        yield GaugeMetricFamily("tradewind_http_connections", "Open connections.", value=self.connections)
        yield GaugeMetricFamily(
            "tradewind_http_unread_bytes", "Long answers that wait for their clients.", value=self.unread_bytes
        )


class Checked(Protocol):
    def check(self, now: float) -> None:
        """Ends what has taken too long; `now` in seconds of the loop."""
        ...
