"""What follows a failed attempt, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.tasks.record import Request, Status
from tradewind.tasks.retry import MAX_ASKED, after_failure, backoff_ms

FAILED, TIMEOUT, RETRYING, DEAD = Status.FAILED, Status.TIMEOUT, Status.RETRYING, Status.DEAD


@pytest.mark.parametrize(
    ("failures", "ceiling_ms"),
    [(1, 1000), (2, 2000), (3, 4000), (4, 8000), (9, 256_000), (10, 300_000), (1000, 300_000)],
)
def test_backoff_doubles_up_to_its_cap(failures: int, ceiling_ms: int) -> None:
    assert backoff_ms(Request(), failures, lambda: 1.0) == ceiling_ms
    assert backoff_ms(Request(), failures, lambda: 0.5) == ceiling_ms // 2
    assert backoff_ms(Request(), failures, lambda: 0.0) == 0


@given(
    base=st.integers(0, 86_400_000),
    cap=st.integers(0, 86_400_000),
    failures=st.integers(1, 5000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_full_jitter_stays_between_nothing_and_the_ceiling(base: int, cap: int, failures: int, chance: float) -> None:
    wait = backoff_ms(Request(backoff_ms=base, backoff_max_ms=cap), failures, lambda: chance)
    assert 0 <= wait <= min(cap, base * 2 ** (failures - 1))


@pytest.mark.parametrize(
    ("most", "attempt", "stalls", "last", "is_retryable", "then"),
    [
        (1, 1, 0, FAILED, True, FAILED),
        (1, 1, 0, TIMEOUT, True, TIMEOUT),
        (3, 1, 0, FAILED, True, RETRYING),
        (3, 2, 0, FAILED, True, RETRYING),
        (3, 3, 0, FAILED, True, DEAD),
        (3, 1, 0, TIMEOUT, True, RETRYING),
        (3, 3, 0, TIMEOUT, True, TIMEOUT),
        (3, 1, 0, FAILED, False, FAILED),
        (3, 3, 0, FAILED, False, FAILED),
        (3, 1, 0, TIMEOUT, False, FAILED),
        (1, 2, 1, FAILED, True, FAILED),
        (1, 5, 4, TIMEOUT, True, TIMEOUT),
        (3, 3, 1, FAILED, True, RETRYING),
        (3, 4, 1, FAILED, True, DEAD),
        (2, 6, 5, FAILED, True, RETRYING),
        (2, 7, 5, FAILED, True, DEAD),
    ],
)
def test_starts_that_a_lost_worker_ended_use_no_attempt_up(
    most: int, attempt: int, stalls: int, last: Status, is_retryable: bool, then: Status
) -> None:
    assert after_failure(Request(max_attempts=most), attempt, stalls, last, is_retryable=is_retryable) is then


@pytest.mark.parametrize(
    ("only_one", "most", "attempt", "then"),
    [
        (False, 1, 1, RETRYING),
        (False, 1, MAX_ASKED - 1, RETRYING),
        (False, 1, MAX_ASKED, DEAD),
        (True, 1, 1, FAILED),
        (False, 3, 2, RETRYING),
        (False, 3, 3, DEAD),
    ],
)
def test_who_asks_for_another_run_gets_it_unless_one_was_said(
    only_one: bool, most: int, attempt: int, then: Status
) -> None:
    request = Request(max_attempts=most, only_one=only_one)
    assert after_failure(request, attempt, 0, FAILED, asks_again=True) is then
