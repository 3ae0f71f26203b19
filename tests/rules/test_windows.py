"""Windows of samples: exact up to a limit, then in buckets, and never larger."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.oracle import aggregate
from tests.soak import repeats
from tradewind.rules.windows import BUCKETS, MAX_SAMPLES, SampleWindow, Trail

FUNCTIONS = ("avg", "min", "max", "count", "stddev", "sum")
finite = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))


def stored(window: SampleWindow, window_ms: int, function: str) -> SampleWindow:
    data = msgspec.msgpack.decode(msgspec.msgpack.encode(window.dump()))
    return SampleWindow.load(window_ms, function, data)


@settings(max_examples=repeats(80), deadline=None)
@given(
    st.sampled_from(FUNCTIONS),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 20), finite, st.booleans()), max_size=60),
)
def test_the_result_is_that_of_exactly_the_samples_within(
    function: str, window_ms: int, steps: list[tuple[int, float, bool]]
) -> None:
    """Also when the newest is replaced (no time passes), and when it was stored in between."""
    window, now, history = SampleWindow(window_ms, function), 1_000, {}
    for gap, value, is_stored in steps:
        now += gap
        history[now] = value
        window.put(now, value)
        window.slide(now - window_ms)
        if is_stored:
            window = stored(window, window_ms, function)
        within = [item for at, item in history.items() if at > now - window_ms]
        expected = aggregate(function, within)
        found = window.result(function)
        if expected is None or function != "stddev":
            assert found == expected
        else:
            assert found is not None and math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-9)


def test_sums_do_not_drift() -> None:
    window = SampleWindow(10, "avg")
    for i in range(50_000):
        window.put(i, 1e9 if i % 10 == 0 else 0.1)
        window.slide(i - 10)
    window.put(60_000, 0.1)
    window.slide(59_990)
    assert (window.count, window.result("avg"), window.result("sum")) == (1, 0.1, 0.1)


def test_very_large_values_do_no_harm() -> None:
    for function, expected in (("avg", 1.7e308), ("sum", None), ("stddev", 0.0)):
        window = SampleWindow(100, function)
        window.put(1, 1.7e308)
        window.put(2, 1.7e308)
        assert window.result(function) == expected


@pytest.mark.parametrize("function", FUNCTIONS)
def test_above_the_limit_it_keeps_buckets_and_covers_at_most_one_more(function: str) -> None:
    window_ms, window = 100_000, SampleWindow(100_000, function)
    history: list[tuple[int, float]] = []
    for i in range(3 * MAX_SAMPLES):
        now, value = i * 5, float((i * 7919) % 1000)
        history.append((now, value))
        window.put(now, value)
        window.slide(now - window_ms)
        if i % 5_000 == 4_999:
            window = stored(window, window_ms, function)
            near = [item for at, item in history if at > now - window_ms]
            far = [item for at, item in history if at > now - window_ms - window_ms // BUCKETS]
            assert len(near) <= window.count <= len(far)
            if len(history) <= MAX_SAMPLES:
                assert window.count == len(near)
            low, high = sorted((aggregate(function, near) or 0.0, aggregate(function, far) or 0.0))
            found = window.result(function)
            assert found is not None and low * 0.999 <= found <= high * 1.001
    assert len(msgspec.msgpack.encode(window.dump())) < 200_000
    window.slide(now)
    assert window.count == 0 and window.result("avg") is None
    window.put(now + 1, 5.0)  # exact again
    assert window.result(function) == aggregate(function, [5.0])


def test_a_store_stays_bounded() -> None:
    window = SampleWindow(31 * 86_400_000, "max")
    for i in range(4 * MAX_SAMPLES):
        window.put(i * 10_000, float(i))
    assert len(msgspec.msgpack.encode(window.dump())) < 20 * MAX_SAMPLES


def test_a_trail_can_be_thinned_and_stored() -> None:
    trail = Trail()
    for i in range(11):
        trail.put(i, float(i))
    trail.drop()
    trail.thin()
    assert list(trail.times) == [1, 3, 5, 7, 9, 10]
    again = Trail.load(trail.dump())
    assert (list(again.times), list(again.values)) == (list(trail.times), list(trail.values))


@pytest.mark.parametrize("data", [(0, b"1234", b""), (0, b"x" * 8, b""), (0,), None, (0, [[1]], (0, 0.0))])
def test_what_is_no_window_is_refused(data: Any) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)):
        SampleWindow.load(10, "avg", data)
