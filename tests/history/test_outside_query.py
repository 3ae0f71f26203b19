"""Random writings and questions against an arithmetic that shares nothing with the product's: plain lists and loops.

Samples lie around the end of a month (so around files of days, months and rollups), come late, twice and in any order;
the sink moves, rolls up and is opened again in between.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import servers
from tests.soak import repeats
from tradewind.history.influx import InfluxSink
from tradewind.history.query import HistoryQuery
from tradewind.history.question import Limits, Words
from tradewind.history.sample import Row
from tradewind.history.sink import AGGREGATES, Sink
from tradewind.history.sqlite import SqliteSink
from tradewind.history.times import time_ms
from tradewind.settings import InfluxSettings

MIDNIGHT = round(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 1000
HOUR = 3_600_000
#: Hours on both sides of the end of February.
SPAN = 5 * HOUR
BUCKETS = (1, 7, 977, 1000, 60_000, 90_000, 120_000, HOUR, HOUR * 3 // 2, 2 * HOUR, 24 * HOUR, 48 * HOUR, 168 * HOUR)
GAPS = (1, 1500, 59_999, 60_000, 61_000, HOUR - 1, HOUR, 3 * HOUR)
Samples = dict[int, tuple[float, int]]

# Few different times, so that some are written again, and some that are dense.
times = st.one_of(
    st.integers(-SPAN, SPAN),
    st.integers(-300, 300).map(lambda at: at * 1000),
    st.integers(-10, 10).map(lambda at: at * HOUR // 2),
).map(lambda at: MIDNIGHT + at)
values = st.one_of(st.integers(-1000, 1000).map(float), st.floats(-1e6, 1e6))
samples = st.tuples(times, values, st.sampled_from((0, 0, 0, 1, 2)))
batch = st.lists(samples, min_size=1, max_size=60)
steps = st.lists(
    st.one_of(
        batch,
        st.sampled_from(("keep_up", "open_again", "retain")),
    ),
    min_size=1,
    max_size=8,
)
questions = st.lists(
    st.tuples(times, times, st.sampled_from(BUCKETS), st.integers(1, 50), st.sampled_from(GAPS)),
    min_size=1,
    max_size=6,
)


def brute(
    known: Samples, from_ms: int, to_ms: int, bucket_ms: int, gap_ms: int, *, is_held: bool
) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}

    def bucket(at: int) -> dict[str, Any]:
        start = at // bucket_ms * bucket_ms
        empty = dict.fromkeys(AGGREGATES) | {"start": start, "count": 0, "sum": 0.0, "good": 0, "integral": 0.0}
        return found.setdefault(start, empty | {"all": []})

    order = sorted(known)
    for at in order:
        if from_ms <= at < to_ms:
            bucket(at)["all"].append((at, *known[at]))
    if is_held:
        for at, following in itertools.zip_longest(order, order[1:]):
            until = min(at + gap_ms, to_ms, to_ms if following is None else following)
            begin = max(at, from_ms)
            while begin < until:
                end = min(begin // bucket_ms * bucket_ms + bucket_ms, until)
                bucket(begin)["integral"] += known[at][0] * (end - begin) / 1000
                begin = end
    for each in found.values():
        numbers = [value for _, value, _ in each["all"]]
        if numbers:
            mean = math.fsum(numbers) / len(numbers)
            spread = math.fsum((value - mean) ** 2 for value in numbers)
            each |= {"mean": mean, "min": min(numbers), "max": max(numbers), "count": len(numbers)}
            each |= {"first": numbers[0], "last": numbers[-1], "sum": math.fsum(numbers)}
            each |= {"stddev": math.sqrt(spread / (len(numbers) - 1)) if len(numbers) > 1 else 0.0}
            each["good"] = sum(quality == 0 for _, _, quality in each["all"])
    return [found[start] for start in sorted(found)]


def compare(answer: Sequence[Sequence[Any]], expected: list[dict[str, Any]], aggs: Sequence[str], limit: int) -> None:
    assert [row[0] for row in answer] == [each["start"] for each in expected[:limit]]
    for row, each in zip(answer, expected, strict=False):
        scale = max((abs(value) for _, value, _ in each["all"]), default=1.0) + 1
        for agg, value in zip(aggs, row[1:], strict=True):
            if each[agg] is None or agg in ("count", "good", "first", "last", "min", "max"):
                assert value == each[agg], (agg, row)
            else:
                loose = 1e-9 * scale * max(each["count"], 1) + (1e-3 if agg == "stddev" else 1e-6)
                assert value == pytest.approx(each[agg], rel=1e-9, abs=loose), (agg, row)


async def ask(sink: Sink, name: str, known: Samples, asked: list[tuple[int, int, int, int, int]]) -> None:
    everything = sorted((at, *known[at]) for at in known)
    assert (await sink.read([name], 0, MIDNIGHT * 2, 10**6))[name] == everything
    assert (await sink.latest([name]))[name] == (everything[-1] if everything else None)
    plain = tuple(agg for agg in AGGREGATES if agg != "integral")
    for one, other, bucket_ms, limit, gap_ms in asked:
        from_ms, to_ms = min(one, other), max(one, other)
        if bucket_ms < 1000 and to_ms - from_ms > 60_000:
            to_ms = from_ms + 60_000
        expected = brute(known, from_ms, to_ms, bucket_ms, gap_ms, is_held=False)
        found = await sink.buckets([name], from_ms, to_ms, bucket_ms, plain, limit, gap_ms)
        compare(found[name], expected, plain, limit)
        expected = brute(known, from_ms, to_ms, bucket_ms, gap_ms, is_held=True)
        found = await sink.buckets([name], from_ms, to_ms, bucket_ms, AGGREGATES, limit, gap_ms)
        compare(found[name], expected, AGGREGATES, limit)


@settings(max_examples=repeats(5), deadline=None, suppress_health_check=list(HealthCheck))
@given(first=batch, steps=steps, asked=questions)
def test_files_answer_like_plain_arithmetic(
    first: list[tuple[int, float, int]], steps: list[Any], asked: list[tuple[int, int, int, int, int]]
) -> None:
    async def run(folder: Path) -> None:
        name, other, known = "comsrv:1001:m:1", "comsrv:1001:m:2", Samples()
        # The clock stands a day later: all hours are over, and the days are packed.
        sink = SqliteSink(folder, tail_rows=40, now=lambda: MIDNIGHT + 30 * HOUR)
        await sink.open()
        # The first is the newest: what follows is late, mostly for hours that have their rollups.
        for step in [first, [(MIDNIGHT + SPAN, 1.0, 0)], "keep_up", *steps]:
            if step == "keep_up":
                await sink.keep_up()
            elif step == "retain":
                await sink.retain(MIDNIGHT + 54 * HOUR)
            elif step == "open_again":
                await sink.close()
                await sink.open()
            else:
                rows = [Row(name, *each) for each in step] + [Row(other, step[0][0], 5.0)]
                assert (await sink.write(rows)).refused == []
                known |= {at: (value, quality) for at, value, quality in step}
            await ask(sink, name, known, asked[:1])
        await ask(sink, name, known, asked)
        assert (await sink.series(name))[0].count == len(known) if known else True
        await sink.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


@pytest.fixture(scope="module")
def influx() -> Iterator[servers.Server]:
    with servers.influx_server() as server:
        yield server


def test_influxdb_answers_like_plain_arithmetic(influx: servers.Server) -> None:
    numbers = itertools.count(1)

    @settings(max_examples=repeats(6), deadline=None, suppress_health_check=list(HealthCheck))
    @given(batches=st.lists(batch, max_size=3), asked=questions)
    def check(batches: list[Any], asked: list[tuple[int, int, int, int, int]]) -> None:
        async def run() -> None:
            name, known = f"comsrv:{next(numbers)}:m:1", Samples()
            async with InfluxSink(InfluxSettings(url=influx.url)) as sink:
                for batch in batches:
                    assert (await sink.write([Row(name, *each) for each in batch])).refused == []
                    known |= {at: (value, quality) for at, value, quality in batch}
                await ask(sink, name, known, asked)

        asyncio.run(run())

    check()


@settings(max_examples=repeats(30), deadline=None)
@given(at=st.integers(-SPAN, SPAN), minutes=st.integers(-14 * 60, 14 * 60))
def test_a_time_with_a_zone_is_that_moment(at: int, minutes: int) -> None:
    moment = datetime.fromtimestamp((MIDNIGHT + at) // 1000, timezone(timedelta(minutes=minutes)))
    assert time_ms(moment.isoformat(), 0) == (MIDNIGHT + at) // 1000 * 1000
    assert time_ms(moment.isoformat().replace("+", " "), 0) == (MIDNIGHT + at) // 1000 * 1000  # as URLs lose it


@settings(max_examples=repeats(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(batch=batch, limit=st.integers(1, 7), bucket=st.sampled_from((0, *BUCKETS)))
def test_pages_put_together_are_the_whole(batch: list[tuple[int, float, int]], limit: int, bucket: int) -> None:
    """`truncated` and `next_from` lead through everything, once."""

    async def units(series: Sequence[str]) -> dict[str, str]:
        return {}

    async def run(folder: Path) -> None:
        name, known = "comsrv:1001:m:1", {at: (value, quality) for at, value, quality in batch}
        async with SqliteSink(folder) as sink:
            await sink.write([Row(name, *each) for each in batch])
            query = HistoryQuery(sink, units, Limits(), now=lambda: MIDNIGHT + SPAN)
            at, end, found = MIDNIGHT - SPAN, MIDNIGHT + SPAN, list[Any]()
            while True:
                words = Words((name,), at, end, bucket or "raw", ("count",) if bucket else (), limit)
                _, (answer,) = await query.ask(words)
                found += answer.samples
                assert len(answer.samples) <= limit and answer.truncated == (answer.next_from is not None)
                if answer.next_from is None:
                    break
                assert answer.next_from > at
                at = answer.next_from
        if not bucket:
            assert [tuple(row) for row in found] == sorted((ts, *known[ts]) for ts in known if ts < end)
        else:
            expected = brute(known, MIDNIGHT - SPAN, end, bucket, HOUR, is_held=False)
            assert [tuple(row) for row in found] == [(each["start"], each["count"]) for each in expected]

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
