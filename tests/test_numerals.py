"""Numbers that people write, and every place where they write them: what only Python takes for a number is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid
from tradewind.history.import_csv import _value as import_value
from tradewind.numerals import read_number, read_whole
from tradewind.points.drivers.modbus_cell import cell_of
from tradewind.points.drivers.mqtt_topics import number_of
from tradewind.points.drivers.replay import read_replay
from tradewind.points.drivers.virtual import VirtualDriver
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.points.table_columns import number, whole
from tradewind.points.values import parse_value
from tradewind.rules.backtest_csv import _time as backtest_time
from tradewind.rules.backtest_csv import _values as backtest_values

STRANGE = (
    "1_000",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e400",
    "٣",
    "１２",
    "0x1p3",
    "1,5",
    "",
    "+",
    ".",
    "e5",
    "1e",
    "--1",
)


@pytest.mark.parametrize("text", [*STRANGE, " 5", "5 ", "5\n", "\t5"])
def test_what_only_python_takes_for_a_number_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        read_number(text)
    with pytest.raises(ValueError, match="whole number"):
        read_whole(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_is_read_as_it_is_written(value: float) -> None:
    assert read_number(repr(value)) == value
    assert math.isclose(read_number(f"{value:.17e}"), value)


@given(st.integers(-(10**20), 10**20))
def test_whole_numbers_are_read(value: int) -> None:
    assert read_whole(str(value)) == value
    assert read_whole(hex(abs(value) % 2**63), is_hex=True) == abs(value) % 2**63


def read_cli(text: str) -> float:
    from tradewind.cli.point import read_values

    return read_values([f"comsrv:1:m:1={text}"])["1"]["m"]["1"]


def read_command(text: str) -> float:
    from tradewind.cli.command import number as read_value

    return read_value(text)


READERS: dict[str, Callable[[str], object]] = {
    "a value on the command line": read_cli,
    "the value of a command": read_command,
    "a cell of a point table": number,
    "a whole number of a point table": whole(0, 10_000),
    "a cell of an import": import_value,
    "a cell of a back-test": lambda text: backtest_values([text]),
    "a time of a back-test": backtest_time,
    "a stored value": parse_value,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("text", [text for text in STRANGE if text])
def test_no_reader_takes_it(name: str, text: str) -> None:
    if name == "a cell of a back-test" and text.lower() == "nan":
        pytest.skip("there it is the word for unknown")
    with pytest.raises((ValueError, Invalid)):
        READERS[name](text)


@pytest.mark.parametrize("text", [text for text in STRANGE if text and "," not in text])
def test_drivers_do_not_take_it(text: str, tmp_path: Path) -> None:
    table = tmp_path / "replay.csv"
    table.write_text(f"time,1\n0,{text}\n", encoding="utf-8")
    with pytest.raises(Invalid, match="cannot be replayed"):
        read_replay(table)
    assert math.isnan(number_of(text))
    point = PointSpec(Kind.MEASUREMENT, "1", mapping={"initial_value": text})
    assert [p.path for p in VirtualDriver.check(ChannelSpec("1", points=(point,)))] == [
        "points[0].mapping.initial_value"
    ]
    problems: list[object] = []
    cell_of(PointSpec(Kind.MEASUREMENT, "1", mapping={"register_address": text}), {}, problems)  # type: ignore[arg-type]
    assert problems


@pytest.mark.parametrize("protocol", ["virtual", "modbus_tcp", "modbus_rtu_tcp", "mqtt", "opcua", "http"])
def test_every_driver_refuses_parameters_that_it_does_not_know(protocol: str) -> None:
    from tradewind.points.driver_registry import DriverRegistry

    given = {"hosst": "x", **{f"unknown{at}": at for at in range(300)}}
    channel = ChannelSpec("1", protocol=protocol, parameters=given)
    found = [p for p in DriverRegistry().check(channel) if p.code == "unknown_parameter"]
    assert found[0].path == "parameters.hosst" and len(found) == 100
