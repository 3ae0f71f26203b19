"""Silences are found, and what retention removed is not called one."""

from __future__ import annotations

from tradewind.history.fill import filled
from tradewind.history.gaps import find_gaps
from tradewind.history.kept import available_from
from tradewind.history.sink import KeptFrom

HOUR, MINUTE = 3_600_000, 60_000


def test_a_silence_of_more_than_three_usual_intervals_is_a_gap() -> None:
    times = [*range(0, 10_000, 1000), *range(14_000, 20_000, 1000)]
    assert find_gaps(times, 0, 20_000) == [[9000, 14_000]]
    assert find_gaps([*range(0, 10_000, 1000), *range(12_000, 20_000, 1000)], 0, 20_000) == []


def test_the_ends_of_the_range_count() -> None:
    assert find_gaps(list(range(10_000, 20_000, 1000)), 0, 30_000) == [[0, 10_000], [19_000, 30_000]]


def test_nothing_at_all_is_one_gap_and_too_few_samples_have_none() -> None:
    assert find_gaps([], 5, 10) == [[5, 10]]
    assert find_gaps([], 5, 5) == []
    assert find_gaps([0, 50_000], 0, 100_000) == []


def test_a_gap_can_be_named() -> None:
    assert find_gaps([0, 50_000], 0, 60_000, gap_ms=20_000) == [[0, 50_000]]


def test_buckets_stand_for_their_width() -> None:
    starts = [0, 10, 20, 80, 90]
    assert find_gaps(starts, 0, 100, held_ms=10) == [[30, 80]]


def test_filled_buckets_line_up() -> None:
    rows = [(60, 1.0, 2), (90, 3.0, 1)]
    assert filled(rows, 30, 120, 30, ("mean", "count"), "null") == [[30, None, 0], [60, 1.0, 2], [90, 3.0, 1]]
    assert filled([(30, 1.0, 2)], 30, 95, 30, ("last", "count"), "previous") == [
        [30, 1.0, 2],
        [60, 1.0, 0],
        [90, 1.0, 0],
    ]
    assert filled(rows, 30, 120, 30, ("mean", "count"), "none") == [[60, 1.0, 2], [90, 3.0, 1]]


def test_samples_are_available_from_where_retention_has_come_to() -> None:
    kept = KeptFrom(raw_ms=100 * HOUR, minute_ms=50 * HOUR, hour_ms=None)
    assert available_from(kept, 120 * HOUR, 130 * HOUR, 0, None) == 120 * HOUR
    assert available_from(kept, 90 * HOUR, 130 * HOUR, 0, None) == 100 * HOUR
    assert available_from(kept, 10 * HOUR, 20 * HOUR, 0, None) == 20 * HOUR  # nothing of it
    assert available_from(KeptFrom(), 0, HOUR, 0, None) == 0


def test_rollups_reach_further_back_but_only_as_whole_cells() -> None:
    kept = KeptFrom(raw_ms=100 * HOUR, minute_ms=50 * HOUR, hour_ms=None)
    assert available_from(kept, 10 * HOUR, 130 * HOUR, HOUR, None) == 10 * HOUR
    assert available_from(kept, 10 * HOUR, 130 * HOUR, MINUTE, None) == 50 * HOUR
    assert available_from(kept, 60 * HOUR, 130 * HOUR, MINUTE, None) == 60 * HOUR
    assert available_from(kept, 60 * HOUR, 130 * HOUR, 1000, None) == 100 * HOUR
    # The half hour before the first whole one needs minutes, which are gone there.
    assert available_from(kept, 10 * HOUR + MINUTE, 130 * HOUR, HOUR, None) == 11 * HOUR
    # And the end of a range that lies among rollups only.
    assert available_from(kept, 10 * HOUR, 20 * HOUR + MINUTE, HOUR, None) == 20 * HOUR + MINUTE
    # An integral whose gap is shorter than an hour needs minutes.
    assert available_from(kept, 10 * HOUR, 130 * HOUR, HOUR, 5 * MINUTE) == 50 * HOUR


def test_an_integral_is_whole_where_nothing_that_is_gone_can_hold_into_it() -> None:
    kept = KeptFrom(raw_ms=100 * HOUR, minute_ms=50 * HOUR, hour_ms=20 * HOUR)
    assert available_from(kept, 10 * HOUR, 130 * HOUR, HOUR, 2 * HOUR) == 22 * HOUR
    assert available_from(kept, 21 * HOUR, 130 * HOUR, HOUR, 2 * HOUR) == 22 * HOUR
    assert available_from(kept, 22 * HOUR, 130 * HOUR, HOUR, 2 * HOUR) == 22 * HOUR
    assert available_from(kept, 10 * HOUR, 21 * HOUR, HOUR, 2 * HOUR) == 21 * HOUR  # nothing of it
    # What held before the samples that are left is still told by rollups.
    assert available_from(kept, 100 * HOUR, 130 * HOUR, 1000, 2 * HOUR) == 100 * HOUR
    # Without an integral nothing is held.
    assert available_from(kept, 10 * HOUR, 130 * HOUR, HOUR, None) == 20 * HOUR
