"""Retention by class in InfluxDB: series of a class that keeps less than the longest lose their samples by DELETE.

The series that lost something have a mark each, under the same tags, which is there before the samples go.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from tradewind.history import influx_query as ql
from tradewind.history.influx_answer import Table
from tradewind.history.influx_http import InfluxHttp
from tradewind.history.influx_line import TAGS, address_of, head_of, place_of
from tradewind.history.influx_list import InfluxListing
from tradewind.history.keeping import Keeping
from tradewind.history.sample import MAX_TS_MS
from tradewind.history.sink import SinkAway

HOUR_MS = 3_600_000
#: A call ends after so long; the rest is for the next one.
BUDGET_S = 2.0
#: Series looked at together. 2.x deletes one series at a time, and is not to be kept busy for long.
TOGETHER, TOGETHER_V2 = 1000, 50


class ClassKeeper:
    def __init__(self, http: InfluxHttp, listing: InfluxListing) -> None:
        self._http = http
        self._listing = listing
        self._looked: tuple[Keeping, dict[str, int]] | None = None
        self._looked_ms = 0
        self._left: list[tuple[list[str], int]] = []

    async def retain(self, keeping: Keeping, now_ms: int) -> int:
        """The number of samples removed. All series are looked at when the policy or a day has changed, and once an
        hour for what came late. Raises SinkAway."""
        ends = keeping.shorter("raw", now_ms)
        is_due = not self._looked_ms <= now_ms < self._looked_ms + HOUR_MS
        if (keeping, ends) != self._looked or (is_due and not self._left):
            self._left = await self._parts(keeping, ends)
            self._looked, self._looked_ms = (keeping, ends), now_ms
        rows, begun = 0, time.monotonic()
        while self._left and time.monotonic() - begun < BUDGET_S:
            rows += await self._trim(*self._left[-1], now_ms)
            self._left.pop()
        return rows

    async def marks(self, series: Iterable[str]) -> dict[str, int]:
        """Of those that have one: what lies before was removed."""
        found: dict[str, int] = {}

        def add(number: int, table: Table) -> None:
            name = address_of(table.name.removeprefix(f"{ql.RETENTION}_"), table.tags)
            if name is not None:
                found[name] = table.values[0][1]

        chosen = ql.choices(series)
        if chosen:
            await self._http.ask(";".join(map(ql.marks, chosen)), add)
        return found

    async def forget(self, series: Sequence[str]) -> None:
        await self._delete(series, None, of_marks=True)

    async def _parts(self, keeping: Keeping, ends: dict[str, int]) -> list[tuple[list[str], int]]:
        by_class: dict[str, list[str]] = {name: [] for name in ends}
        for name in await self._listing.names("*") if ends else ():
            if (found := keeping.class_of(name)) in by_class:
                by_class[found].append(name)
        size = TOGETHER_V2 if self._http.is_v2 else TOGETHER
        return [(some, ends[name]) for name, series in by_class.items() for some in _cut(series, size)]

    async def _trim(self, series: Sequence[str], end_ms: int, now_ms: int) -> int:
        counts: dict[str, int] = {}

        def add(number: int, table: Table) -> None:
            name = address_of(table.name, table.tags)
            if name is not None and table.values[0][1]:
                counts[name] = table.values[0][1]

        questions = [ql.per_series(choice, "count", to_ms=end_ms) for choice in ql.choices(series)]
        await self._http.ask(";".join(questions), add)
        concerned = [name for name in series if name in counts]
        if concerned:
            await self._mark(concerned, end_ms, now_ms)
            await self._delete(concerned, end_ms)
        return sum(counts[name] for name in concerned)

    async def _mark(self, series: Sequence[str], end_ms: int, now_ms: int) -> None:
        """A mark never moves back, as it would for a series of which another class has removed more."""
        known = await self.marks(series)
        lines = []
        for name in series:
            measurement, values = place_of(name)
            head = head_of(ql.Choice(measurement).marks, dict(zip(TAGS[measurement], values, strict=True)))
            head = head.removesuffix("value=")
            lines.append(f"{head}raw_from_ms={max(end_ms, known.get(name, 0))}i {now_ms}")
        rejection = await self._http.write(self._http.packed("\n".join(lines).encode()))
        if rejection is not None:
            raise SinkAway(f"InfluxDB does not take the marks of retention: {rejection.message}")
        await self._delete(series, now_ms, of_marks=True)  # the former ones

    async def _delete(self, series: Sequence[str], end_ms: int | None, *, of_marks: bool = False) -> None:
        if self._http.is_v2:
            for name in series:
                place = place_of(name)
                measurement = ql.Choice(place.measurement).marks if of_marks else place.measurement
                await self._http.delete_v2(ql.predicate(place, measurement), end_ms or MAX_TS_MS)
        elif chosen := ql.choices(series):
            questions = [ql.delete(choice, end_ms, of=choice.marks if of_marks else "") for choice in chosen]
            await self._http.ask(";".join(questions), lambda number, table: None)


def _cut(series: list[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(series), size):
        yield series[at : at + size]
