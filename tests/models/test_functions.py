"""Each function with its table: inputs, parameters, result; and what those that remember make of samples in time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.models.functions import FUNCTIONS, complete
from tradewind.models.stateful import Integral, Memory, MovingAverage, Rate, Window

PLAIN: list[tuple[str, dict[str, Any], Any, float]] = [
    ("sum", {}, (1.0, 2.5, -4.0), -0.5),
    ("subtract", {}, (10.0, 1.0, 2.0), 7.0),
    ("avg", {}, (1.0, 2.0, 6.0), 3.0),
    ("min", {}, (3.0, -1.0, 2.0), -1.0),
    ("max", {}, (3.0, -1.0, 2.0), 3.0),
    ("multiply", {}, (230.0, 2.0, 0.5), 230.0),
    ("divide", {}, (1.0, 4.0), 0.25),
    ("divide", {"on_zero": 7.0}, (1.0, 0.0), 7.0),
    ("scale", {"factor": 0.95}, 100.0, 95.0),
    ("scale", {"factor": 2, "offset": -1}, 4.0, 7.0),
    ("clamp", {"min": 0, "max": 5}, 7.0, 5.0),
    ("clamp", {"min": 0}, -7.0, 0.0),
    ("clamp", {"max": 5}, -7.0, -7.0),
    ("abs", {}, -2.5, 2.5),
    ("round", {}, 2.6, 3.0),
    ("round", {"digits": 2}, 2.678, 2.68),
    ("round", {"digits": -1}, 26.0, 30.0),
    ("sign", {}, -3.0, -1.0),
    ("sign", {}, 0.0, 0.0),
    ("constant", {"value": 42}, (), 42.0),
    ("if", {}, (1.0, 10.0, 20.0), 10.0),
    ("if", {}, (0.0, 10.0, 20.0), 20.0),
    ("if", {"operator": ">", "threshold": 5}, (6.0, 10.0, 20.0), 10.0),
    ("conditional", {"operator": "<=", "threshold": 5}, (6.0, 10.0, 20.0), 20.0),
]


@pytest.mark.parametrize(("name", "params", "values", "result"), PLAIN)
def test_a_function_without_memory(name: str, params: dict[str, Any], values: Any, result: float) -> None:
    function = FUNCTIONS[name]
    assert function.make is not None
    assert function.make(complete(function, params))(values) == pytest.approx(result)


def test_division_by_zero_is_no_value() -> None:
    make = FUNCTIONS["divide"].make
    assert make is not None
    with pytest.raises(ZeroDivisionError):
        make(complete(FUNCTIONS["divide"], {}))((1.0, 0.0))


REMEMBER: list[tuple[str, dict[str, Any], list[tuple[int, float | None]], float | None]] = [
    # seconds and values, and the result with the last of them
    ("integrate", {}, [(0, 10.0)], 0.0),
    ("integrate", {}, [(0, 10.0), (5, 20.0)], 50.0),
    ("integrate", {"method": "trapezoid"}, [(0, 10.0), (5, 20.0)], 75.0),
    ("integrate", {"per": "min", "initial": 3}, [(0, 10.0), (120, 0.0)], 23.0),
    ("integrate", {"max_gap_s": 10}, [(0, 10.0), (11, 10.0), (15, 10.0)], 40.0),
    ("integrate", {}, [(0, 10.0), (5, None), (9, 1.0), (10, 1.0)], 51.0),
    ("integrate", {"method": "trapezoid"}, [(0, 10.0), (5, None), (9, 1.0), (10, 1.0)], 1.0),
    ("integrate", {}, [(0, 10.0), (5, None)], None),
    ("energy", {}, [(0, 5.0), (3600, 0.0)], 5.0),
    ("energy", {"factor": 0.001}, [(0, 5000.0), (1800, 0.0)], 2.5),
    ("energy", {"direction": "positive"}, [(0, -5.0), (3600, 2.0), (7200, 0.0)], 2.0),
    ("energy", {"direction": "negative"}, [(0, -5.0), (3600, 2.0), (7200, 0.0)], 5.0),
    ("moving_average", {"window": 3}, [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)], 3.0),
    ("moving_avg", {"window": 3}, [(0, 1.0), (1, None)], None),
    ("moving_average", {"window_s": 10}, [(0, 0.0), (5, 10.0), (10, 10.0)], 5.0),
    ("rate_of_change", {}, [(0, 1.0)], None),
    ("rate_of_change", {}, [(0, 1.0), (2, 5.0)], 2.0),
    ("rate_of_change", {"per": "min"}, [(0, 1.0), (2, 5.0), (4, 5.5)], 15.0),
    ("rate_of_change", {}, [(0, 1.0), (2, None), (3, 5.0)], None),
    ("window_min", {"window_s": 60}, [(0, 5.0), (10, 1.0), (20, 7.0)], 1.0),
    ("window_min", {"window_s": 60}, [(0, 5.0), (10, 1.0), (20, 7.0), (100, 9.0)], 7.0),
    ("window_max", {"window_s": 60}, [(0, 5.0), (10, 1.0), (80, 0.0)], 1.0),
    ("window_avg", {"window_s": 60}, [(0, 4.0)], 4.0),
    ("window_avg", {"window_s": 60}, [(0, 0.0), (30, 6.0), (60, 0.0)], 3.0),
]


@pytest.mark.parametrize(("name", "params", "samples", "result"), REMEMBER)
def test_a_function_with_memory(name: str, params: dict[str, Any], samples: Any, result: float | None) -> None:
    memory = made(name, params)
    found: float | None = None
    for second, value in samples:
        found = memory.step(value, 1_700_000_000_000 + second * 1000)
    assert found == (None if result is None else pytest.approx(result))


def made(name: str, params: dict[str, Any]) -> Memory:
    function = FUNCTIONS[name]
    assert function.remember is not None
    return function.remember(complete(function, params))


MAKERS = [
    lambda: Integral(3600, "hold", 0.0, None),
    lambda: Integral(1, "trapezoid", 1.5, 40_000),
    lambda: MovingAverage(4),
    lambda: Rate(1),
    lambda: Window(30_000, "avg"),
    lambda: Window(30_000, "min"),
    lambda: Window(61_000, "max"),
]
VALUES = st.one_of(st.none(), st.floats(-1e6, 1e6))
SAMPLES = st.lists(st.tuples(st.integers(0, 20_000), VALUES), min_size=1, max_size=60)


@pytest.mark.parametrize("make", MAKERS)
@given(steps=SAMPLES, cut=st.integers(0, 60))
def test_memory_survives_a_dump_and_counts_a_repeated_sample_once(make: Any, steps: Any, cut: int) -> None:
    """One run in one piece, without repeats; the other stops in the middle, and makes every step twice."""
    plain, cautious = make(), make()
    now, results, expected = 1_000_000, [], []
    for at, (gap, value) in enumerate(steps):
        now += gap
        expected.append(plain.step(value, now))
        if at == cut:
            saved, cautious = cautious.dump(), make()
            cautious.load(saved)
        cautious.step(value, now)
        results.append(cautious.step(value, now))
    assert results == expected
    assert cautious.dump() == plain.dump()


@given(steps=st.lists(st.tuples(st.integers(1, 20_000), st.floats(-1e6, 1e6)), min_size=1, max_size=60))
def test_an_integral_is_the_sum_of_its_pieces(steps: Any) -> None:
    hold, line = Integral(1, "hold", 0.0, None), Integral(1, "trapezoid", 0.0, None)
    now, points = 0, []
    found = (0.0, 0.0)
    for gap, value in steps:
        now += gap
        points.append((now, value))
        found = (hold.step(value, now) or 0.0, line.step(value, now) or 0.0)
    pairs = list(itertools.pairwise(points))
    assert found[0] == pytest.approx(math.fsum(v * (u - t) / 1000 for (t, v), (u, _) in pairs), abs=1e-3)
    assert found[1] == pytest.approx(math.fsum((v + w) / 2 * (u - t) / 1000 for (t, v), (u, w) in pairs), abs=1e-3)


@given(steps=st.lists(st.tuples(st.integers(0, 20_000), st.floats(-1e3, 1e3)), min_size=1, max_size=60))
def test_a_window_is_what_a_look_at_all_samples_gives(steps: Any) -> None:
    """Smallest and largest of the values that held within the window, whose start lies on a step of it."""
    length, now = 30_000, 1_000_000
    low, high = Window(length, "min"), Window(length, "max")
    held: list[tuple[int, float]] = []
    for gap, value in steps:
        now += gap
        if held and held[-1][0] == now:
            held[-1] = (now, value)
        else:
            held.append((now, value))
        found = (low.step(value, now), high.step(value, now))
        width = length // 60
        start = (now // width - 60) * width
        ends = [until for until, _ in held[1:]] + [now + 1]
        inside = [v for (_, v), until in zip(held, ends, strict=True) if until > start]
        assert found == (min(inside), max(inside))


def test_memory_of_another_kind_is_refused() -> None:
    with pytest.raises((ValueError, TypeError)):
        Window(60_000, "avg").load(Window(30_000, "avg").dump())
    with pytest.raises((ValueError, TypeError)):
        Rate(1).load(MovingAverage(3).dump())
