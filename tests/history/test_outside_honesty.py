"""What retention has left is told truly: where an answer says that it is whole it equals plain arithmetic over all that
was ever written, and from `available_from` on it is whole."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.history.test_outside_query import HOUR, MIDNIGHT, Samples, brute, compare
from tests.soak import repeats
from tradewind.history.keeping import Keeping, always
from tradewind.history.policy import read_policy
from tradewind.history.query import HistoryQuery
from tradewind.history.question import Limits, Words
from tradewind.history.sample import Row
from tradewind.history.sink import AGGREGATES
from tradewind.history.sqlite import SqliteSink

NAME = "comsrv:1001:m:1"
BRIEF = {"raw_days": 1, "minute_days": 2, "hour_days": 4}
KEEPING = Keeping(
    (0, 0, 0), read_policy({"policies": [{"match": NAME, "class": "brief"}], "classes": {"brief": BRIEF}})
)
DAYS = 6 * 24 * HOUR
#: Now: in the middle of a day, so that ends of days are not ends of ages.
NOW = MIDNIGHT + 2 * 24 * HOUR + 11 * HOUR + 1234
#: Before this even the rollups of hours are gone.
HOURS_FROM = MIDNIGHT - 2 * 24 * HOUR

at = st.one_of(
    st.integers(NOW - DAYS, NOW - 1),
    st.integers(-4 * 48, 4 * 24).map(lambda n: MIDNIGHT + n * HOUR // 2),
)
sample = st.tuples(at.filter(lambda ts: ts < NOW), st.integers(-1000, 1000).map(float), st.sampled_from((0, 0, 1)))
question = st.tuples(
    at, at, st.sampled_from((0, 1000, 60_000, 90_000, 600_000, HOUR, 90 * 60_000, 6 * HOUR, 24 * HOUR, 48 * HOUR)),
    st.sampled_from((30_000, 60_000, HOUR, 2 * HOUR)), st.booleans(),
)  # fmt: skip


async def units(series: Sequence[str]) -> dict[str, str]:
    return {}


@settings(max_examples=repeats(5), deadline=None, suppress_health_check=list(HealthCheck))
@given(written=st.lists(sample, min_size=1, max_size=80), asked=st.lists(question, min_size=1, max_size=8))
@example(  # a value that is gone altogether, and held
    [(HOURS_FROM - 600_000, 5.0, 0), (HOURS_FROM + HOUR, 7.0, 0)],
    [(HOURS_FROM, HOURS_FROM + 4 * HOUR, bucket, HOUR, True) for bucket in (HOUR, 6 * HOUR)],
)
def test_an_answer_that_calls_itself_whole_is_whole(
    written: list[tuple[int, float, int]], asked: list[tuple[int, int, int, int, bool]]
) -> None:
    async def run(folder: Path) -> None:
        known: Samples = {ts: (value, quality) for ts, value, quality in written}
        async with SqliteSink(folder, keeping=always(KEEPING), now=lambda: NOW) as sink:
            await sink.write([Row(NAME, *each) for each in written])
            await sink.keep_up()
            for _ in range(3):
                await sink.retain(NOW)
            query = HistoryQuery(sink, units, Limits(10**7), now=lambda: NOW)
            for one, other, bucket, gap, is_area in asked:
                from_ms, to_ms = min(one, other), max(one, other)
                if bucket == 1000:
                    from_ms = max(from_ms, to_ms - 24 * HOUR)
                aggs = AGGREGATES if is_area else tuple(agg for agg in AGGREGATES if agg != "integral")
                for _ in range(2):
                    words = Words((NAME,), from_ms, to_ms, bucket or "raw", aggs if bucket else (), None, gap)
                    _, (answer,) = await query.ask(words)
                    if answer.complete:
                        break
                    assert answer.available_from is not None and from_ms < answer.available_from <= to_ms
                    from_ms = answer.available_from
                assert answer.complete
                # An integral is whole from where no value from before what is kept can hold into it any more.
                if not bucket:
                    kept = sorted((ts, *known[ts]) for ts in known if from_ms <= ts < to_ms)
                    assert [tuple(row) for row in answer.samples] == kept
                elif not is_area:
                    expected = brute(known, from_ms, to_ms, bucket, gap, is_held=False)
                    compare(answer.samples, expected, aggs, 10**7)
                else:
                    expected = brute(known, from_ms, to_ms, bucket, gap, is_held=True)
                    compare(answer.samples, expected, aggs, 10**7)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
