"""The pure parts of acquisition: what of a poll is written, and when the next poll is."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tradewind.points.batch import Batch
from tradewind.points.channel_runner import pause_after
from tradewind.points.channel_samples import Samples
from tradewind.points.channel_slots import Slots, phase_of
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality, Reading

M, S = Kind.MEASUREMENT, Kind.SIGNAL
T0 = 1_700_000_000_000


def samples(*points: PointSpec, refresh_s: float = 15) -> Samples:
    return Samples(ChannelSpec("7", points=points), refresh_s)


def reading(raw: float, kind: Kind = M, point: str = "1", **more: Any) -> Reading:
    return Reading(kind, point, raw, **more)


def shown(batches: list[Batch]) -> dict[str, tuple[dict[str, float], dict[str, str]]]:
    return {batch.key: (dict(batch.values), dict(batch.quality)) for batch in batches}


def test_values_are_scaled_and_written_when_they_change() -> None:
    known = samples(PointSpec(M, "1", scale=0.1, offset=1), PointSpec(S, "1", reverse=True))
    first = known.changes([reading(20), reading(0, S)], 0)
    assert shown(first) == {"comsrv:7:m": ({"1": 3.0}, {}), "comsrv:7:s": ({"1": 1.0}, {})}
    assert known.changes([reading(20), reading(0, S)], 1) == []
    assert shown(known.changes([reading(20), reading(1, S)], 2)) == {"comsrv:7:s": ({"1": 0.0}, {})}


def test_small_changes_add_up_to_one_that_is_written() -> None:
    known = samples(PointSpec(M, "1", deadband=1))
    written = [known.changes([reading(raw)], 0) for raw in (10, 10.5, 10.9, 11, 11.5, 10.5, 10)]
    assert [dict(batches[0].values)["1"] if batches else None for batches in written] == [
        10, None, None, 11, None, None, 10,
    ]  # fmt: skip


def test_an_unchanged_value_shows_a_sign_of_life() -> None:
    known = samples(PointSpec(M, "1", deadband=5), PointSpec(M, "2", max_age_s=2))
    both = [reading(1), reading(1, point="2")]
    written = [[sorted(b.values) for b in known.changes(both, now)] for now in (0, 0.9, 1, 1.9, 15, 15.5)]
    assert written == [[["1", "2"]], [], [["2"]], [], [["1", "2"]], []]


def test_bad_and_non_finite_readings_only_change_the_quality() -> None:
    known = samples(PointSpec(M, "1"))
    known.changes([reading(5)], 0)
    assert shown(known.changes([reading(0, quality=Quality.BAD)], 1)) == {"comsrv:7:m": ({}, {"1": "bad"})}
    assert known.changes([reading(math.nan)], 2) == []
    assert shown(known.changes([reading(5)], 3)) == {"comsrv:7:m": ({"1": 5.0}, {})}
    assert shown(known.changes([reading(math.inf)], 4)) == {"comsrv:7:m": ({}, {"1": "bad"})}


def test_uncertain_and_implausible_values_are_written_as_uncertain() -> None:
    known = samples(PointSpec(M, "1", min=0, max=100), PointSpec(M, "2"))
    found = known.changes([reading(101), reading(7, point="2", quality=Quality.UNCERTAIN)], 0)
    assert shown(found) == {"comsrv:7:m": ({"1": 101.0, "2": 7.0}, {"1": "uncertain", "2": "uncertain"})}
    assert known.changes([reading(101), reading(7, point="2", quality=Quality.UNCERTAIN)], 1) == []
    assert shown(known.changes([reading(100), reading(7, point="2")], 2)) == {
        "comsrv:7:m": ({"1": 100.0, "2": 7.0}, {})
    }


def test_a_gone_device_marks_each_point_once_and_all_come_back() -> None:
    known = samples(PointSpec(M, "1"), PointSpec(M, "2"), PointSpec(S, "3"), PointSpec(Kind.ADJUSTMENT, "4"))
    every = [reading(1), reading(2, point="2"), reading(1, S, "3")]
    back: dict[str, Any] = {
        "comsrv:7:a": ({}, {"4": "good"}),
        "comsrv:7:m": ({"1": 1.0, "2": 2.0}, {}),
        "comsrv:7:s": ({"3": 1.0}, {}),
    }
    assert shown(known.changes(every, 0)) == back, "a former process may have left marks"
    assert known.changes(every, 0) == []
    marks: dict[str, Any] = {
        "comsrv:7:m": ({}, {"1": "bad", "2": "bad"}),
        "comsrv:7:s": ({}, {"3": "bad"}),
        "comsrv:7:a": ({}, {"4": "bad"}),
    }
    assert shown(known.all_bad()) == marks
    assert known.all_bad() == []
    known.back()
    assert shown(known.changes(every, 1)) == back
    known.forget()
    assert shown(known.changes(every, 2)) == back


def test_times_of_the_device_are_kept_and_strangers_left_out() -> None:
    known = samples(PointSpec(M, "1"), PointSpec(M, "2"))
    found = known.changes([reading(1, ts_ms=1_700_000_000_000), reading(2, point="2"), reading(3, point="9")], 0)
    assert found[0].ts_ms == {"1": 1_700_000_000_000}
    assert dict(found[0].values) == {"1": 1.0, "2": 2.0}


def test_slots_do_not_drift_and_missed_ones_are_counted() -> None:
    slots = Slots(0.25, 0.1)
    assert slots.next(10.0) == 10.1
    assert slots.next(10.12) == 10.35
    assert slots.next(10.349) == 10.6  # the timer fired early: not the same slot again
    assert slots.missed == 0
    assert slots.next(11.4) == 11.6
    assert slots.missed == 3


@given(st.floats(0.05, 60), st.lists(st.floats(0, 200), min_size=1, max_size=50))
def test_slots_rise_and_every_one_is_used_or_missed(interval: float, times: list[float]) -> None:
    slots = Slots(interval)
    found = [slots.next(now) for now in sorted(times)]
    assert all(later > earlier for earlier, later in pairwise(found))
    assert round((found[-1] - found[0]) / interval) == len(found) - 1 + slots.missed


def test_channels_of_one_interval_are_spread_over_it() -> None:
    phases = [phase_of(str(n), 0.25) for n in range(1001, 1011)]
    assert all(0 <= phase < 0.25 for phase in phases)
    assert max(phases) - min(phases) > 0.1


def test_pauses_double_up_to_a_minute_and_are_spread_by_chance() -> None:
    assert [pause_after(failed, 1) for failed in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [pause_after(failed, 0) for failed in (0, 3, 10_000)] == [0.5, 4, 30]


def told(batches: list[Batch]) -> list[tuple[str, float | str, int]]:
    """Point, value or quality, and time of everything that is written, in order."""
    found: list[tuple[str, float | str, int]] = []
    for batch in batches:
        times = batch.ts_ms if isinstance(batch.ts_ms, dict) else dict.fromkeys(batch.values, batch.ts_ms)
        found += [(point, value, times.get(point, 0)) for point, value in batch.values.items()]
        found += [(point, word, 0) for point, word in batch.quality.items() if point not in batch.values]
    return found


def test_readings_with_their_own_times_are_events_of_their_own() -> None:
    known = samples(PointSpec(M, "1"), PointSpec(M, "2"))
    burst = [reading(value, ts_ms=T0 + value) for value in range(5)]
    assert told(known.changes(burst, 0)) == [("1", value, T0 + value) for value in range(5)]
    assert known.changes([reading(4, ts_ms=T0 + 4)], 1) == [], "the same reading again"
    assert told(known.changes([reading(4, ts_ms=T0 + 5)], 1)) == [("1", 4, T0 + 5)], "also of an unchanged value"


def test_a_burst_is_told_in_the_order_of_its_times() -> None:
    known = samples(PointSpec(M, "1"), PointSpec(M, "2"), PointSpec(S, "3"))
    burst = [
        reading(3, ts_ms=T0 + 30),
        reading(1, ts_ms=T0 + 10),
        reading(2, point="2", ts_ms=T0 + 20),
        reading(5, point="2", ts_ms=T0 + 50),
        reading(1, S, "3", ts_ms=T0 + 40),
    ]
    found = known.changes(burst, 0)
    assert [ts_ms for _, _, ts_ms in told(found)] == [T0 + 10, T0 + 20, T0 + 30, T0 + 40, T0 + 50]
    assert [len(batch.values) for batch in found] == [2, 1, 1, 1], "points of a kind that do not repeat go together"
    for batch in found:
        assert len(batch.values) == len(set(batch.values))


def test_a_bad_reading_between_good_ones_stays_where_it_was() -> None:
    known = samples(PointSpec(M, "1"))
    gone = reading(math.nan, quality=Quality.BAD)
    found = known.changes([reading(1, ts_ms=T0 + 1), gone, reading(2, ts_ms=T0 + 2)], 0)
    assert told(found) == [("1", 1, T0 + 1), ("1", "bad", 0), ("1", 2, T0 + 2)]


def test_a_late_reading_is_told_and_changes_nothing_else() -> None:
    known = samples(PointSpec(M, "1", deadband=1))
    known.changes([reading(5, ts_ms=T0 + 10)], 0)
    assert told(known.changes([reading(3, ts_ms=T0 + 1)], 0)) == [("1", 3, T0 + 1)]
    assert known.changes([reading(math.nan, ts_ms=T0 + 2)], 0) == []
    assert told(known.changes([reading(3.5, ts_ms=T0 + 11)], 0)) == [("1", 3.5, T0 + 11)], "the board shows 5"


def test_readings_without_a_time_are_gathered() -> None:
    known = samples(PointSpec(M, "1"))
    assert told(known.changes([reading(value) for value in range(5)], 0)) == [("1", 4, 0)]


def test_a_deadband_also_thins_readings_with_their_own_times() -> None:
    known = samples(PointSpec(M, "1", deadband=2))
    burst = [reading(value, ts_ms=T0 + value) for value in range(5)]
    assert told(known.changes(burst, 0)) == [("1", value, T0 + value) for value in (0, 2, 4)]


@given(
    st.lists(
        st.tuples(st.sampled_from("123"), st.integers(1, 6), st.integers(0, 3)),
        min_size=1,
        max_size=40,
        unique_by=lambda item: (item[0], item[1]),
    )
)
def test_no_reading_with_a_time_is_lost_and_each_point_keeps_its_order(events: list[tuple[str, int, int]]) -> None:
    known = samples(*(PointSpec(M, point) for point in "123"))
    burst = [reading(value, point=point, ts_ms=T0 + at) for point, at, value in events]
    found = told(known.changes(burst, 0))
    assert sorted(found) == sorted((point, value, T0 + at) for point, at, value in events)
    for point in "123":
        times = [ts_ms for name, _, ts_ms in found if name == point]
        assert times == sorted(times)
