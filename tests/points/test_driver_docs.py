"""docs/drivers.md and docs/commands.md are so: their channels are sound, their tables name everything there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tradewind.points.channel_check import validate_channel
from tradewind.points.command_check import check_safety, parse_interlock
from tradewind.points.command_record import CommandRequest, CommandStatus, Result
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers import modbus, modbus_cell, mqtt, opcua
from tradewind.points.table_columns import mapping_columns

DOCS = Path(__file__).resolve().parents[2] / "docs"
DRIVERS, COMMANDS = (DOCS / name for name in ("drivers.md", "commands.md"))


def section(title: str) -> str:
    text = DRIVERS.read_text(encoding="utf-8")
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def named(text: str) -> set[str]:
    """Everything in backticks in the first cells of tables."""
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.M)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def columns(protocol: str) -> set[str]:
    return {column.field for column in mapping_columns(protocol).values()} - {"id"}


@pytest.mark.parametrize("title", ["MQTT", "OPC UA", "HTTP push"])
def test_the_channels_shown_are_sound(title: str) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", section(title), re.M | re.S)
    channel = validate_channel(yaml.safe_load(text), check=DriverRegistry().check)
    assert check_safety(channel.points, channel.id) == []


def test_the_tables_name_every_parameter() -> None:
    assert named(section("MQTT")) == set(mqtt.PARAMETERS) | columns("mqtt")
    assert named(section("OPC UA")) == set(opcua.PARAMETERS)
    orders = {*modbus_cell.ORDERS, *modbus_cell._ORDER_ALIASES} - {""}
    told = named(section("Modbus"))
    assert told == set(modbus.PARAMETERS) | {"host", "slave_id", "byte_order"} | columns("modbus_tcp") | orders
    names = {"t", "now", "dt", "value", "m1", "s1", "a1", "c1", "p1", "soc"}
    assert named(section("Virtual")) == {"seed", "replay", "loop", "speed"} | columns("virtual") | names


def test_the_life_of_a_command_is_told_in_full() -> None:
    text = COMMANDS.read_text(encoding="utf-8").partition("## Its life")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", text, re.M)
    assert {status for status, _ in rows} == {status.value for status in CommandStatus}
    assert {result for _, result in rows} == {result.value for result in Result}


def test_the_fields_of_a_command_are_told_in_full() -> None:
    text = COMMANDS.read_text(encoding="utf-8").partition("## Sending one")[2].partition("\n## ")[0]
    assert named(text) | {"model", "field"} == set(CommandRequest.__struct_fields__)


def test_the_interlock_shown_is_sound() -> None:
    (text,) = re.findall(r"^```text\n(.*?)^```$", COMMANDS.read_text(encoding="utf-8"), re.M | re.S)
    assert {str(a) for a in parse_interlock(text.strip(), "1001").addresses.values()} == {
        "comsrv:1001:s:20001",
        "comsrv:1002:m:10001",
        "comsrv:1001:m:10003",
    }
