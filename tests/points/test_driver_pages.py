"""The devices of docs/drivers.md do what it says: simulated, replayed, real Modbus, pushed, a driver of one's own."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import station_process
from tests.docs_reader import ROOT, Reader, blocks, write_file
from tests.points.modbus_server import modbus_server
from tests.process import Server, accepts, code_path, free_port, running
from tradewind.errors import Invalid
from tradewind.points.channel_check import validate_channel
from tradewind.points.channel_file import load_folder
from tradewind.points.convert import to_engineering, to_raw
from tradewind.points.driver import Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers import modbus_plan, modbus_poll
from tradewind.points.drivers.modbus import ModbusTcp
from tradewind.points.drivers.modbus_cell import Cell, registers_of
from tradewind.points.drivers.virtual import VirtualDriver
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Reading

PAGE = "docs/drivers.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def virtual(at: int) -> VirtualDriver:
    document = [yaml.safe_load(text) for kind, text in blocks(PAGE, "Virtual") if kind == "yaml"][at]
    return VirtualDriver(validate_channel(document, check=DriverRegistry().check))


def engineering(device: Driver, readings: list[Reading]) -> dict[str, float]:
    points = {(point.kind, point.id): point for point in device.channel.points}
    return {f"{r.kind}{r.id}": to_engineering(points[r.kind, r.id], r.raw) for r in readings}


async def test_the_simulated_device() -> None:
    device = virtual(0)
    found = engineering(device, device.values_at(0))
    assert -5 <= found.pop("m1") <= 5  # the sun with its noise
    assert found == {"m2": 50, "m3": 2, "s1": 0}
    found = engineering(device, device.values_at(1800))
    assert found["m2"] == pytest.approx(49)  # 2 kW for half an hour
    await device.write(next(point for point in device.channel.points if point.kind is Kind.CONTROL), 0)
    found = engineering(device, device.values_at(3600))
    assert (found["m2"], found["m3"]) == (pytest.approx(49), 0)
    assert virtual(0).values_at(9) == virtual(0).values_at(9)  # the seed


async def test_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (file,) = [text for kind, text in blocks(PAGE, "Virtual") if kind == "csv"]
    (tmp_path / "day.csv").write_text(file.partition("\n")[2])
    device = virtual(1)
    await device.connect()
    rows = [[r.raw for r in device.values_at(second)] for second in (0, 0.99, 1, 2, 100)]  # 60 times as fast
    assert rows == [[10, 1, 5], [10, 1, 5], [12.5, 1, 6.25], [11, 0, 5.5], [11, 0, 5.5]]


@pytest.fixture
def inverter(tmp_path: Path) -> ChannelSpec:
    for _, text in blocks(PAGE, "Modbus"):
        write_file(tmp_path, text)
    loaded = load_folder(tmp_path, check=DriverRegistry().check)
    assert not loaded.problems
    return loaded.channels[0]


async def test_the_modbus_tables_against_a_real_server(inverter: ChannelSpec) -> None:
    """Holding register n holds n, input register n holds n + 10000, every third bit is on."""
    with modbus_server() as server:
        given = {"host": "127.0.0.1", "port": server.port}
        device = ModbusTcp(ChannelSpec(inverter.id, parameters=given, points=inverter.points, timeout_ms=2000))
        await device.connect()
        points = {f"{point.kind}{point.id}": point for point in inverter.points}
        energy = (103 << 16 | 102) * 0.001  # CDAB: the low word first
        expected = {
            "m1": 10.0,
            "m2": energy,
            "m3": 1000.7,
            "s1": 1,
            "s2": 0,
            "s3": 1,
        }  # 5 is 0b101, the door is reversed
        assert engineering(device, list(await device.poll())) == pytest.approx(expected)
        await device.write(points["a1"], to_raw(points["a1"], 55.54))
        await device.write(points["c2"], 1)
        read = [await device.read(points[name]) for name in ("a1", "c2")]
        await device.write(points["c1"], 1)
        held = await device.read(PointSpec(Kind.ADJUSTMENT, "1", mapping=points["a1"].mapping))
        await device.close()
    assert [found.raw for found in read if found is not None] == [555, 1]
    assert held is not None and held.raw == 555


def test_the_byte_orders_shown() -> None:
    text = TEXT.partition("**Byte orders.**")[2].partition("**Bits.**")[0]
    rows = re.findall(r"^\| `(\w+)`[^|]*\| (\w{4}) (\w{4}) \| (\w{4}) \|$", text, re.M)
    assert len(rows) == 4
    for order, first, second, alone in rows:
        two = Cell(Kind.MEASUREMENT, "1", 1, 16, 0, "uint32", order)
        one = Cell(Kind.MEASUREMENT, "1", 1, 16, 0, "uint16", order)
        assert registers_of(two, 0x12345678) == [int(first, 16), int(second, 16)]
        assert registers_of(one, 0x1234) == [int(alone, 16)]


def test_the_figures_of_the_modbus_chapter() -> None:
    """Eight requests for a thousand registers, 1 s to 60 s for a silent unit, 60 s for refused registers."""
    cells = [Cell(Kind.MEASUREMENT, str(n), 1, 3, n, "uint16") for n in range(1000)]
    assert len(modbus_plan.plan_blocks(cells)) == 8
    assert (modbus_poll.QUIET_S, modbus_poll.MAX_QUIET_S, modbus_poll.REFUSED_S) == (1, 60, 60)


def test_pushing_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        for kind, text in blocks(PAGE, "HTTP push"):
            reader.do(kind, text)


def install(folder: Path) -> None:
    """As `pip install` would: what the station finds entry points by."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in found.items()) for name, found in groups]
    (about / "entry_points.txt").write_text("\n".join(lines))


def test_a_driver_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = blocks(PAGE, "Your own")
    for _, text in shown:
        write_file(tmp_path, text)
    install(tmp_path)
    monkeypatch.setenv("PYTHONPATH", code_path(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)

    def make(folder: Path) -> Server:
        port = free_port()
        argv = [sys.executable, str(tmp_path / "device.py"), str(port)]
        return Server(argv, port=port, url="", folder=folder, is_ready=lambda: accepts(port))

    with running(make) as device, station_process(tmp_path) as station:
        reader = Reader(monkeypatch, station)
        stove = tmp_path / "stove.yaml"
        stove.write_text(stove.read_text().replace("7000", str(device.port)))
        for kind, text in shown:
            if kind == "console":
                reader.do(kind, text)
        with pytest.raises(Invalid) as refused:  # its own check speaks at the door
            validate_channel(
                {"id": 1, "protocol": "line", "points": [{"kind": "m", "id": 1}]}, check=DriverRegistry().check
            )
    paths = {problem.path for problem in refused.value.problems}
    assert paths == {"parameters.host", "parameters.port", "points[0].mapping.name"}


def test_the_table_of_methods_is_whole() -> None:
    text = TEXT.partition("What the class promises:")[2]
    told = set(re.findall(r"^\| `(\w+)` \|", text, re.M))
    methods = {name for name, value in vars(Driver).items() if not name.startswith("_") and callable(value)}
    assert told == methods | {"check"}
