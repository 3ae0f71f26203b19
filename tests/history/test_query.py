"""Questions about what was, with the same answers from both sinks."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.history.query_sinks import (
    DAY,
    DAY0,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    A,
    B,
    C,
    influx_for_module,
    open_sink,
    query_of,
)
from tradewind.errors import Invalid
from tradewind.history.influx import InfluxSink
from tradewind.history.question import Words
from tradewind.history.sample import Row
from tradewind.history.sink import Sink
from tradewind.history.sqlite import SqliteSink
from tradewind.settings import InfluxSettings


@pytest.fixture(scope="module")
def influx() -> Iterator[servers.Server]:
    yield from influx_for_module()


@pytest.fixture(params=["embedded", "influx"])
async def sink(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sink]:
    influx = request.getfixturevalue("influx") if request.param == "influx" else None
    async with open_sink(request.param, tmp_path, influx) as sink:
        await sink.write([Row(A, DAY0 + at * SECOND, float(at % 60)) for at in range(3600)])
        await sink.write([Row(B, DAY0 + at * SECOND, float(at), 1 if at < 30 else 0) for at in range(0, 600, 10)])
        yield sink


def words(*series: str, **more: Any) -> Words:
    return Words(series=series, **{"from_": DAY0, "to": DAY0 + HOUR, **more})


async def test_samples_come_as_they_were_recorded(sink: Sink) -> None:
    question, (a,) = await query_of(sink).ask(words(A, to=DAY0 + 3 * SECOND, bucket="raw"))
    assert (question.bucket_ms, a.bucket_ms, a.unit, a.truncated, a.next_from) == (0, None, "kW", False, None)
    assert [tuple(each) for each in a.samples] == [(DAY0 + at * SECOND, float(at), 0) for at in range(3)]
    assert (a.gaps, a.complete, a.available_from) == ([], True, None)


async def test_of_too_many_samples_the_first_come_and_the_rest_can_be_asked_for(sink: Sink) -> None:
    query = query_of(sink)
    found: list[Any] = []
    start: int | None = DAY0
    while start is not None:
        _, (a,) = await query.ask(words(A, from_=start, bucket="raw", limit=1000))
        found += a.samples
        assert a.truncated is (a.next_from is not None)
        start = a.next_from
    assert [each[0] for each in found] == [DAY0 + at * SECOND for at in range(3600)]


async def test_buckets_have_every_aggregate_that_is_asked_for(sink: Sink) -> None:
    aggs = ["mean,min,max", "first", "last", "count", "sum", "integral", "stddev", "good"]
    _, (a,) = await query_of(sink).ask(words(A, bucket="1m", agg=aggs))
    assert len(a.samples) == 60 and a.bucket_ms == MINUTE
    deviation = math.sqrt(sum((at - 29.5) ** 2 for at in range(60)) / 59)
    assert a.samples[7] == [
        DAY0 + 7 * MINUTE, 29.5, 0.0, 59.0, 0.0, 59.0, 60, 1770.0, 1770.0, pytest.approx(deviation), 60,
    ]  # fmt: skip


async def test_the_width_decides_how_wide_the_buckets_are(sink: Sink) -> None:
    question, (a, b) = await query_of(sink).ask(words(A, B, limit=100))
    assert question.bucket_ms == MINUTE and a.bucket_ms == b.bucket_ms == MINUTE
    assert len(a.samples) == 60 and len(b.samples) == 10
    question, _ = await query_of(sink).ask(words(A, limit=1000))
    assert question.bucket_ms == 5 * SECOND


async def test_several_series_line_up_when_they_are_filled(sink: Sink) -> None:
    for fill in ("null", "previous"):
        _, (a, b, c) = await query_of(sink).ask(words(A, B, C, bucket="1m", fill=fill))
        assert [row[0] for row in a.samples] == [row[0] for row in b.samples] == [row[0] for row in c.samples]
        assert b.samples[9][1] == 565.0
        assert b.samples[30][1] == (None if fill == "null" else 565.0)
        assert c.samples[5][1] is None


async def test_gaps_are_told(sink: Sink) -> None:
    _, (b,) = await query_of(sink).ask(words(B, bucket="raw"))
    assert b.gaps == [[DAY0 + 590 * SECOND, DAY0 + HOUR]]
    _, (b,) = await query_of(sink).ask(words(B, bucket="1m"))
    assert b.gaps == [[DAY0 + 10 * MINUTE, DAY0 + HOUR]]
    _, (b,) = await query_of(sink).ask(words(B, bucket="1m", agg=["integral"]))
    assert b.gaps == [[DAY0 + 10 * MINUTE, DAY0 + HOUR]]  # a value that only holds is no sample
    _, (c,) = await query_of(sink).ask(words(C, bucket="raw"))
    assert c.gaps == [[DAY0, DAY0 + HOUR]] and c.samples == []
    _, (a,) = await query_of(sink).ask(words(A, bucket="raw", gap="500ms", to=DAY0 + 2 * SECOND))
    assert a.gaps == [[DAY0, DAY0 + SECOND], [DAY0 + SECOND, DAY0 + 2 * SECOND]]


async def test_the_future_is_no_gap(sink: Sink) -> None:
    query = query_of(sink, now=DAY0 + HOUR)
    _, (a,) = await query.ask(words(A, to="+1h", bucket="raw"))
    assert a.gaps == []


async def test_the_newest_of_each_series(sink: Sink) -> None:
    a, b, c = await query_of(sink).latest([A, B, C])
    assert (a.ts, a.value, a.quality, a.unit) == (DAY0 + 3599 * SECOND, 59.0, 0, "kW")
    assert (b.ts, b.value) == (DAY0 + 590 * SECOND, 590.0)
    assert (c.ts, c.value, c.quality) == (None, None, None)


async def test_figures_of_a_range(sink: Sink) -> None:
    first, last, (a, b, c) = await query_of(sink).statistics([A, B, C], DAY0, DAY0 + HOUR)
    assert (first, last) == (DAY0, DAY0 + HOUR)
    assert (a.count, a.min, a.max, a.mean, a.first, a.last, a.sum) == (3600, 0.0, 59.0, 29.5, 0.0, 59.0, 106_200.0)
    assert (a.integral, a.good_share) == (106_200.0, 1.0)
    assert a.stddev == pytest.approx(math.sqrt(sum((at - 29.5) ** 2 for at in range(60)) * 60 / 3599))
    assert (b.count, b.good_share) == (60, 0.95)
    assert (c.count, c.mean, c.good_share, c.integral) == (0, None, None, 0.0)
    _, _, (b,) = await query_of(sink).statistics([B], DAY0, DAY0 + HOUR, gap_ms=5 * SECOND)
    assert b.integral == sum(range(0, 600, 10)) * 5.0


async def test_a_star_stands_for_what_is_recorded(sink: Sink) -> None:
    query = query_of(sink)
    assert await query.expand(["comsrv:1001:m:*"]) == [A, B]
    assert await query.expand([B, "comsrv:*"]) == [B, A]
    with pytest.raises(Invalid, match="nothing recorded fits"):
        await query.expand(["comsrv:9:*"])
    with pytest.raises(Invalid, match="more than 1 series"):
        await query_of(sink, max_series=1).expand(["comsrv:*"])
    listed = await query.listing("*", 10)
    assert [(info.address, info.count, unit) for info, unit in listed] == [(A, 3600, "kW"), (B, 60, "")]
    assert [info.address for info, _ in await query.listing("*", 10, A)] == [B]


@pytest.mark.parametrize(
    ("asked", "places"),
    [
        (Words(), {"series"}),
        (Words(series=["nonsense", A]), {"series[0]"}),
        (words(A, from_="x", to="y", bucket="z", gap="w", agg=["median"], fill="zero"),
         {"from", "to", "bucket", "gap", "agg", "fill"}),
        (words(A, from_=DAY0 + HOUR, to=DAY0), {"from"}),
        (words(A, limit=0), {"limit"}),
        (words(A, limit=1001), {"limit"}),
        (words(A, bucket="1s"), {"bucket"}),
        (words(A, bucket="raw", agg=["mean"]), {"agg"}),
        (words(A, bucket="raw", fill="null"), {"fill"}),
        (words(A, bucket="10s", fill="null", limit=100), {"bucket"}),
        (words(A, from_=DAY0 - 40 * DAY, bucket="5413s"), {"bucket"}),
        (words(A, from_=DAY0 - 40 * DAY, bucket="2h", agg=["integral"], gap="10s"), {"bucket"}),
    ],
)  # fmt: skip
async def test_questions_that_are_wrong_or_too_big_are_refused(asked: Words, places: set[str], tmp_path: Path) -> None:
    async with SqliteSink(tmp_path) as sink:
        with pytest.raises(Invalid) as caught:
            await query_of(sink, max_points=1000).ask(asked)
    assert {problem.path for problem in caught.value.problems} == places
    assert all(problem.hint for problem in caught.value.problems)


async def test_too_many_buckets_are_refused_with_a_width_that_fits(tmp_path: Path) -> None:
    async with SqliteSink(tmp_path) as sink:
        query = query_of(sink, max_points=1000)
        with pytest.raises(Invalid, match="use bucket=10s or auto") as caught:
            await query.ask(words(A, B, bucket="1s"))
        assert caught.value.problems[0].code == "too_many_points"
        question, _ = await query.ask(words(A, B, bucket="10s"))
        assert question.limit == 500


async def test_an_answer_says_what_retention_has_removed(tmp_path: Path) -> None:
    """Across the boundary: samples end there, minutes and hours go on."""
    async with SqliteSink(tmp_path, (1, 0, 0), now=lambda: NOW) as sink:
        for day in range(4):
            await sink.write([Row(A, DAY0 - day * DAY + at * MINUTE, 1.0) for at in range(1440)])
        await sink.keep_up()
        while (await sink.retain(NOW)).names:
            pass
        query = query_of(sink)
        asked = {"from_": DAY0 - 3 * DAY, "to": DAY0 + DAY}
        _, (raw,) = await query.ask(words(A, bucket="raw", **asked))
        assert raw.complete is False and raw.available_from is not None
        assert DAY0 - 3 * DAY < raw.available_from <= DAY0 + DAY
        assert all(each[0] >= raw.available_from for each in raw.samples)
        assert raw.gaps == [] or raw.gaps[0][0] >= raw.available_from  # what was removed is no gap
        _, (hours,) = await query.ask(words(A, bucket="1h", agg=["count"], **asked))
        assert hours.complete and sum(row[1] for row in hours.samples) == 4 * 1440
        _, (seconds,) = await query.ask(words(A, bucket="90s", agg=["count"], **asked))
        assert not seconds.complete and seconds.available_from == raw.available_from
        _, (uneven,) = await query.ask(words(A, bucket="1h", agg=["count"], from_=DAY0 - 3 * DAY + 500, to=DAY0))
        assert not uneven.complete and uneven.available_from == DAY0 - 3 * DAY + MINUTE
        _, _, (figures,) = await query.statistics([A], DAY0 - 3 * DAY, DAY0 + DAY)
        assert figures.count == 4 * 1440 and figures.complete


async def test_influx_is_honest_about_its_retention_too(influx: servers.Server) -> None:
    async with InfluxSink(InfluxSettings(url=influx.url, database="retention_told"), raw_days=1) as sink:
        await sink.write([Row(A, DAY0 + at * HOUR, 1.0) for at in range(48)])
        while (await sink.retain(NOW)).rows:
            pass
        query = query_of(sink)
        _, (raw,) = await query.ask(words(A, to=NOW, bucket="raw"))
        assert (raw.complete, raw.available_from) == (False, DAY0 + DAY)
        assert raw.samples[0][0] == DAY0 + DAY
        stats = await sink.stats()
        assert tuple((await sink.kept_from([A]))[A]) == (stats.raw_from_ms, stats.minute_from_ms, stats.hour_from_ms)
        _, (later,) = await query.ask(words(A, from_=DAY0 + DAY, to=NOW, bucket="1h"))
        assert later.complete
