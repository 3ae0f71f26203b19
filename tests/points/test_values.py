"""Values as the seed writes them, and its validators without their holes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid
from tradewind.points.values import (
    ControlValue,
    PointData,
    StandardFloat,
    format_float,
    format_value,
    is_hash_key,
    is_numeric,
    is_timestamp,
    parse_timestamp,
    parse_value,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (25.1, "25.100000"),
        (25.123456789, "25.123457"),
        (0.000001, "0.000001"),
        (25.123456, "25.123456"),
        (1200.5, "1200.500000"),
        (25.1234565, "25.123456"),
        (-0.0, "0.000000"),
        (-1e-9, "0.000000"),
        (-0.0000005, "0.000000"),
        (-0.000001, "-0.000001"),
        (3, "3.000000"),
    ],
)
def test_numbers_have_six_decimals_as_in_the_seed(value: float, text: str) -> None:
    assert str(StandardFloat.new(value)) == text
    assert PointData.new(value).to_redis_value() == text
    assert format_value("m", value) == format_value("a", value) == format_value("measurement", value) == text


def test_the_seed_s_examples_of_point_data() -> None:
    point = PointData.new(25.123456, 1642592400000)
    assert point.to_redis_value() == "25.123456"
    assert point.to_redis_with_timestamp() == "25.123456:1642592400000"
    assert PointData.from_redis_with_timestamp("25.123456:1642592400000") == point
    parsed = PointData.from_redis_value("25.123456")
    assert parsed.value == point.value and is_timestamp(parsed.timestamp)
    assert float(StandardFloat(25.12)) == 25.12


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "a", None])
def test_what_is_not_a_finite_number_is_refused(value: float) -> None:
    for make in (StandardFloat, PointData.new, format_float, lambda v: format_value("s", v)):
        with pytest.raises(Invalid):
            make(value)


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1, "1"), (True, "1"), (False, "0"), (1.0, "1"), (5, "1")])
def test_signals_and_controls_are_0_or_1(value: float, text: str) -> None:
    assert format_value("s", value) == format_value("c", value) == text


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), ("1.000000", 1.0), ("-25.5", -25.5), ("1e3", 1000.0)])
def test_every_form_that_the_seed_s_programs_write_is_read(text: str, value: float) -> None:
    assert parse_value(text) == parse_value(text.encode()) == value


@pytest.mark.parametrize("text", ["", " 5 ", "1_000", "nan", "inf", "1e400", "٣", "1\n", "0x10", "--1", "auto"])
def test_nothing_else_is_read_as_a_number(text: str) -> None:
    with pytest.raises(Invalid):
        parse_value(text)
    assert not is_numeric(text)


@pytest.mark.parametrize(
    ("text", "answer"), [("25.123456", True), ("25", True), ("-0.5", True), ("25.1234567", False), ("1e3", False)]
)
def test_the_seed_s_check_of_numbers(text: str, answer: bool) -> None:
    assert is_numeric(text) is answer


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("comsrv:1001:m", True),
        ("modsrv:power_calc:measurement", True),
        ("comsrv:1001:m\n", False),
        ("comsrv:١٠٠١:m", False),
        ("comsrv:abc:m", False),
        ("comsrv:1001:measurement", False),
        ("comsrv:1001:m:10001", False),
        ("alarm:1", False),
        (f"modsrv:{'x' * 260}:control", False),
    ],
)
def test_the_seed_s_check_of_keys(key: str, answer: bool) -> None:
    assert is_hash_key(key) is answer


def test_timestamps_have_13_digits() -> None:
    assert is_timestamp(1_000_000_000_000) and is_timestamp(9_999_999_999_999)
    assert not is_timestamp(999_999_999_999) and not is_timestamp(10_000_000_000_000)
    assert parse_timestamp("1642592400000") == 1642592400000
    for text in ("164259240000", "0001642592400", "١٦٤٢٥٩٢٤٠٠٠٠٠", "1642592400000 ", "-1642592400000"):
        with pytest.raises(Invalid):
            parse_timestamp(text)


@pytest.mark.parametrize(
    ("text", "value", "source"),
    [
        ("1:1642592400000:operator", "1", "operator"),
        ("1500.0:1642592400000:operator", "1500.0", "operator"),
        ("auto:1642592400000:system", "auto", "system"),
        ("a:b:1642592400000:optimizer", "a:b", "optimizer"),
    ],
)
def test_control_values_are_read_from_the_right(text: str, value: str, source: str) -> None:
    parsed = ControlValue.parse(text)
    assert (parsed.value, parsed.ts_ms, parsed.source) == (value, 1642592400000, source)
    assert str(parsed) == text


def test_a_control_value_that_could_not_be_read_back_is_refused() -> None:
    with pytest.raises(Invalid):
        str(ControlValue("1", 1642592400000, "a:b"))
    for text in ("1", "1:operator", "1:1642592400000", "1:x:operator"):
        with pytest.raises(Invalid):
            ControlValue.parse(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_is_read_back_to_six_decimals(value: float) -> None:
    text = format_float(value)
    assert parse_value(text) == float(f"{value:.6f}") and text != "-0.000000"
    assert format_float(parse_value(text)) == text
