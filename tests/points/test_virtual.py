from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import Invalid
from tradewind.points.driver import DeviceTrouble, Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers.replay import read_replay
from tradewind.points.drivers.virtual import VirtualDriver
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality, Reading

M, S, C, A = Kind.MEASUREMENT, Kind.SIGNAL, Kind.CONTROL, Kind.ADJUSTMENT


def point(kind: Kind, number: int, name: str = "", **mapping: Any) -> PointSpec:
    return PointSpec(kind, str(number), name=name, mapping=mapping)


def driver(*points: PointSpec, **parameters: Any) -> VirtualDriver:
    return VirtualDriver(ChannelSpec("1", points=points, parameters=parameters))


def values(readings: list[Reading]) -> dict[str, float | None]:
    return {r.id: r.raw if r.quality is Quality.GOOD else None for r in readings}


def test_time_previous_value_and_other_points() -> None:
    device = driver(
        point(M, 3, expression="p1 + solar + value", initial_value=100),
        point(M, 1, expression="t * 2"),
        point(M, 2, "solar", expression="m1 + 1"),
        point(S, 1, expression="t > 1"),
    )
    assert values(device.values_at(1)) == {"1": 0, "2": 3, "3": 105}  # s 1 stands after m 1 under the same id
    found = {(r.kind, r.id): r.raw for r in device.values_at(2)}
    assert found == {(M, "1"): 4, (M, "2"): 5, (M, "3"): 114, (S, "1"): 1}


async def test_a_virtual_battery_reacts_to_what_is_written() -> None:
    device = driver(
        point(M, 1, "soc", expression="clamp(value - a1 * dt / 3600, 0, 100)", initial_value=50),
        point(M, 2, "power", expression="setpoint * enabled"),
        point(A, 1, "setpoint", initial_value=0),
        point(C, 1, "enabled", initial_value=1),
    )
    await device.connect()
    assert values(device.values_at(10)) == {"1": 50, "2": 0}
    await device.write(device.channel.points[2], 36)
    assert values(device.values_at(110)) == {"1": 49, "2": 36}
    await device.write(device.channel.points[3], 0)
    assert values(device.values_at(110))["2"] == 0
    reading = await device.read(device.channel.points[2])
    assert reading == Reading(A, "1", 36)


async def test_a_read_back_shows_what_was_just_written() -> None:
    device = driver(point(M, 1, expression="a2 * 2"), point(A, 2, initial_value=1))
    await device.connect()
    await device.poll()
    await device.write(device.channel.points[1], 5)
    found = await device.read(device.channel.points[0])
    assert found is not None and found.raw == 10


def test_noise_stays_in_its_range_and_does_not_add_up() -> None:
    device = driver(point(M, 1, expression="value", initial_value=10, noise_range=0.5), seed=7)
    seen = [device.values_at(t)[0].raw for t in range(500)]
    assert all(9.5 <= value <= 10.5 for value in seen)
    assert len(set(seen)) > 400
    again = driver(point(M, 1, expression="value", initial_value=10, noise_range=0.5), seed=7)
    assert [again.values_at(t)[0].raw for t in range(500)] == seen


def test_update_interval_holds_a_value() -> None:
    device = driver(point(M, 1, expression="t", update_interval=1000), point(M, 2, expression="t"))
    seen = [tuple(r.raw for r in device.values_at(t / 4)) for t in range(9)]
    assert [a for a, _ in seen] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert [b for _, b in seen] == [t / 4 for t in range(9)]


def test_a_value_that_cannot_be_computed_is_bad_and_the_others_are_not() -> None:
    device = driver(
        point(M, 1, expression="1 / (t - 1)"), point(M, 2, expression="'text'"), point(M, 3, expression="1")
    )
    assert values(device.values_at(1)) == {"1": None, "2": None, "3": 1}
    assert values(device.values_at(2)) == {"1": 1, "2": None, "3": 1}


def test_points_that_read_each_other_in_a_circle_read_the_poll_before() -> None:
    device = driver(point(M, 1, expression="p2 + 1"), point(M, 2, expression="p1 + 1"))
    device.values_at(1)
    first = values(device.values_at(2))
    assert sorted(v for v in first.values() if v is not None) == [3, 4]


async def test_replay_of_a_table(tmp_path: Path) -> None:
    table = tmp_path / "day.csv"
    table.write_text("\ufefftime,1,load\r\n10,5,\r\n11,6,70\r\n\r\n12,,80\r\n", encoding="utf-8")
    points = (point(M, 1), point(M, 2, "load", initial_value=1), point(M, 3, expression="load + m1"))
    device = driver(*points, replay=str(table))
    await device.connect()
    seen = [tuple(r.raw for r in device.values_at(t)) for t in (0, 0.9, 1, 2, 3, 4.5)]
    assert seen == [(5, 1, 6), (5, 1, 6), (6, 70, 76), (6, 80, 86), (5, 80, 85), (6, 70, 76)]
    once = driver(*points, replay=str(table), loop=False, speed=2)
    await once.connect()
    assert [once.values_at(t)[0].raw for t in (0, 0.5, 1, 100)] == [5, 6, 6, 6]


def test_replayed_times_may_be_dates(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("time,1\n2026-01-01T00:00:00Z,1\n2026-01-01T00:05:00Z,2\n")
    assert read_replay(table).times == [0, 300]


async def test_a_bad_table_names_its_lines(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("time,1\n0,1\nx,2\n0,3\n1,2,3\n")
    with pytest.raises(Invalid) as caught:
        read_replay(table)
    assert [p.path for p in caught.value.problems] == ["line 3", "line 4", "line 5"]
    with pytest.raises(DeviceTrouble, match="cannot be replayed"):
        await driver(point(M, 1), replay=str(table)).connect()


def test_check_names_every_problem() -> None:
    spec = ChannelSpec(
        "1",
        parameters={"replay": "/no/such/file.csv", "speed": 0},
        points=(point(M, 1, expression="p1 + tt"), point(M, 2, noise_range="much"), point(M, 3, expression="sin(")),
    )
    assert [(p.code, p.path) for p in VirtualDriver.check(spec)] == [
        ("no_file", "parameters.replay"),
        ("bad_number", "parameters.speed"),
        ("bad_expression", "points[0].mapping.expression"),
        ("bad_number", "points[1].mapping.noise_range"),
        ("bad_expression", "points[2].mapping.expression"),
    ]


def test_drivers_are_found_by_protocol() -> None:
    registry = DriverRegistry()
    assert {"virtual", "modbus_tcp", "modbus_rtu_tcp", "http"} <= set(registry.names())
    assert registry.get("virtual") is VirtualDriver
    assert isinstance(registry.make(ChannelSpec("1")), VirtualDriver)
    with pytest.raises(Invalid, match="no protocol 'modbus_tpc'") as caught:
        registry.get("modbus_tpc")
    assert caught.value.hint.startswith('did you mean "modbus_tcp"?')
    assert [p.code for p in registry.check(ChannelSpec("1", protocol="x"))] == ["unknown_protocol"]
    assert registry.check(ChannelSpec("1", protocol="http")) == []


def test_a_driver_of_the_process_comes_first() -> None:
    class Mine(VirtualDriver):
        protocol = "mine"

    registry = DriverRegistry([])
    registry.add(Mine)
    driver: type[Driver] = registry.get("mine")
    assert driver is Mine
