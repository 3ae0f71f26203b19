"""Raw and engineering values: tables, and properties over all integer types."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid
from tradewind.points.convert import (
    INTEGER_RANGES,
    check_write,
    is_change,
    is_plausible,
    to_engineering,
    to_engineering_all,
    to_raw,
    wire_type,
)
from tradewind.points.spec import Kind, PointSpec

M, S, C, A = Kind


def point(kind: Kind = M, **fields: object) -> PointSpec:
    return PointSpec(kind=kind, id="1", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "raw", "value"),
    [
        ({}, 25.5, 25.5),
        ({"scale": 0.1}, 2301, 230.1),
        ({"scale": 0.1, "offset": -40}, 650, 25.0),
        ({"scale": -1}, 5, -5),
        ({"kind": A, "scale": 2, "offset": 1}, 3, 7),
        ({"kind": S}, 0, 0),
        ({"kind": S}, 1, 1),
        ({"kind": S}, 17, 1),
        ({"kind": S}, -0.5, 1),
        ({"kind": S, "reverse": True}, 0, 1),
        ({"kind": S, "reverse": True}, 1, 0),
        ({"kind": S, "scale": 5, "offset": 3}, 1, 1),
        ({"kind": C, "on_value": 2, "off_value": 1}, 2, 1),
        ({"kind": C, "on_value": 2, "off_value": 1}, 1, 0),
        ({"kind": C, "on_value": 0, "off_value": 1}, 0, 1),
        ({"kind": C, "on_value": 2, "off_value": 1}, 0, 0),
    ],
)
def test_raw_becomes_engineering(fields: dict[str, object], raw: float, value: float) -> None:
    assert to_engineering(point(**fields), raw) == pytest.approx(value)
    assert to_engineering_all([point(**fields)] * 2, [raw, raw]) == [to_engineering(point(**fields), raw)] * 2


def test_a_zero_is_never_negative() -> None:
    assert math.copysign(1, to_engineering(point(scale=-1), 0)) == 1
    assert math.copysign(1, to_raw(point(A, data_type="int16"), -0.2)) == 1


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("reverse", [False, True])
def test_nan_stays_nan(kind: Kind, reverse: bool) -> None:
    assert math.isnan(to_engineering(point(kind, reverse=reverse), math.nan))


@pytest.mark.parametrize(
    ("fields", "value", "raw"),
    [
        ({"scale": 0.1, "data_type": "uint16"}, 4228.9, 42289),
        ({"scale": 0.1, "data_type": "float32"}, 4228.9, 4228.9 / 0.1),
        ({"scale": 0.1, "data_type": "float32", "mapping": {"data_type": "uint16"}}, 4228.9, 42289),
        ({"scale": 1, "data_type": "int16"}, 2.5, 3),
        ({"scale": 1, "data_type": "int16"}, -2.5, -3),
        ({"scale": 0.1, "offset": 10, "data_type": "int32"}, 9.9, -1),
        ({"scale": 1, "data_type": "int64"}, 2.0**60, 2.0**60),
        ({"kind": C}, 1, 1),
        ({"kind": C}, 0, 0),
        ({"kind": C, "reverse": True}, 1, 0),
        ({"kind": C, "on_value": 255, "off_value": 170}, 1, 255),
        ({"kind": C, "on_value": 255, "off_value": 170, "reverse": True}, 1, 170),
    ],
)
def test_engineering_becomes_raw(fields: dict[str, object], value: float, raw: float) -> None:
    assert to_raw(point(**{"kind": A, **fields}), value) == raw


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_written(value: float) -> None:
    for kind in (C, A):
        with pytest.raises(Invalid):
            to_raw(point(kind), value)
        assert [problem.code for problem in check_write(point(kind), value)] == ["not_finite"]


def test_a_scale_of_0_is_an_error_not_a_crash() -> None:
    with pytest.raises(Invalid, match="scale 0"):
        to_raw(point(A, scale=0.0), 1)
    assert check_write(point(A, scale=0.0), 1) == []


@pytest.mark.parametrize(
    ("fields", "value", "codes"),
    [
        ({}, 5, []),
        ({"min": 0, "max": 100}, 0, []),
        ({"min": 0, "max": 100}, 100, []),
        ({"min": 0, "max": 100}, -0.001, ["below_min"]),
        ({"min": 0, "max": 100}, 100.001, ["above_max"]),
        ({"step": 0.1}, 50.3, []),
        ({"step": 0.1}, 0.30000000000000004, []),
        ({"step": 0.1}, 50.35, ["off_step"]),
        ({"step": 5, "min": 2}, 7, []),
        ({"step": 5, "min": 2}, 5, ["off_step"]),
        ({"step": 5, "min": 2}, 1, ["below_min", "off_step"]),
        ({"step": 0.000001}, 123456.789012, []),
        ({"data_type": "uint16", "scale": 0.1}, 6553.5, []),
        ({"data_type": "uint16", "scale": 0.1}, 6553.6, ["does_not_fit"]),
        ({"data_type": "uint16"}, -1, ["does_not_fit"]),
        ({"data_type": "float32"}, 1e39, ["does_not_fit"]),
        ({"data_type": "float64", "scale": 0.01}, 1e308, ["does_not_fit"]),
        ({"step": 0.000001}, 1e308, ["off_step"]),
        ({"kind": C}, 0, []),
        ({"kind": C}, 1, []),
        ({"kind": C}, 2, ["not_a_switch"]),
        ({"kind": C}, 0.5, ["not_a_switch"]),
        ({"kind": M}, 1, ["not_writable"]),
        ({"kind": S}, 1, ["not_writable"]),
    ],
)
def test_what_may_be_written(fields: dict[str, object], value: float, codes: list[str]) -> None:
    problems = check_write(point(**{"kind": A, **fields}), value)
    assert [problem.code for problem in problems] == codes
    assert all(problem.hint and problem.path for problem in problems)


@pytest.mark.parametrize(
    ("fields", "old", "new", "is_written"),
    [
        ({}, None, 0, True),
        ({}, 5, 5, False),
        ({}, 5, 5.0000001, True),
        ({"deadband": 0.1}, None, 0, True),
        ({"deadband": 0.1}, 20.0, 20.05, False),
        ({"deadband": 0.1}, 20.1, 20.2, True),  # 0.0999… in binary
        ({"deadband": 0.1}, 20.0, 19.9, True),
        ({"deadband": 0.1}, 20.0, 20.0, False),
        ({"deadband": 0.1}, 20.0, math.nan, True),
        ({"deadband": 0.1}, math.nan, 20.0, True),
        ({"kind": S, "deadband": 5}, 0, 1, True),
        ({"kind": S}, 1, 1, False),
    ],
)
def test_what_counts_as_a_change(fields: dict[str, object], old: float | None, new: float, is_written: bool) -> None:
    spec = point(**fields)
    assert is_change(spec, old, new) is is_written


def test_plausible_is_finite_and_within_bounds() -> None:
    bounded = point(min=-40, max=125)
    assert [is_plausible(bounded, value) for value in (-41, -40, 125, 126, math.nan)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert is_plausible(point(), 1e300) and not is_plausible(point(), math.inf)


def test_the_type_of_the_device_is_the_mappings() -> None:
    assert wire_type(point(data_type="float32", mapping={"data_type": "int16"})) == "int16"
    assert wire_type(point(data_type="int32")) == "int32"
    assert wire_type(point(mapping={"data_type": "UInt16"})) == "uint16"  # as OPC UA spells it


@given(
    data=st.data(),
    data_type=st.sampled_from(sorted(set(INTEGER_RANGES) - {"bool", "int64", "uint64"})),
    scale=st.sampled_from([1.0, 0.1, 0.01, 0.001, 10.0, -0.1, 0.5, 3.0]),
    offset=st.sampled_from([0.0, -40.0, 273.15, 1000.0]),
)
def test_every_raw_integer_survives_the_way_there_and_back(
    data: st.DataObject, data_type: str, scale: float, offset: float
) -> None:
    raw = data.draw(st.integers(*INTEGER_RANGES[data_type]))
    spec = point(A, data_type=data_type, scale=scale, offset=offset)
    value = to_engineering(spec, raw)
    assert to_raw(spec, value) == raw
    assert check_write(spec, value) == []


@given(st.sampled_from([S, C]), st.booleans(), st.sampled_from([(1, 0), (0, 1), (2, 1), (255, 170)]), st.booleans())
def test_a_switch_reads_back_as_it_was_written(
    kind: Kind, reverse: bool, values: tuple[float, float], is_on: bool
) -> None:
    spec = point(kind, reverse=reverse, on_value=values[0], off_value=values[1])
    assert to_engineering(spec, to_raw(spec, float(is_on))) == is_on
