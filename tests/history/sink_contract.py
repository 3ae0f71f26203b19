"""What every sink promises, as tests. A subclass named Test… gives the fixture `new_sink`; see test_sqlite.py.

`oracle` answers buckets the slow way, sample by sample, straight from the words of the contract.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.soak import repeats
from tradewind.errors import Invalid
from tradewind.history.columns import Columns
from tradewind.history.sample import Row
from tradewind.history.sink import AGGREGATES, GAP_MS, Bucket, Sample, SeriesInfo, Sink

#: Begins a day, in UTC.
DAY0 = 1_790_035_200_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
A, B, MODEL = "comsrv:1001:m:10001", "comsrv:1001:s:7", "modsrv:power_calc:measurement:total_power"

#: `await new_sink(raw_days=30)` or `new_sink(keeping=Kept(…))` gives an open, empty sink; the fixture closes it.
NewSink = Callable[..., Awaitable[Sink]]

_channels = itertools.count(5000)


def new_series() -> str:
    """A series that no other test and no other example uses."""
    return f"comsrv:{next(_channels)}:m:1"


def oracle(
    samples: dict[int, tuple[float, int]], from_ms: int, to_ms: int, bucket_ms: int, aggs: Sequence[str], gap_ms: int
) -> list[Bucket]:
    inside: dict[int, list[tuple[int, float, int]]] = {}
    area: dict[int, list[float]] = {}
    times = sorted(samples)
    for at, ts in enumerate(times):
        value, quality = samples[ts]
        if from_ms <= ts < to_ms:
            inside.setdefault(ts // bucket_ms * bucket_ms, []).append((ts, value, quality))
        until = min(ts + gap_ms, to_ms, times[at + 1] if at + 1 < len(times) else to_ms)
        now = max(ts, from_ms)
        while now < until:
            start = now // bucket_ms * bucket_ms
            end = min(start + bucket_ms, until)
            area.setdefault(start, []).append(value * (end - now) / 1000)
            now = end
    starts = set(inside) | (set(area) if "integral" in aggs else set())
    return [
        (start, *(_one(agg, inside.get(start, []), area.get(start, [])) for agg in aggs)) for start in sorted(starts)
    ]


def _one(agg: str, samples: list[tuple[int, float, int]], area: list[float]) -> Any:
    values = [value for _, value, _ in samples]
    match agg:
        case "integral":
            return math.fsum(area)
        case "count":
            return len(values)
        case "good":
            return sum(quality == 0 for _, _, quality in samples)
        case "sum":
            return math.fsum(values)
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    match agg:
        case "mean":
            return mean
        case "stddev":
            return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0
        case "min" | "max":
            return min(values) if agg == "min" else max(values)
        case _:
            return values[0] if agg == "first" else values[-1]


def assert_buckets(got: list[Bucket], wanted: list[Bucket], aggs: Sequence[str]) -> None:
    assert [row[0] for row in got] == [row[0] for row in wanted]
    for mine, theirs in zip(got, wanted, strict=True):
        for agg, one, other in zip(aggs, mine[1:], theirs[1:], strict=True):
            if agg in ("min", "max", "first", "last", "count", "good") or other is None:
                assert one == other, (agg, mine, theirs)
            else:
                assert one == pytest.approx(other, rel=1e-9, abs=1e-5), (agg, mine, theirs)


def same_samples(got: list[Sample], wanted: dict[int, tuple[float, int]]) -> bool:
    return got == [(ts, *wanted[ts]) for ts in sorted(wanted)]


times = st.integers(0, 5 * HOUR) | st.integers(0, 60).map(lambda n: n * 5 * MINUTE) | st.integers(0, 3000)
values = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, 1.0, -1.0])
batches = st.lists(
    st.lists(st.tuples(times, values, st.sampled_from([0, 0, 0, 1, 2])), min_size=1, max_size=40),
    min_size=1,
    max_size=4,
)
edges = st.integers(-HOUR, 6 * HOUR) | st.integers(0, 6).map(lambda n: n * HOUR) | times
widths = st.sampled_from([7 * SECOND, 90 * SECOND, MINUTE, 15 * MINUTE, HOUR, 2 * HOUR, DAY, 97_003])
gaps = st.sampled_from([GAP_MS, 10 * SECOND, 2 * MINUTE, 20 * MINUTE, 3 * HOUR])
examples = settings(
    max_examples=repeats(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class SinkContract:
    @pytest.fixture
    async def sink(self, new_sink: NewSink) -> Sink:
        return await new_sink()

    async def test_what_was_written_is_read_in_order_of_time(self, sink: Sink) -> None:
        rows = [Row(A, DAY0 + n * SECOND, n * 0.5, n % 3) for n in range(500)]
        rows += [Row(MODEL, DAY0 + n * SECOND, -n / 3, 0) for n in range(500)]
        random.Random(1).shuffle(rows)
        written = await sink.write(rows)
        assert (written.stored, written.refused) == (1000, [])
        got = await sink.read([A, MODEL], DAY0, DAY0 + DAY, 10_000)
        assert got[A] == [(DAY0 + n * SECOND, n * 0.5, n % 3) for n in range(500)]
        assert got[MODEL] == [(DAY0 + n * SECOND, -n / 3, 0) for n in range(500)]

    async def test_a_range_holds_its_begin_and_not_its_end(self, sink: Sink) -> None:
        await sink.write([Row(A, DAY0 + n, float(n), 0) for n in range(10)])
        assert [ts - DAY0 for ts, _, _ in (await sink.read([A], DAY0 + 3, DAY0 + 7, 100))[A]] == [3, 4, 5, 6]
        assert (await sink.read([A], DAY0 + 3, DAY0 + 3, 100))[A] == []
        both = await sink.buckets([A], DAY0 + 3, DAY0 + 7, 5, ["count", "first", "last"], 100)
        assert both[A] == [(DAY0, 2, 3.0, 4.0), (DAY0 + 5, 2, 5.0, 6.0)]

    async def test_writing_again_changes_nothing(self, sink: Sink) -> None:
        rows = [Row(A, DAY0 + n * SECOND, float(n), 0) for n in range(1000)]
        for _ in range(3):
            assert (await sink.write(rows)).stored == 1000
        await sink.write(rows[100:300])
        assert (await sink.buckets([A], DAY0, DAY0 + DAY, DAY, ["count", "sum"], 10))[A] == [(DAY0, 1000, 499_500.0)]
        assert [info.count for info in await sink.series("*", 10, "")] == [1000]

    async def test_the_last_row_of_one_key_stays(self, sink: Sink) -> None:
        await sink.write([Row(A, DAY0, 1.0, 0), Row(A, DAY0 + 1, 5.0, 0), Row(A, DAY0, 2.0, 1)])
        assert (await sink.read([A], DAY0, DAY0 + 9, 9))[A] == [(DAY0, 2.0, 1), (DAY0 + 1, 5.0, 0)]
        await sink.write([Row(A, DAY0, 3.0, 2)])
        assert (await sink.read([A], DAY0, DAY0 + 9, 9))[A] == [(DAY0, 3.0, 2), (DAY0 + 1, 5.0, 0)]
        await sink.write([Row(A, DAY0, 4.0, 0)])  # good again: nothing of the old quality is left
        assert (await sink.read([A], DAY0, DAY0 + 9, 9))[A] == [(DAY0, 4.0, 0), (DAY0 + 1, 5.0, 0)]
        assert (await sink.buckets([A], DAY0, DAY0 + 9, 10, ["sum", "good"], 9))[A] == [(DAY0, 9.0, 2)]

    async def test_rows_in_columns_are_stored_like_any_others(self, sink: Sink) -> None:
        rows = [Row(A, DAY0, 1.0, 0), Row(B, DAY0, 2.0, 2), Row(A, DAY0, 3.0, 1), Row(A, DAY0 + 1, -0.5, 0)]
        written = await sink.write(Columns([*rows, Row(A, -1, 1.0, 0), Row(B, DAY0, math.nan, 0)]))
        assert written.stored == 4 and [reason for _, reason in written.refused] == ["bad_time", "not_finite"]
        found = await sink.read([A, B], DAY0, DAY0 + DAY, 9)
        assert found == {A: [(DAY0, 3.0, 1), (DAY0 + 1, -0.5, 0)], B: [(DAY0, 2.0, 2)]}

    async def test_late_rows_take_their_place(self, sink: Sink) -> None:
        await sink.write([Row(A, DAY0 + n * SECOND, 1.0, 0) for n in range(0, 7200, 2)])
        before = (await sink.buckets([A], DAY0, DAY0 + DAY, HOUR, ["count", "sum"], 10))[A]
        assert before == [(DAY0, 1800, 1800.0), (DAY0 + HOUR, 1800, 1800.0)]
        await sink.write([Row(A, DAY0 + n * SECOND, 3.0, 0) for n in range(1, 3600, 2)])
        await sink.write([Row(A, DAY0 - DAY, 9.0, 0)])
        after = (await sink.buckets([A], DAY0 - DAY, DAY0 + DAY, HOUR, ["count", "sum"], 10))[A]
        assert after == [(DAY0 - DAY, 1, 9.0), (DAY0, 3600, 7200.0), (DAY0 + HOUR, 1800, 1800.0)]
        assert (await sink.latest([A]))[A] == (DAY0 + 7198 * SECOND, 1.0, 0)

    async def test_a_limit_gives_the_first_of_each_series(self, sink: Sink) -> None:
        await sink.write([Row(name, DAY0 + n * SECOND, float(n), 0) for n in range(100) for name in (A, B)])
        got = await sink.read([A, B], DAY0, DAY0 + DAY, 7)
        assert [len(got[A]), len(got[B])] == [7, 7] and got[A][-1][0] == DAY0 + 6 * SECOND
        some = await sink.buckets([A, B], DAY0, DAY0 + DAY, 10 * SECOND, ["count", "integral"], 3)
        assert [row[0] for row in some[B]] == [DAY0, DAY0 + 10 * SECOND, DAY0 + 20 * SECOND]

    async def test_a_series_that_nobody_wrote_is_empty_and_no_error(self, sink: Sink) -> None:
        await sink.write([Row(A, DAY0, 1.0, 0)])
        unknown = "comsrv:9:m:9"
        assert await sink.read([A, unknown], DAY0, DAY0 + 1, 5) == {A: [(DAY0, 1.0, 0)], unknown: []}
        assert await sink.buckets([unknown], DAY0, DAY0 + 1, 5, ["mean"], 5) == {unknown: []}
        assert await sink.latest([unknown, A]) == {unknown: None, A: (DAY0, 1.0, 0)}

    async def test_an_empty_sink_answers(self, sink: Sink) -> None:
        assert (await sink.write([])).stored == 0
        assert await sink.read([A], DAY0, DAY0 + 1, 5) == {A: []}
        assert await sink.series("*", 5, "") == []
        stats = await sink.stats()
        assert (stats.rows, stats.oldest_ms, stats.newest_ms, stats.series) == (0, None, None, 0)

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (Row(A, DAY0, math.nan, 0), "not_finite"),
            (Row(A, DAY0, math.inf, 0), "not_finite"),
            (Row(A, DAY0, -math.inf, 0), "not_finite"),
            (Row(A, DAY0, None, 0), "not_a_number"),  # type: ignore[arg-type]
            (Row(A, DAY0, "5", 0), "not_a_number"),  # type: ignore[arg-type]
            (Row(A, DAY0, True, 0), "not_a_number"),
            (Row(A, DAY0, 10**400, 0), "not_a_number"),
            (Row(A, -1, 1.0, 0), "bad_time"),
            (Row(A, 2**63, 1.0, 0), "bad_time"),
            (Row(A, 1.5, 1.0, 0), "bad_time"),  # type: ignore[arg-type]
            (Row(A, DAY0, 1.0, 3), "bad_quality"),
            (Row(A, DAY0, 1.0, -1), "bad_quality"),
            (Row("comsrv:1001:m:1 OR 1=1", DAY0, 1.0, 0), "bad_series"),
            (Row("a b,c=d", DAY0, 1.0, 0), "bad_series"),
            (Row("", DAY0, 1.0, 0), "bad_series"),
        ],
    )
    async def test_one_bad_row_never_costs_its_neighbours(self, sink: Sink, bad: Row, reason: str) -> None:
        good = [Row(A, DAY0 + (n + 1) * SECOND, float(n), 0) for n in range(999)]
        for at in (0, 500, 999):
            written = await sink.write([*good[:at], bad, *good[at:]])
            assert written.stored == 999
            assert [reason for _, reason in written.refused] == [reason]
            assert written.refused[0].row is bad
        got = (await sink.read([A], 0, DAY0 + DAY, 2000))[A]
        assert same_samples(got, {row.ts_ms: (row.value, 0) for row in good})
        assert [info.address for info in await sink.series("*", 10, "")] == [A]

    async def test_every_finite_number_comes_back_as_it_was(self, sink: Sink) -> None:
        numbers = [0.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**53 + 2, 0.1, 1 / 3, -1e-9, 7]
        await sink.write([Row(A, DAY0 + n, number, 0) for n, number in enumerate(numbers)])
        got = (await sink.read([A], DAY0, DAY0 + 100, 100))[A]
        assert [value for _, value, _ in got] == numbers

    async def test_a_mean_that_is_no_number_is_none(self, sink: Sink) -> None:
        await sink.write([Row(A, DAY0 + n, 1.7e308, 0) for n in range(4)])
        assert (await sink.buckets([A], DAY0, DAY0 + 9, 10, ["max", "sum"], 9))[A] == [(DAY0, 1.7e308, None)]

    @examples
    @given(history=batches, ends=st.tuples(edges, edges), width=widths, gap=gaps, limit=st.sampled_from([2, 9, 10_000]))
    async def test_buckets_are_what_the_samples_give(
        self, sink: Sink, history: Any, ends: tuple[int, int], width: int, gap: int, limit: int
    ) -> None:
        series, known = new_series(), dict[int, tuple[float, int]]()
        for batch in history:
            await sink.write([Row(series, DAY0 + at, value, quality) for at, value, quality in batch])
            known.update({DAY0 + at: (value, quality) for at, value, quality in batch})
        from_ms, to_ms = DAY0 + min(ends), DAY0 + max(ends)
        assert same_samples((await sink.read([series], DAY0, DAY0 + DAY, 10_000))[series], known)
        for aggs in (AGGREGATES, [agg for agg in AGGREGATES if agg != "integral"], ["integral"], ["max", "min"]):
            got = await sink.buckets([series], from_ms, to_ms, width, aggs, limit, gap)
            assert_buckets(got[series], oracle(known, from_ms, to_ms, width, aggs, gap)[:limit], aggs)

    async def test_integral_of_a_step(self, sink: Sink) -> None:
        await sink.write([Row(A, DAY0, 2.0, 0), Row(A, DAY0 + 90 * SECOND, 4.0, 0)])
        # 2 holds for 90 s, 4 for the gap of 60 s; the range ends the last bucket.
        got = await sink.buckets([A], DAY0, DAY0 + 10 * MINUTE, MINUTE, ["integral", "count"], 10, 120 * SECOND)
        assert got[A] == [
            (DAY0, 120.0, 1),
            (DAY0 + MINUTE, 60.0 + 120.0, 1),
            (DAY0 + 2 * MINUTE, 240.0, 0),
            (DAY0 + 3 * MINUTE, 120.0, 0),
        ]
        # The value before the range holds into it, but for no longer than the gap.
        late = await sink.buckets([A], DAY0 + 30 * SECOND, DAY0 + 40 * SECOND, MINUTE, ["integral", "mean"], 9, MINUTE)
        assert late[A] == [(DAY0, 20.0, None)]
        ended = await sink.buckets([A], DAY0 + 30 * SECOND, DAY0 + 40 * SECOND, MINUTE, ["integral"], 9, 20 * SECOND)
        assert ended[A] == []

    async def test_questions_without_sense_are_refused(self, sink: Sink) -> None:
        with pytest.raises(Invalid):
            await sink.read([A], 5, 4, 10)
        with pytest.raises(Invalid):
            await sink.read([A], 4, 5, 0)
        with pytest.raises(Invalid):
            await sink.buckets([A], 0, 5, 0, ["mean"], 10)
        with pytest.raises(Invalid):
            await sink.buckets([A], 0, 5, 5, ["median; DROP"], 10)
        with pytest.raises(Invalid):
            await sink.buckets([A], 0, 5, 5, [], 10)

    async def test_latest_is_newest_by_its_own_time(self, sink: Sink) -> None:
        await sink.write([Row(A, DAY0 + DAY, 3.0, 1), Row(B, DAY0, 1.0, 0)])
        await sink.write([Row(A, DAY0, 8.0, 0)])
        assert await sink.latest([A, B]) == {A: (DAY0 + DAY, 3.0, 1), B: (DAY0, 1.0, 0)}

    async def test_series_are_listed_by_address_pattern_and_page(self, sink: Sink) -> None:
        names = [f"comsrv:1001:m:{n}" for n in range(10, 20)] + [f"comsrv:1002:s:{n}" for n in range(10, 15)] + [MODEL]
        await sink.write([Row(name, DAY0 + at, 1.0, 0) for name in reversed(names) for at in (0, 5)])
        assert [info.address for info in await sink.series("*", 100, "")] == names
        assert [info.address for info in await sink.series("comsrv:*:s:*", 100, "")] == names[10:15]
        assert [info.address for info in await sink.series("*", 4, names[3])] == names[4:8]
        assert await sink.series(MODEL, 5, "") == [SeriesInfo(MODEL, DAY0, DAY0 + 5, 2)]
        assert await sink.series("comsrv:1001:m:1?", 5, "") == []  # only the star is special
        assert await sink.series("comsrv:1001:m:[0-9]1", 5, "") == []

    async def test_statistics_of_the_whole(self, sink: Sink) -> None:
        await sink.write([Row(name, DAY0 + n * HOUR, 1.0, 0) for n in range(100) for name in (A, B, MODEL)])
        stats = await sink.stats()
        assert (stats.rows, stats.series) == (300, 3)
        assert (stats.oldest_ms, stats.newest_ms) == (DAY0, DAY0 + 99 * HOUR)
        assert stats.bytes >= 0 and stats.problems == ()

    async def test_retention_removes_the_old_and_nothing_else(self, new_sink: NewSink) -> None:
        sink = await new_sink(raw_days=10)
        await sink.write([Row(A, DAY0 + n * HOUR, float(n), 0) for n in range(24 * 20)])
        kept: Sequence[Any] = ()
        for _ in range(100):  # a call ends early where it took too long
            await sink.retain(DAY0 + 20 * DAY)
            kept = (await sink.read([A], 0, DAY0 + 30 * DAY, 10_000))[A]
            if kept[0][0] >= DAY0 + 9 * DAY:
                break
        # Whole partitions go, so a little more than the ten days may stay; less never does.
        assert kept[-1][0] == DAY0 + (24 * 20 - 1) * HOUR
        assert DAY0 + 9 * DAY <= kept[0][0] <= DAY0 + 10 * DAY
        assert len(kept) == (kept[-1][0] - kept[0][0]) // HOUR + 1
        stats = await sink.stats()
        assert stats.raw_from_ms is not None and stats.raw_from_ms <= kept[0][0] <= DAY0 + 10 * DAY
        assert stats.oldest_ms is not None and stats.oldest_ms >= stats.raw_from_ms

    async def test_forget_takes_one_series_and_leaves_the_others(self, sink: Sink) -> None:
        await sink.write([Row(name, DAY0 + n * HOUR, 1.0, 0) for n in range(100) for name in (A, B)])
        assert await sink.forget([A, "comsrv:9:m:9"]) == 100
        assert [info.address for info in await sink.series("*", 10, "")] == [B]
        got = await sink.read([A, B], 0, DAY0 + 10 * DAY, 1000)
        assert [len(got[A]), len(got[B])] == [0, 100]
        assert (await sink.buckets([A], 0, DAY0 + 10 * DAY, DAY, ["count"], 100))[A] == []
        assert (await sink.latest([A]))[A] is None
        await sink.write([Row(A, DAY0, 7.0, 0)])
        assert (await sink.read([A], 0, DAY0 + 10 * DAY, 1000))[A] == [(DAY0, 7.0, 0)]

    async def test_writers_and_readers_at_once(self, sink: Sink) -> None:
        async def write(name: str) -> None:
            for start in range(0, 2000, 200):
                await sink.write([Row(name, DAY0 + n * SECOND, float(n), 0) for n in range(start, start + 200)])

        async def look(name: str) -> None:
            seen = 0
            while seen < 2000:
                got = (await sink.read([name], DAY0, DAY0 + DAY, 5000))[name]
                assert [value for _, value, _ in got] == [float(n) for n in range(len(got))]
                assert len(got) >= seen
                seen = len(got)
                await asyncio.sleep(0.005)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for name in (A, B):
                group.create_task(write(name))
                group.create_task(look(name))

    async def test_close_twice_and_open_again(self, sink: Sink) -> None:
        await sink.write([Row(A, DAY0, 1.0, 0)])
        await sink.close()
        await sink.close()
        await sink.open()
        assert (await sink.latest([A]))[A] == (DAY0, 1.0, 0)
