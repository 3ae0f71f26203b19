"""The Modbus driver against real servers in other processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.points.modbus_server import modbus_server
from tests.process import Server
from tradewind.errors import Invalid
from tradewind.points.driver import DeviceTrouble
from tradewind.points.drivers.modbus import ModbusRtuOverTcp, ModbusTcp
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality

M, S, C, A = Kind.MEASUREMENT, Kind.SIGNAL, Kind.CONTROL, Kind.ADJUSTMENT


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with modbus_server(units=[1, 2], holes=[700]) as server:
        yield server


@pytest.fixture(scope="module")
def rtu() -> Iterator[Server]:
    with modbus_server(rtu=True) as server:
        yield server


def point(kind: Kind, number: int, data_type: str = "uint16", **mapping: Any) -> PointSpec:
    mapping = {"register_address": number, "data_type": data_type, **mapping}
    return PointSpec(kind, str(mapping.pop("id", number)), mapping=mapping)


def channel(server: Server, *points: PointSpec, timeout_ms: int = 1000, **parameters: Any) -> ChannelSpec:
    given = {"host": "127.0.0.1", "port": server.port, **parameters}
    return ChannelSpec("1001", protocol="modbus_tcp", timeout_ms=timeout_ms, parameters=given, points=points)


async def poll(driver: ModbusTcp) -> dict[str, float | None]:
    """Values by point id; None for bad ones."""
    return {r.id: r.raw if r.quality is Quality.GOOD else None for r in await driver.poll()}


async def test_a_thousand_registers_arrive(server: Server) -> None:
    driver = ModbusTcp(channel(server, *(point(M, n, function_code=4) for n in range(1000))))
    await driver.connect()
    assert await poll(driver) == {str(n): n + 10_000 for n in range(1000)}
    await driver.close()


async def test_rtu_frames_over_tcp(rtu: Server) -> None:
    points = [point(M, n, function_code=4) for n in range(300)]
    driver = ModbusRtuOverTcp(channel(rtu, *points, point(S, 3, "bool", id="9001"), point(A, 40)))
    await driver.connect()
    found = await poll(driver)
    assert found.pop("9001") == 1
    assert found == {str(n): n + 10_000 for n in range(300)}
    await driver.write(driver.channel.points[-1], 41.6)
    reading = await driver.read(driver.channel.points[-1])
    assert reading is not None
    assert reading.raw == 42
    await driver.close()


async def test_types_bits_and_units(server: Server) -> None:
    points = [
        point(M, 1, "uint32", id="1"),
        point(M, 1, "uint32", id="2", byte_order="CDAB", slave_id=2),
        point(S, 3, "bool", id="3", function_code=1),
        point(S, 4, "bool", id="4", function_code=2),
        point(S, 5, "bool", id="5", function_code=3, bit_position=2),
        point(S, 5, "bool", id="6", function_code=3, bit_position=1),
    ]
    driver = ModbusTcp(channel(server, *points))
    await driver.connect()
    assert await poll(driver) == {"1": 0x10002, "2": 0x20001, "3": 1, "4": 0, "5": 1, "6": 0}
    await driver.close()


async def test_only_the_refused_register_is_bad(server: Server) -> None:
    driver = ModbusTcp(channel(server, *(point(M, n) for n in range(650, 750))))
    await driver.connect()
    for _ in range(2):
        assert await poll(driver) == {str(n): n if n != 700 else None for n in range(650, 750)}
    await driver.close()


async def test_writes_reach_the_right_registers_rounded(server: Server) -> None:
    points = {
        "word": point(A, 100, "uint16", function_code=6),
        "real": point(A, 102, "float32", byte_order="CDAB"),
        "long": point(A, 104, "int32", function_code=16),
        "coil": point(C, 106, "bool", function_code=5),
        "coils": point(C, 107, "bool", function_code=15),
        "bit": point(C, 108, "bool", function_code=6, bit_position=4),
        "switch": point(C, 110, "bool", function_code=6),
    }
    driver = ModbusTcp(channel(server, *points.values(), *(point(M, n) for n in range(98, 113))))
    await driver.connect()
    await driver.write(points["word"], 4228.9 / 0.1)
    await driver.write(points["real"], -1.5)
    await driver.write(points["long"], -70_000.4)
    for name in ("coil", "coils", "bit"):
        await driver.write(points[name], 1)
    await driver.write(points["switch"], 255)  # its on_value
    found = await poll(driver)
    assert [found[str(n)] for n in range(98, 113)] == [
        98, 99, 42289, 101, 0x0000, 0xBFC0, 0xFFFE, 0xEE90, 106, 107, 108 | 1 << 4, 109, 255, 111, 112,
    ]  # fmt: skip
    back = {name: await driver.read(p) for name, p in points.items()}
    assert {name: r.raw for name, r in back.items() if r is not None} == {
        "word": 42289, "real": -1.5, "long": -70_000, "coil": 1, "coils": 1, "bit": 1, "switch": 255,
    }  # fmt: skip
    await driver.write(points["bit"], 0)
    assert (await poll(driver))["108"] == 108 & ~(1 << 4)
    await driver.close()


async def test_a_refused_write_says_so(server: Server) -> None:
    bad = point(A, 5000, function_code=6)
    driver = ModbusTcp(channel(server, bad, point(A, 7, "int16", function_code=6)))
    await driver.connect()
    with pytest.raises(Invalid, match=r"refused register 5000: illegal data address \(2\)"):
        await driver.write(bad, 1)
    with pytest.raises(Invalid, match="does not fit"):
        await driver.write(driver.channel.points[1], 40_000)
    await driver.close()


async def test_a_closed_port_is_trouble(server: Server) -> None:
    driver = ModbusTcp(channel(server, point(M, 1), port=1))
    with pytest.raises(DeviceTrouble, match="does not accept a connection"):
        await driver.connect()
    await driver.close()


async def test_a_server_killed_in_the_middle_of_a_request_is_noticed_at_once() -> None:
    with modbus_server(delay_ms=20_000) as server:
        driver = ModbusTcp(channel(server, point(M, 1), timeout_ms=15_000))
        await driver.connect()
        polling = asyncio.create_task(driver.poll())
        await asyncio.sleep(0.2)  # the request is on its way
        began = time.monotonic()
        server.kill()
        with pytest.raises(DeviceTrouble, match="closed the connection"):
            await polling
        assert time.monotonic() - began < 5
        with pytest.raises(DeviceTrouble, match="closed the connection"):
            await driver.poll()
        await driver.close()


async def test_a_silent_device_is_trouble_within_the_timeout() -> None:
    with modbus_server() as server:
        driver = ModbusTcp(channel(server, point(M, 1), point(A, 2), timeout_ms=300))
        await driver.connect()
        server.pause()
        began = time.monotonic()
        with pytest.raises(DeviceTrouble, match="unit 1 does not answer"):
            await driver.poll()
        assert 0.25 < time.monotonic() - began < 2
        with pytest.raises(DeviceTrouble, match="did not confirm a write to register 2"):
            await driver.write(driver.channel.points[1], 3)
        await driver.close()
        server.resume()


async def test_a_cancelled_poll_stays_cancelled() -> None:
    with modbus_server(delay_ms=20_000) as server:
        driver = ModbusTcp(channel(server, point(M, 1), timeout_ms=15_000))
        await driver.connect()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await driver.poll()
        await driver.close()


async def test_no_cancellation_is_lost_when_the_answer_comes_at_the_same_moment(server: Server) -> None:
    async def work() -> None:
        driver = ModbusTcp(channel(server, *(point(M, n) for n in range(10))))
        try:
            await driver.connect()
            while True:
                await driver.poll()
        finally:
            await driver.close()

    for number in range(100):
        task = asyncio.create_task(work())
        await asyncio.sleep(number * 0.00006)
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()


async def test_one_dead_unit_behind_a_gateway_spoils_only_its_own_points() -> None:
    with modbus_server(units=[1, 2, 3], gone=[2]) as server:
        points = [point(M, 10, id=str(unit), slave_id=unit) for unit in (1, 2, 3)]
        driver = ModbusTcp(channel(server, *points))
        await driver.connect()
        for _ in range(3):
            assert await poll(driver) == {"1": 10, "2": None, "3": 10}
        await driver.close()
        alone = ModbusTcp(channel(server, points[1]))
        await alone.connect()
        with pytest.raises(DeviceTrouble, match="unit 2 does not answer"):
            await alone.poll()
        await alone.close()


@pytest.mark.parametrize("rtu", [False, True])
async def test_a_unit_whose_answers_get_lost_spoils_only_its_own_points(rtu: bool) -> None:
    with modbus_server(units=[1, 2, 3], silent=[2], rtu=rtu) as server:
        points = [point(M, 10 * unit, id=str(unit), slave_id=unit) for unit in (1, 2, 3)]
        driver = (ModbusRtuOverTcp if rtu else ModbusTcp)(channel(server, *points))
        await driver.connect()
        began = time.monotonic()
        for _ in range(3):
            assert await poll(driver) == {"1": 10, "2": None, "3": 30}
        assert time.monotonic() - began < 2  # it is not waited for with each poll
        await driver.close()


async def test_a_device_that_answers_few_registers_at_once() -> None:
    with modbus_server(most=16) as server:
        driver = ModbusTcp(channel(server, *(point(M, n) for n in range(100))))
        await driver.connect()
        for _ in range(2):
            assert await poll(driver) == {str(n): n for n in range(100)}
        await driver.close()


async def test_a_device_too_slow_for_its_timeout_is_read_in_turns() -> None:
    with modbus_server(delay_ms=60) as server:
        driver = ModbusTcp(channel(server, *(point(M, n * 50) for n in range(8)), timeout_ms=400, max_gap=0))
        await driver.connect()
        began = time.monotonic()
        first = await poll(driver)
        assert time.monotonic() - began < 2
        assert 1 <= len(first) < 8
        seen = dict(first)
        for _ in range(8):
            seen |= await poll(driver)
        assert seen == {str(n * 50): n * 50 for n in range(8)}
        await driver.close()


def test_check_names_every_problem() -> None:
    points = (point(M, 1), PointSpec(M, "2"), point(A, 3, "float32", function_code=6))
    spec = ChannelSpec("1", protocol="modbus_tcp", parameters={"port": "x", "max_gap": -1}, points=points)
    assert {(p.path, p.code) for p in ModbusTcp.check(spec)} == {
        ("parameters.host", "missing"),
        ("parameters.port", "bad_number"),
        ("parameters.max_gap", "bad_number"),
        ("points[1].mapping.register_address", "missing"),
        ("points[2].mapping.function_code", "bad_function_code"),
    }
