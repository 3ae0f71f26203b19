"""History as a long table, block by block: what CSV and Parquet files are made of. Never holds more than a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from tradewind.history.kept import available_from
from tradewind.history.question import Question
from tradewind.history.sink import GAP_MS, Sample, Sink

#: Rows of a block, about.
BLOCK = 20_000
#: Series whose marks of retention are asked for at once.
MARKS = 500
#: Series that are asked for at once; those with more samples than their share are read on alone.
TOGETHER = 20
LAYOUTS = ("long", "wide")
Rows = list[Sequence[Any]]
#: Which series (0 when they lie side by side), up to which time, and what was found.
Blocks = AsyncIterator[tuple[int, int, Rows]]


def columns_of(question: Question, layout: str) -> list[str]:
    """Long: a row for each sample of each series. Wide: a row for each time, a column for each series."""
    if layout == "wide":
        if len(question.aggs) < 2:
            return ["ts", *question.series]
        return ["ts", *(f"{name} {agg}" for name in question.series for agg in question.aggs)]
    return ["ts", "address", *(question.aggs or ("value", "quality"))]


class Export:
    """What a question asks for, once. `rows` were given so far; `share`, from 0 to 1, of the series and the time is
    behind them."""

    def __init__(self, sink: Sink, question: Question, layout: str) -> None:
        self.rows = 0
        self.share = 0.0
        self._sink = sink
        self._question = question
        self._layout = layout

    async def lacks(self) -> dict[str, int]:
        """The series of which retention has removed a part of the range, with the time from which on each is whole.
        Raises SinkAway."""
        q, found = self._question, dict[str, int]()
        held = (q.gap_ms or GAP_MS) if "integral" in q.aggs else None
        for at in range(0, len(q.series), MARKS):
            for name, kept in (await self._sink.kept_from(q.series[at : at + MARKS])).items():
                begin = available_from(kept, q.from_ms, q.to_ms, q.bucket_ms, held)
                if begin > q.from_ms:
                    found[name] = begin
        return found

    async def blocks(self) -> AsyncIterator[Rows]:
        """Long: series by series, each in order of time; wide: in order of time. May be empty, where nothing was found
        but a part of the way is done. Raises SinkAway, also in the middle."""
        sink, q, is_wide = self._sink, self._question, self._layout == "wide"
        if q.bucket_ms:
            blocks = _wide_buckets(sink, q) if is_wide else _long_buckets(sink, q)
        else:
            blocks = _wide_samples(sink, q) if is_wide else _long_samples(sink, q)
        parts, width_ms = 1 if is_wide else max(len(q.series), 1), max(q.to_ms - q.from_ms, 1)
        async for part, until, rows in blocks:
            self.rows += len(rows)
            self.share = (part + (until - q.from_ms) / width_ms) / parts
            yield rows
        self.share = 1.0


async def _long_samples(sink: Sink, q: Question) -> Blocks:
    share = BLOCK // TOGETHER
    for at in range(0, len(q.series), TOGETHER):
        names = q.series[at : at + TOGETHER]
        first = BLOCK if len(names) == 1 else share
        found = await sink.read(names, q.from_ms, q.to_ms, first)
        for part, name in enumerate(names, at):
            samples, limit = found[name], first
            while True:
                is_last = len(samples) < limit
                until = q.to_ms if is_last else samples[-1][0] + 1
                yield part, until, [(ts, name, value, quality) for ts, value, quality in samples]
                if is_last:
                    break
                limit = BLOCK
                samples = (await sink.read([name], samples[-1][0] + 1, q.to_ms, limit))[name]


async def _wide_samples(sink: Sink, q: Question) -> Blocks:
    limit = max(BLOCK // len(q.series), 100)
    at = q.from_ms
    while at < q.to_ms:
        found = await sink.read(q.series, at, q.to_ms, limit)
        # Of a series that was cut nothing is known behind its last sample yet: only what lies before it is whole.
        until = min([samples[-1][0] + 1 for samples in found.values() if len(samples) == limit], default=q.to_ms)
        yield 0, until, _side_by_side(found, q.series, until)
        at = until


def _side_by_side(found: dict[str, list[Sample]], series: Sequence[str], until: int) -> Rows:
    rows: dict[int, list[Any]] = {}
    for column, name in enumerate(series, 1):
        for ts, value, _ in found[name]:
            if ts >= until:
                break
            row = rows.get(ts)
            if row is None:
                row = rows[ts] = [ts, *[None] * len(series)]
            row[column] = value
    return [rows[ts] for ts in sorted(rows)]


async def _windows(
    sink: Sink, q: Question, series: Sequence[str], count: int
) -> AsyncIterator[tuple[int, dict[str, list[Any]]]]:
    """The buckets of a range, so many of each series at a time, each with its end."""
    at = q.from_ms
    while at < q.to_ms:
        until = min((at // q.bucket_ms + count) * q.bucket_ms, q.to_ms)
        yield until, dict(await sink.buckets(series, at, until, q.bucket_ms, q.aggs, count, q.gap_ms or GAP_MS))
        at = until


async def _long_buckets(sink: Sink, q: Question) -> Blocks:
    for part, name in enumerate(q.series):
        async for until, found in _windows(sink, q, [name], BLOCK):
            yield part, until, [(start, name, *values) for start, *values in found[name]]


async def _wide_buckets(sink: Sink, q: Question) -> Blocks:
    async for until, found in _windows(sink, q, q.series, max(BLOCK // len(q.series), 100)):
        rows: dict[int, list[Any]] = {}
        width = len(q.aggs)
        for at, name in enumerate(q.series):
            for start, *values in found[name]:
                row = rows.setdefault(start, [start, *[None] * (width * len(q.series))])
                row[1 + at * width : 1 + (at + 1) * width] = values
        yield 0, until, [rows[start] for start in sorted(rows)]
