"""Answers about what was: ranges, the newest, figures, lists. Limits and honesty are here; sinks only answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from tradewind.clock import now_ms
from tradewind.errors import Invalid, Problem
from tradewind.history.fill import filled
from tradewind.history.gaps import find_gaps
from tradewind.history.kept import available_from
from tradewind.history.question import Limits, Question, Words, read_question, refusal, series_problems
from tradewind.history.sample import MAX_TS_MS
from tradewind.history.sink import GAP_MS, SeriesInfo, Sink
from tradewind.history.times import DAY_MS, HOUR_MS, time_ms

#: Units by address; a point that nobody knows has an empty one or none.
Describe = Callable[[Sequence[str]], Awaitable[dict[str, str]]]
STATISTICS = ("count", "min", "max", "mean", "stddev", "sum", "first", "last", "good")


class SeriesAnswer(msgspec.Struct):
    """`samples`: [ts, value, quality] or, in buckets, [start, a number per aggregate…]. `gaps`: [from, to] each.

    `truncated`: there are more; ask again from `next_from`. `complete` false: retention has removed what lies before
    `available_from`, or this kind of question cannot be answered before it any more.
    """

    address: str
    unit: str
    bucket_ms: int | None
    samples: list[Any]
    gaps: list[list[int]]
    truncated: bool = False
    next_from: int | None = None
    complete: bool = True
    available_from: int | None = None


class Latest(msgspec.Struct, frozen=True):
    """The newest sample; None when nothing was ever recorded."""

    address: str
    unit: str
    ts: int | None
    value: float | None
    quality: int | None


class Statistics(msgspec.Struct, frozen=True):
    """Of the samples in [from, to). `integral`: value × seconds, None when there is too much to go through.
    `good_share`: of the samples that are of good quality; None without samples."""

    address: str
    unit: str
    count: int
    min: float | None
    max: float | None
    mean: float | None
    stddev: float | None
    sum: float | None
    first: float | None
    last: float | None
    integral: float | None
    good_share: float | None
    complete: bool = True
    available_from: int | None = None


class HistoryQuery:
    """Every method raises Invalid for questions that are wrong or too big, and SinkAway while the sink is away."""

    def __init__(self, sink: Sink, describe: Describe, limits: Limits, now: Callable[[], int] = now_ms) -> None:
        self.sink = sink
        self.limits = limits
        self._describe = describe
        self._now = now
        self._turn = asyncio.Semaphore(sink.at_once)

    async def expand(self, names: Sequence[str], most: int | None = None) -> list[str]:
        """The series that are meant: those with a `*` stand for all recorded ones that fit."""
        limit = self.limits.max_series if most is None else most
        found: dict[str, None] = {}
        for at, name in enumerate(names):
            if "*" not in name:
                found[name] = None
                continue
            async with self._turn:
                fitting = await self.sink.names(name, limit + 1)
            if not fitting:
                hint = f"nothing recorded fits {name[:128]!r}: see which series there are, by `history series`"
                raise refusal([Problem("no_series", f"series[{at}]", hint)])
            found |= dict.fromkeys(fitting)
            if len(found) > limit:
                hint = f"more than {limit} series fit: name fewer"
                raise refusal([Problem("too_many", f"series[{at}]", hint)])
        return list(found)

    async def ask(self, words: Words) -> tuple[Question, list[SeriesAnswer]]:
        """What a caller wrote, and its answer."""
        series = await self.expand(words.series)
        question = read_question(msgspec.structs.replace(words, series=series), self.limits, self._now())
        return question, await self.range(question)

    async def range(self, question: Question) -> list[SeriesAnswer]:
        q, more = question, question.limit + 1
        found: dict[str, list[Any]]
        counted = q.aggs
        async with self._turn:
            if not q.bucket_ms:
                found = dict(await self.sink.read(q.series, q.from_ms, q.to_ms, more))
            else:
                if "integral" in q.aggs and "count" not in q.aggs:  # to tell buckets with samples from held ones
                    counted = (*q.aggs, "count")
                gap_ms = q.gap_ms or GAP_MS
                found = dict(await self.sink.buckets(q.series, q.from_ms, q.to_ms, q.bucket_ms, counted, more, gap_ms))
            kept = await self.sink.kept_from(q.series)  # after the samples: what went meanwhile is told
        units = await self._describe(q.series)
        held = (q.gap_ms or GAP_MS) if "integral" in q.aggs else None
        begins = {name: available_from(kept[name], q.from_ms, q.to_ms, q.bucket_ms, held) for name in q.series}
        return [self._series(q, name, units.get(name, ""), found[name], counted, begins[name]) for name in q.series]

    def _series(
        self, q: Question, name: str, unit: str, rows: list[Any], counted: Sequence[str], begin: int
    ) -> SeriesAnswer:
        is_cut = len(rows) > q.limit
        next_from = rows[q.limit][0] if is_cut else None
        rows = rows[: q.limit]
        upto = min(q.to_ms if next_from is None else next_from, max(self._now(), q.from_ms))
        at = counted.index("count") + 1 if "integral" in counted else 0
        times = [row[0] for row in rows if not at or row[at]]
        gaps = find_gaps(times, begin, upto, q.gap_ms, q.bucket_ms)
        if q.bucket_ms:
            rows = [row[: len(q.aggs) + 1] for row in rows]
            until = q.to_ms if next_from is None else next_from
            rows = filled(rows, q.from_ms, until, q.bucket_ms, q.aggs, q.fill)
        is_whole = begin <= q.from_ms
        return SeriesAnswer(
            name, unit, q.bucket_ms or None, rows, gaps, is_cut, next_from, is_whole, None if is_whole else begin
        )

    async def latest(self, series: Sequence[str]) -> list[Latest]:
        names = await self._checked(series)
        async with self._turn:
            found = await self.sink.latest(names)
        units = await self._describe(names)
        return [Latest(name, units.get(name, ""), *(found[name] or (None, None, None))) for name in names]

    async def statistics(
        self, series: Sequence[str], from_: str | int | None = None, to: str | int | None = None, gap_ms: int = GAP_MS
    ) -> tuple[int, int, list[Statistics]]:
        """From, to, and the figures of each series; of the last hour when nothing is said."""
        names = await self._checked(series)
        now = self._now()
        to_ms = time_ms("now" if to is None else to, now, "to")
        from_ms = max(to_ms - HOUR_MS, 0) if from_ is None else time_ms(from_, now, "from")
        if from_ms > to_ms:
            raise refusal([Problem("bad_range", "from", "it lies behind `to`: swap them")])
        # One bucket from 1970 on: a width of whole days, so that rollups serve.
        whole = min(-(-max(to_ms, 1) // DAY_MS) * DAY_MS, MAX_TS_MS // HOUR_MS * HOUR_MS)
        async with self._turn:
            figures = await self.sink.buckets(names, from_ms, to_ms, whole, STATISTICS, 1)
            areas: dict[str, float | None] = {}
            try:
                held = await self.sink.buckets(names, from_ms, to_ms, whole, ("integral",), 1, gap_ms)
            except Invalid as error:
                if error.code != "too_much":
                    raise
            else:
                areas = {name: _number(rows[0][1]) if rows else 0.0 for name, rows in held.items()}
            kept = await self.sink.kept_from(names)
        units = await self._describe(names)
        found = []
        for name in names:
            begin = available_from(kept[name], from_ms, to_ms, whole, gap_ms if name in areas else None)
            is_whole = begin <= from_ms
            told: dict[str, Any] = dict.fromkeys(STATISTICS)
            if figures[name]:
                told = dict(zip(STATISTICS, figures[name][0][1:], strict=True))
            count, good = told.pop("count") or 0, told.pop("good") or 0
            told |= {"integral": areas.get(name), "good_share": good / count if count else None}
            told |= {"complete": is_whole, "available_from": None if is_whole else begin}
            found.append(Statistics(name, units.get(name, ""), count, **told))
        return from_ms, to_ms, found

    async def listing(self, pattern: str, limit: int, after: str = "") -> list[tuple[SeriesInfo, str]]:
        """Recorded series in order of address, each with its unit."""
        async with self._turn:
            infos = await self.sink.series(pattern or "*", limit, after)
        units = await self._describe([info.address for info in infos])
        return [(info, units.get(info.address, "")) for info in infos]

    async def _checked(self, series: Sequence[str]) -> list[str]:
        names = await self.expand(series)
        problems = series_problems(names, self.limits.max_series)
        if problems:
            raise refusal(problems)
        return names


def _number(value: int | float | None) -> float | None:
    return None if value is None else float(value)
