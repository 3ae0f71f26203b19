from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.clock import from_iso, iso
from tradewind.errors import Invalid
from tradewind.flows.slots import (
    Due,
    first_slot,
    grace_ms,
    latest_slot,
    missed_between,
    next_slot,
    parse_cron,
    parse_duration,
    parse_interval,
    take_due,
)
from tradewind.flows.spec import ScheduleSpec

T = from_iso("2026-11-16T00:00:00Z")
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


INTERVALS: list[tuple[Any, int]] = [(0, 0), (0.0, 0), ("0", 0), ("once", 0), (60, MINUTE), (0.25, 250)]
INTERVALS += [("500ms", 500), ("30s", 30_000), ("5m", 5 * MINUTE), ("1.5h", 90 * MINUTE), (" 1d ", DAY)]


@pytest.mark.parametrize(("given_as", "interval_ms"), INTERVALS)
def test_intervals(given_as: Any, interval_ms: int) -> None:
    assert parse_interval(given_as) == ScheduleSpec(interval_ms=interval_ms)


def test_five_words_are_a_cron() -> None:
    assert parse_interval(" */5  8-17 * * 1-5 ") == ScheduleSpec(cron="*/5 8-17 * * 1-5")


BAD: list[Any] = [
    None,
    True,
    False,
    -1,
    0.01,
    float("nan"),
    float("inf"),
    10**400,
    "",
    "60",
    "5 m",
    "5w",
    "-5s",
    "1e3s",
]
BAD += [
    "٣s",
    "٣",
    "* * * *",
    "61 * * * *",
    "0 0 30 2 *",
    "* * * * * *",
    "² * * * *",
    "@daily",
    [60],
    {"s": 1},
    "9" * 999,
]


@pytest.mark.parametrize("value", BAD, ids=lambda v: repr(v)[:20])
def test_anything_else_is_no_interval(value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        parse_interval(value)
    assert caught.value.code in ("bad_interval", "bad_cron")
    assert caught.value.hint
    assert len(caught.value.message) < 100 and repr(value)[1:50] in caught.value.message


def test_a_number_in_quotes_is_explained() -> None:
    with pytest.raises(Invalid) as caught:
        parse_interval("60")
    assert '"60s"' in caught.value.hint


def test_durations() -> None:
    assert [parse_duration(v) for v in (0, 0.0, 1.5, "500ms", "1d")] == [0, 0, 1500, 500, DAY]
    wrong: list[Any] = [None, True, "", "once", -1, [], 10**400]
    for value in wrong:
        with pytest.raises(Invalid):
            parse_duration(value)


def test_a_cron_that_never_comes_is_refused() -> None:
    with pytest.raises(Invalid):
        parse_cron("0 0 31 4,6 *")
    assert parse_cron("0 0 29 2 *") == "0 0 29 2 *"


def test_slots_of_an_interval_count_from_the_start() -> None:
    every = ScheduleSpec(interval_ms=1000)
    assert first_slot(every, T + 7) == T + 7
    assert next_slot(every, T + 7, T + 7) == T + 1007
    assert next_slot(every, T + 5500, T + 7) == T + 6007
    assert latest_slot(every, T + 6006, T + 7) == T + 5007
    assert latest_slot(every, T + 6, T + 7) is None


def test_an_anchor_aligns_slots_and_a_later_one_delays_them() -> None:
    hourly = ScheduleSpec(interval_ms=HOUR, anchor_ms=T)
    assert first_slot(hourly, T + 1) == T + HOUR
    assert first_slot(hourly, T) == T
    assert first_slot(hourly, T - 3 * DAY) == T
    assert latest_slot(hourly, T - 1, T - 3 * DAY) is None


def test_once_has_one_slot() -> None:
    once = ScheduleSpec()
    assert first_slot(once, T) == T
    assert next_slot(once, T, T) is None
    assert latest_slot(once, T + DAY, T) == T
    later = ScheduleSpec(anchor_ms=T + HOUR)
    assert first_slot(later, T) == T + HOUR
    assert next_slot(later, T + HOUR, T) is None
    assert first_slot(later, T + DAY) == T + DAY


def test_manual_has_no_slot() -> None:
    manual = ScheduleSpec(manual=True)
    assert first_slot(manual, T) is next_slot(manual, T, T) is latest_slot(manual, T, T) is None


def test_cron_slots() -> None:
    office = ScheduleSpec(cron="30 8 * * 1-5")
    friday = from_iso("2026-11-20T08:30:00Z")
    assert first_slot(office, friday) == friday
    assert iso(next_slot(office, friday, T) or 0) == "2026-11-23T08:30:00.000Z"
    assert latest_slot(office, friday, T) == friday
    assert latest_slot(office, friday - 1, T) == friday - DAY
    assert latest_slot(office, friday, friday + 1) is None
    assert missed_between(office, T, friday, T) == [T + 8 * HOUR + 30 * MINUTE + k * DAY for k in range(5)]


def test_missed_slots_come_oldest_first_and_bounded() -> None:
    every = ScheduleSpec(interval_ms=1000)
    assert missed_between(every, T, T + 3000, T) == [T + 1000, T + 2000, T + 3000]
    assert missed_between(every, T, T + DAY, T, limit=2) == [T + 1000, T + 2000]
    assert missed_between(every, T, T + 999, T) == []


@pytest.mark.parametrize(
    ("misfire", "now", "due"),
    [
        ("latest", T - 1, Due((), 0, T)),
        ("latest", T + 5, Due((T,), 0, T + MINUTE)),
        ("latest", T + 10 * MINUTE + 59_000, Due((T + 10 * MINUTE,), 10, T + 11 * MINUTE)),
        ("skip", T + 2_000, Due((T,), 0, T + MINUTE)),
        ("skip", T + 2_001, Due((), 1, T + MINUTE)),
        ("skip", T + 3 * MINUTE + 30_000, Due((), 4, T + 4 * MINUTE)),
        ("skip", T + 3 * MINUTE + 1_000, Due((T + 3 * MINUTE,), 3, T + 4 * MINUTE)),
        ("all", T + 2 * MINUTE, Due((T, T + MINUTE, T + 2 * MINUTE), 0, T + 3 * MINUTE)),
    ],
)
@pytest.mark.parametrize("kind", ["interval", "cron"])
def test_misfire_policies(kind: str, misfire: str, now: int, due: Due) -> None:
    when: dict[str, Any] = {"interval_ms": MINUTE} if kind == "interval" else {"cron": "* * * * *"}
    schedule = ScheduleSpec(misfire=misfire, grace_s=2, **when)
    assert take_due(schedule, T, now, T) == due


def test_making_up_for_all_goes_in_bounded_steps() -> None:
    schedule = ScheduleSpec(interval_ms=1000, misfire="all")
    due = take_due(schedule, T, T + 10_000, T, limit=3)
    assert due == Due((T, T + 1000, T + 2000), 0, T + 3000)


def test_a_late_one_shot_still_runs() -> None:
    assert take_due(ScheduleSpec(), T, T + DAY, T) == Due((T,), 0, None)


@pytest.mark.parametrize(
    ("schedule", "grace"),
    [
        (ScheduleSpec(interval_ms=100), 1000),
        (ScheduleSpec(interval_ms=5000), 5000),
        (ScheduleSpec(interval_ms=DAY), MINUTE),
        (ScheduleSpec(cron="* * * * *"), MINUTE),
        (ScheduleSpec(interval_ms=DAY, grace_s=0.5), 500),
    ],
)
def test_grace(schedule: ScheduleSpec, grace: int) -> None:
    assert grace_ms(schedule) == grace


CRONS = ["* * * * *", "*/7 * * * *", "0 */6 * * *", "30 8 * * 1-5", "0 0 L * *", "15 3 1,15 * *", "59 23 * * 0"]
timed = st.one_of(
    st.builds(ScheduleSpec, interval_ms=st.integers(100, DAY)),
    st.builds(ScheduleSpec, interval_ms=st.integers(100, DAY), anchor_ms=st.integers(T - DAY, T + DAY)),
    st.builds(ScheduleSpec, cron=st.sampled_from(CRONS)),
    st.builds(ScheduleSpec, cron=st.sampled_from(CRONS), anchor_ms=st.integers(T - DAY, T + DAY)),
)
starts = st.integers(T - DAY, T + DAY)
waits = st.lists(st.integers(0, DAY), min_size=1, max_size=30)


@given(timed, starts, starts)
def test_next_and_latest_agree(schedule: ScheduleSpec, start: int, now: int) -> None:
    latest, following = latest_slot(schedule, now, start), next_slot(schedule, now, start)
    assert following is not None and following > now
    assert latest_slot(schedule, following, start) == following
    assert latest_slot(schedule, following - 1, start) == latest
    if latest is not None:
        assert latest <= now
        assert next_slot(schedule, latest, start) == following
        assert next_slot(schedule, latest - 1, start) == latest


@settings(max_examples=50)
@given(timed, starts, waits)
def test_no_slot_is_missed_or_doubled_however_late_the_looks(
    schedule: ScheduleSpec, start: int, waits: list[int]
) -> None:
    """A scheduler that looks at random moments and makes up for all sees each slot once."""
    schedule = ScheduleSpec(
        interval_ms=schedule.interval_ms, cron=schedule.cron, anchor_ms=schedule.anchor_ms, misfire="all"
    )
    due = first_slot(schedule, start)
    assert due is not None
    seen: list[int] = []
    now = start
    for wait in waits:
        now += wait
        while True:
            step = take_due(schedule, due, now, start, limit=7)
            seen += step.run
            assert step.next_ms is not None
            due = step.next_ms
            if due > now or len(seen) > 300:
                break
        if len(seen) > 300:
            now = seen[-1]
            break
    assert seen == missed_between(schedule, start - 1, now, start, limit=10_000)
    assert len(set(seen)) == len(seen)


@given(timed, starts, waits, st.sampled_from(["latest", "skip"]))
def test_what_is_run_and_what_is_skipped_are_all_slots(
    schedule: ScheduleSpec, start: int, waits: list[int], misfire: str
) -> None:
    schedule = ScheduleSpec(
        interval_ms=schedule.interval_ms or DAY, anchor_ms=schedule.anchor_ms, misfire=misfire
    )  # of a cron, skipped ones are counted only up to a limit
    first = due = first_slot(schedule, start)
    assert first is not None and due is not None
    run: list[int] = []
    skipped = 0
    now = start
    for wait in waits:
        now += wait
        step = take_due(schedule, due, now, start)
        run += step.run
        skipped += step.skipped
        assert step.next_ms is not None and step.next_ms > now
        due = step.next_ms
    assert len(set(run)) == len(run)
    last = latest_slot(schedule, now, start)
    slots = (last - first) // schedule.interval_ms + 1 if last is not None and last >= first else 0
    assert len(run) + skipped == slots
    assert all((slot - first) % schedule.interval_ms == 0 for slot in run)
