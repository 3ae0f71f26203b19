"""Times, spans and buckets as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid
from tradewind.history.times import NICE_MS, bucket_count, nice_bucket, span_ms, span_text, time_ms

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("now", NOW),
        ("-1h", NOW - 3_600_000),
        ("24h", NOW - 86_400_000),
        ("now-90s", NOW - 90_000),
        ("now - 7d", NOW - 7 * 86_400_000),
        ("+5m", NOW + 300_000),
        ("1790000000123", 1_790_000_000_123),
        (1_790_000_000_123, 1_790_000_000_123),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-01T01:00:01 01:00", 1000),
        ("1970-01-01 00:00:01", 1000),
        (" 5m", NOW + 300_000),
        ("0", 0),
    ],
)
def test_a_time_is_read_in_every_way_it_is_written(written: str | int, meant: int) -> None:
    assert time_ms(written, NOW) == meant


@pytest.mark.parametrize(
    "written", ["", "yesterday", "-1y", "1y", "now1h", "-1", "1.5", "9" * 30, "-99999999999999w", True, None]
)
def test_what_is_no_time_is_refused_with_its_place(written: object) -> None:
    with pytest.raises(Invalid) as caught:
        time_ms(written, NOW, "to")
    assert [(p.code, p.path) for p in caught.value.problems] == [("bad_time", "to")]


def test_seconds_are_not_taken_for_milliseconds() -> None:
    for written in ("1790000000", "999999999"):
        with pytest.raises(Invalid) as caught:
            time_ms(written, NOW)
        assert "seconds" in caught.value.hint
    assert time_ms(1_790_000_000, NOW) == 1_790_000_000  # a program knows what it says


def test_spans() -> None:
    assert [span_ms(text) for text in ("500ms", "10s", "1m", "2h", "1d", "1w", "250")] == [
        500, 10_000, 60_000, 7_200_000, 86_400_000, 604_800_000, 250,
    ]  # fmt: skip
    for bad in ("", "0", "0m", "-1m", "1y", "m", "1.5h", "9" * 16 + "d"):
        with pytest.raises(Invalid):
            span_ms(bad)


@given(st.integers(1, 10**14))
def test_a_span_as_text_says_it_exactly(ms: int) -> None:
    if ms <= 9_223_372_036_854:
        assert span_ms(span_text(ms)) == ms


@given(st.integers(1, 10**13), st.integers(3, 5000), st.integers(0, 10**12))
def test_an_automatic_bucket_never_gives_more_points_than_asked(width: int, most: int, start: int) -> None:
    bucket = nice_bucket(width, most)
    assert bucket_count(start, start + width, bucket) <= most
    assert bucket in NICE_MS or bucket % 86_400_000 == 0


def test_automatic_buckets_of_long_ranges_are_whole_minutes_for_rollups() -> None:
    assert nice_bucket(86_400_000, 1000) == 120_000
    assert nice_bucket(30 * 86_400_000, 1000) == 3_600_000
    assert nice_bucket(600_000, 1000) == 1000
