"""The sink in InfluxDB. Samples go in as lines, questions as InfluxQL.

A rewritten sample replaces the old one, so a batch whose fate is not known is simply written again. `integral` is not
InfluxQL's (which draws straight lines between samples) but the contract's step, computed here from raw samples.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import structlog

from tradewind.clock import now_ms
from tradewind.history import influx_query as ql
from tradewind.history.influx_answer import Table
from tradewind.history.influx_flight import Flight
from tradewind.history.influx_http import Barred, InfluxHttp
from tradewind.history.influx_keep import InfluxKeeper
from tradewind.history.influx_line import LineMaker, Lines, address_of
from tradewind.history.influx_list import InfluxListing
from tradewind.history.influx_read import InfluxReader
from tradewind.history.influx_split import split
from tradewind.history.keeping import Keeping, KeepingSource, always
from tradewind.history.sample import Refused, Row
from tradewind.history.sink import (
    GAP_MS,
    Bucket,
    KeptFrom,
    Retained,
    Sample,
    SeriesInfo,
    Sink,
    SinkAway,
    SinkStats,
    Written,
)
from tradewind.settings import InfluxSettings

log = structlog.get_logger(__name__)
#: Lines in one request.
MAX_LINES = 5000
#: After so long without a write another process may have written: which series are marked is asked again.
IDLE_S = 10.0
#: That question takes long with very many series, and no write may wait for it: so long, and then not again soon.
MARKS_S = 3.0
MARKS_PAUSE_S = 600.0


class InfluxSink(Sink):
    """`keeping`: how long samples are kept; without it, `raw_days`. 0 = as long as the server's own policy does."""

    def __init__(
        self,
        settings: InfluxSettings,
        raw_days: int = 0,
        *,
        keeping: KeepingSource | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._http = InfluxHttp(settings, timeout_s)
        self._reader = InfluxReader(self._http)
        self._listing = InfluxListing(self._http)
        self._keeper = InfluxKeeper(self._http, self._listing, keeping or always(Keeping((raw_days, 0, 0))))
        self._maker = LineMaker()
        self._writing = asyncio.Lock()
        self._wrote_at = -IDLE_S
        self._marks_not_before = 0.0

    async def open(self) -> None:
        self._http.open()

    async def close(self) -> None:
        await self._keeper.close()
        async with self._writing:
            await self._http.close()

    async def write(self, rows: Sequence[Row]) -> Written:
        refused: list[Refused] = []
        async with self._writing:
            if rows and time.monotonic() - self._wrote_at > IDLE_S:
                await self._read_marks()
            async with Flight() as flight:
                for at in range(0, len(rows), MAX_LINES):
                    # Here and not in a thread: it takes a few milliseconds, and handing it over costs more than that.
                    made = self._maker.make(rows[at : at + MAX_LINES])
                    refused += made.refused
                    if made.rows:
                        refused += await flight.start(made.rows, partial(self._put, made))
                refused += await flight.end()
            if rows:
                self._wrote_at = time.monotonic()
        return Written(len(rows) - len(refused), refused)

    async def _put(self, made: Lines) -> list[Refused]:
        rejection = await self._http.write(self._http.packed(made.text))
        if rejection is None:
            return []
        rows, http = made.rows, self._http
        refused = await split(
            rows, made.lines, rejection, lambda some: http.write(http.packed("\n".join(some).encode()))
        )
        if refused:
            log.warning("InfluxDB refused samples", count=len(refused), of=len(rows), message=rejection.message[:300])
        return refused

    async def _read_marks(self) -> None:
        """Find out which series have samples that are not good; see LineMaker."""
        marked: set[str] = set()

        def add(number: int, table: Table) -> None:
            address = address_of(table.name, table.tags)
            if address is not None:
                marked.add(address)

        if time.monotonic() < self._marks_not_before:
            return
        question = ";".join(ql.per_series(choice, "last", "quality") for choice in ql.EVERYTHING)
        self._maker.marked = None  # then all get theirs
        try:
            await self._http.ask(question, add, timeout_s=MARKS_S)
        except Barred:  # it may be let write only
            return
        except SinkAway as error:
            if error.code != "sink_timeout":
                raise
            self._marks_not_before = time.monotonic() + MARKS_PAUSE_S
            log.warning("InfluxDB takes too long to list its series; each sample gets its quality", error=error.message)
            return
        self._maker.marked = marked

    async def read(self, series: Sequence[str], from_ms: int, to_ms: int, limit: int) -> dict[str, list[Sample]]:
        return await self._reader.read(series, from_ms, to_ms, limit)

    async def buckets(
        self,
        series: Sequence[str],
        from_ms: int,
        to_ms: int,
        bucket_ms: int,
        aggs: Sequence[str],
        limit: int,
        gap_ms: int = GAP_MS,
    ) -> dict[str, list[Bucket]]:
        return await self._reader.buckets(series, from_ms, to_ms, bucket_ms, aggs, limit, gap_ms)

    async def latest(self, series: Sequence[str]) -> dict[str, Sample | None]:
        return await self._reader.latest(series)

    async def series(self, pattern: str = "*", limit: int = 1000, after: str = "") -> list[SeriesInfo]:
        return await self._listing.page(pattern, limit, after)

    async def names(self, pattern: str, limit: int) -> list[str]:
        return await self._listing.names(pattern, limit)

    async def stats(self) -> SinkStats:
        return await self._keeper.stats(now_ms())

    async def kept_from(self, series: Sequence[str]) -> dict[str, KeptFrom]:
        marks = await self._keeper.kept_from(series, now_ms())
        return {name: KeptFrom(*[raw_ms] * 3) for name, raw_ms in marks.items()}

    async def retain(self, now_ms: int) -> Retained:
        return await self._keeper.retain(now_ms)

    async def forget(self, series: Sequence[str]) -> int:
        return await self._keeper.forget(series)
