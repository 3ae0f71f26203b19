"""The OPC UA driver with a real server in another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from asyncua import Client, ua

from tests.points.listening import listening
from tests.points.opcua_server import URI, opcua_server
from tests.process import Server
from tradewind.errors import Invalid
from tradewind.points.driver import DeviceTrouble
from tradewind.points.drivers.opcua import OpcUaDriver
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality

M, S, C, A = Kind.MEASUREMENT, Kind.SIGNAL, Kind.CONTROL, Kind.ADJUSTMENT
POINTS = (
    PointSpec(M, "1", mapping={"node_id": "ns=2;s=Power"}),
    PointSpec(M, "2", mapping={"node_id": f"nsu={URI};s=Count"}),
    PointSpec(S, "3", mapping={"node_id": "ns=2;s=Run"}),
    PointSpec(M, "4", mapping={"node_id": "ns=2;s=Nowhere"}),
    PointSpec(M, "5", mapping={"node_id": "nsu=urn:other;s=Power"}),
    PointSpec(M, "6", mapping={"node_id": "ns=2;s=List"}),
    PointSpec(M, "7", mapping={"node_id": "ns=2;s=Power"}),
    PointSpec(C, "11", mapping={"node_id": "ns=2;s=Run"}),
    PointSpec(A, "12", mapping={"node_id": "ns=2;s=Count"}),
    PointSpec(A, "13", mapping={"node_id": "ns=2;s=Limit"}),
    PointSpec(A, "14", mapping={"node_id": "ns=2;s=Small"}),
    PointSpec(A, "15", mapping={"node_id": "ns=2;s=Fixed"}),
    PointSpec(A, "16", mapping={"node_id": "ns=2;s=Text"}),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with opcua_server() as server:
        yield server


def channel(server: Server, **parameters: Any) -> ChannelSpec:
    given = {"endpoint": server.url, "publishing_interval_ms": 50, **parameters}
    return ChannelSpec("1001", protocol="opcua", timeout_ms=2000, parameters=given, points=POINTS)


@pytest.fixture
async def plant(server: Server) -> AsyncIterator[Client]:
    async with Client(server.url) as client:
        yield client


def point(name: str) -> PointSpec:
    return next(point for point in POINTS if point.id == name)


async def put(plant: Client, node: str, value: Any, kind: ua.VariantType, **more: Any) -> None:
    await plant.get_node(f"ns=2;s={node}").write_value(ua.DataValue(ua.Variant(value, kind), **more))


async def test_values_arrive_with_their_times(server: Server, plant: Client) -> None:
    async with listening(OpcUaDriver(channel(server))) as heard:
        moment = datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)
        await put(plant, "Power", 12.5, ua.VariantType.Double, SourceTimestamp=moment.replace(tzinfo=None))
        found = await heard.value("1", 12.5)
        assert (found.quality, found.ts_ms) == (Quality.GOOD, 1_700_000_000_250)
        assert (await heard.value("7", 12.5)).kind is M, "two points of one node"
        await put(plant, "Count", -7, ua.VariantType.Int32)
        await heard.value("2", -7)
        await put(plant, "Run", True, ua.VariantType.Boolean)
        assert (await heard.value("3", 1)).kind is S


async def test_status_codes_become_qualities(server: Server, plant: Client) -> None:
    async with listening(OpcUaDriver(channel(server))) as heard:
        for number, (code, quality) in enumerate(
            (
                (ua.StatusCodes.UncertainLastUsableValue, Quality.UNCERTAIN),
                (ua.StatusCodes.BadSensorFailure, Quality.BAD),
                (ua.StatusCodes.GoodLocalOverride, Quality.UNCERTAIN),
                (ua.StatusCodes.Good, Quality.GOOD),
            )
        ):
            value = 100.0 + number
            await put(plant, "Power", value, ua.VariantType.Double, StatusCode=ua.StatusCode(code))
            if quality is Quality.BAD:  # such a value may be left out on the way
                await heard.until(lambda: (found := heard.last("1")) is not None and found.quality is Quality.BAD)
            else:
                assert (await heard.value("1", value)).quality is quality


async def test_nodes_that_are_not_there_or_no_numbers_are_bad(server: Server) -> None:
    async with listening(OpcUaDriver(channel(server))) as heard:
        await heard.until(lambda: all(heard.last(name) is not None for name in "12456"))
        bad = {name for name in "12456" if (found := heard.last(name)) and found.quality is Quality.BAD}
        assert bad == {"4", "5", "6"}


async def test_no_change_between_two_publishings_is_lost(server: Server, plant: Client) -> None:
    async with listening(OpcUaDriver(channel(server, publishing_interval_ms=300, sampling_interval_ms=0))) as heard:
        await heard.until(lambda: heard.last("2") is not None)
        heard.all.clear()
        for number in range(1, 9):
            await put(plant, "Count", 1000 + number, ua.VariantType.Int32)
        await heard.value("2", 1008)
        assert [reading.raw for reading in heard.all if reading.id == "2"] == list(range(1001, 1009))


async def test_writes_have_the_type_of_the_node(server: Server, plant: Client) -> None:
    driver = OpcUaDriver(channel(server))
    await driver.connect()
    for name, raw, node, stored in (
        ("11", 1.0, "Run", True), ("12", 41.6, "Count", 42), ("12", -41.5, "Count", -42), ("13", 2.5, "Limit", 2.5),
        ("14", 255.0, "Small", 255), ("16", 3.5, "Text", "3.5"),
    ):  # fmt: skip
        await driver.write(point(name), raw)
        value = await plant.get_node(f"ns=2;s={node}").read_value()
        assert value == stored and type(value) is type(stored)
    found = await driver.read(point("13"))
    assert found is not None and (found.raw, found.quality) == (2.5, Quality.GOOD)
    await driver.close()


async def test_a_refused_write_is_no_trouble_with_the_connection(server: Server) -> None:
    driver = OpcUaDriver(channel(server))
    await driver.connect()
    with pytest.raises(Invalid, match="refused"):
        await driver.write(point("15"), 2.0)
    with pytest.raises(Invalid, match="does not fit"):
        await driver.write(point("14"), 256.0)
    with pytest.raises(Invalid):
        await driver.write(point("5"), 1.0)
    await driver.write(point("13"), 1.0)
    await driver.close()


async def test_a_server_that_dies_is_trouble_and_then_fine_again() -> None:
    with opcua_server() as server:
        spec = channel(server)
        driver = OpcUaDriver(spec)
        async with listening(driver) as heard:
            await heard.until(lambda: heard.last("1") is not None)
            server.kill()
            assert heard.listener is not None
            with pytest.raises(DeviceTrouble):
                async with asyncio.timeout(5):
                    await heard.listener
            with pytest.raises(DeviceTrouble):
                await driver.write(point("13"), 1.0)
        again = OpcUaDriver(spec)
        with pytest.raises(DeviceTrouble):
            await again.connect()
        await again.close()
        server.start()
        async with listening(OpcUaDriver(spec)) as heard, Client(server.url) as plant:
            await put(plant, "Power", 3.5, ua.VariantType.Double)
            await heard.value("1", 3.5)


async def test_a_server_that_falls_silent_is_noticed() -> None:
    with opcua_server() as server:
        driver = OpcUaDriver(channel(server))
        async with listening(driver) as heard:
            await heard.until(lambda: heard.last("1") is not None)
            server.pause()
            with pytest.raises(DeviceTrouble):
                async with asyncio.timeout(3):
                    await driver.write(point("13"), 1.0)
            assert heard.listener is not None
            with pytest.raises(DeviceTrouble):
                async with asyncio.timeout(6):
                    await heard.listener
            server.resume()


async def test_user_and_password() -> None:
    with opcua_server("ann", "secret") as server:
        good = OpcUaDriver(channel(server, username="ann", password="secret"))
        await good.connect()
        await good.write(point("13"), 9.0)
        await good.close()
        for given in ({"username": "ann", "password": "wrong"}, {}):
            bad = OpcUaDriver(channel(server, **given))
            with pytest.raises(DeviceTrouble):
                await bad.connect()
            await bad.close()


def test_bad_definitions_are_found_beforehand() -> None:
    points = (
        PointSpec(M, "1"),
        PointSpec(M, "2", mapping={"node_id": "Boiler"}),
        PointSpec(A, "3", mapping={"node_id": "ns=2;i=5", "data_type": "complex"}),
    )
    given = {"endpoint": "http://x", "publishing_interval_ms": 1, "user": "x"}
    found = OpcUaDriver.check(ChannelSpec("1", protocol="opcua", parameters=given, points=points))
    assert {(problem.code, problem.path) for problem in found} == {
        ("missing", "parameters.endpoint"), ("bad_number", "parameters.publishing_interval_ms"),
        ("unknown_parameter", "parameters.user"), ("bad_node_id", "points[0].mapping.node_id"),
        ("bad_node_id", "points[1].mapping.node_id"), ("bad_data_type", "points[2].mapping.data_type"),
    }  # fmt: skip
