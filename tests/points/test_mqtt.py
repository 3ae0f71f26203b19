"""The MQTT driver with a real broker."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiomqtt
import pytest

from tests import servers
from tests.points.listening import listening
from tradewind.errors import Invalid
from tradewind.points.driver import DeviceTrouble
from tradewind.points.drivers.mqtt import MqttDriver
from tradewind.points.drivers.mqtt_topics import number_of, sources_of, time_of
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality

M, S, C, A = Kind.MEASUREMENT, Kind.SIGNAL, Kind.CONTROL, Kind.ADJUSTMENT
POINTS = (
    PointSpec(M, "1", name="power", mapping={"topic": "site/{channel}/{name}"}),
    PointSpec(M, "2", mapping={"topic": "site/meter", "json_path": "$.v[0]", "timestamp_path": "ts"}),
    PointSpec(M, "3", mapping={"topic": "site/meter", "json_path": "v[1]"}),
    PointSpec(S, "4", mapping={"topic": "site/pump"}),
    PointSpec(M, "5", mapping={"topic": "wild/+/t"}),
    PointSpec(C, "6", mapping={"write_topic": "set/{kind}/{point}"}),
    PointSpec(
        A, "7", name="limit", mapping={"write_topic": "set/{name}", "write_payload": '{"set":{value},"by":"tw"}'}
    ),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[servers.Server]:
    with servers.mosquitto_server() as server:
        yield server


def channel(port: int, points: tuple[PointSpec, ...] = POINTS, **parameters: Any) -> ChannelSpec:
    given = {"host": "127.0.0.1", "port": port, **parameters}
    return ChannelSpec("1001", protocol="mqtt", timeout_ms=2000, parameters=given, points=points)


@pytest.fixture
async def other(broker: servers.Server) -> AsyncIterator[aiomqtt.Client]:
    """The device's own connection."""
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        yield client


async def test_values_arrive(broker: servers.Server, other: aiomqtt.Client) -> None:
    driver = MqttDriver(channel(broker.port))
    async with listening(driver) as heard:
        await other.publish("site/1001/power", "12.5", qos=1)
        assert (await heard.value("1", 12.5)).quality is Quality.GOOD
        await other.publish("site/meter", json.dumps({"v": [1, "2.5"], "ts": 1_700_000_000.5}), qos=1)
        assert (await heard.value("2", 1)).ts_ms == 1_700_000_000_500
        assert (await heard.value("3", 2.5)).ts_ms == 0
        for word, raw in (("ON", 1), ("off", 0), ("true", 1), ("0", 0)):
            await other.publish("site/pump", word, qos=1)
            await heard.value("4", raw)
        await other.publish("wild/a/t", "7", qos=1)
        await heard.value("5", 7)


async def test_what_cannot_be_read_is_bad_and_disturbs_nothing_else(
    broker: servers.Server, other: aiomqtt.Client
) -> None:
    driver = MqttDriver(channel(broker.port))
    async with listening(driver) as heard:
        for payload in (b"nonsense", b"\xff\xfe", b"NaN", b"1e999", b'{"a":1}', b""):
            heard.all.clear()
            await other.publish("site/1001/power", payload, qos=1)
            await heard.until(lambda: heard.last("1") is not None)
            found = heard.last("1")
            assert found is not None and found.quality is Quality.BAD and math.isnan(found.raw)
        await other.publish("site/meter", '{"v":[3]}', qos=1)
        await heard.value("2", 3)
        missing = heard.last("3")
        assert missing is not None and missing.quality is Quality.BAD


async def test_many_messages_arrive_in_order(broker: servers.Server, other: aiomqtt.Client) -> None:
    driver = MqttDriver(channel(broker.port, qos=1))
    async with listening(driver) as heard:
        for number in range(1, 301):
            await other.publish("site/1001/power", str(number), qos=0)
        await heard.value("1", 300)
        assert [reading.raw for reading in heard.all if reading.id == "1"] == list(range(1, 301))


async def test_writes_are_published_as_the_templates_say(broker: servers.Server, other: aiomqtt.Client) -> None:
    await other.subscribe("set/#", qos=1)
    driver = MqttDriver(channel(broker.port))
    async with listening(driver):
        await driver.write(POINTS[5], 1.0)
        await driver.write(POINTS[6], 55.5)
        got = []
        async with asyncio.timeout(5):
            async for message in other.messages:
                got.append((message.topic.value, message.payload))
                if len(got) == 2:
                    break
    assert got == [("set/c/6", b"1"), ("set/limit", b'{"set":55.5,"by":"tw"}')]
    with pytest.raises(Invalid):
        await driver.write(PointSpec(C, "99"), 1)


async def test_retained_values_are_worth_what_the_channel_says(broker: servers.Server, other: aiomqtt.Client) -> None:
    await other.publish("kept/1", "5", qos=1, retain=True)
    await other.publish("kept/2", '{"v":6,"at":1700000000000}', qos=1, retain=True)
    points = (
        PointSpec(M, "1", mapping={"topic": "kept/1"}),
        PointSpec(M, "2", mapping={"topic": "kept/2", "json_path": "v", "timestamp_path": "at"}),
    )
    for said, quality in ((None, Quality.UNCERTAIN), ("good", Quality.GOOD)):
        given = {} if said is None else {"retained": said}
        async with listening(MqttDriver(channel(broker.port, points, **given))) as heard:
            assert (await heard.value("1", 5)).quality is quality
            assert (await heard.value("2", 6)).quality is Quality.GOOD, "it has a time of its own"
    async with listening(MqttDriver(channel(broker.port, points, retained="ignore"))) as heard:
        await heard.value("2", 6)
        assert heard.last("1") is None


async def test_a_last_will_makes_the_points_bad_until_the_device_is_back(
    broker: servers.Server, other: aiomqtt.Client
) -> None:
    points = (PointSpec(M, "1", mapping={"topic": "dev/power"}), PointSpec(S, "2", mapping={"topic": "dev/door"}))
    driver = MqttDriver(channel(broker.port, points, status_topic="dev/status", retained="good"))
    await other.publish("dev/power", "1", qos=1, retain=True)
    will = aiomqtt.Will("dev/status", "offline", qos=1, retain=True)
    async with listening(driver) as heard:
        await heard.value("1", 1)
        async with aiomqtt.Client("127.0.0.1", broker.port, will=will, keepalive=60) as device:
            await device.publish("dev/status", "online", qos=1, retain=True)
            await device.publish("dev/power", "2", qos=1, retain=True)
            await heard.value("1", 2)
            device._client.socket().close()  # type: ignore[union-attr]  # gone without a word
            await heard.until(lambda: all((r := heard.last(p)) is not None and r.quality is Quality.BAD for p in "12"))
            device._disconnected.set_result(None)
        heard.all.clear()
        await other.publish("dev/status", "online", qos=1, retain=True)
        assert (await heard.value("1", 2)).quality is Quality.GOOD, "what is retained comes again"


async def test_a_broker_that_dies_is_trouble_and_then_fine_again() -> None:
    with servers.mosquitto_server() as broker:
        spec = channel(broker.port)
        driver = MqttDriver(spec)
        async with listening(driver) as heard:
            broker.kill()
            assert heard.listener is not None
            with pytest.raises(DeviceTrouble):
                async with asyncio.timeout(5):
                    await heard.listener
            with pytest.raises(DeviceTrouble):
                await driver.write(POINTS[5], 1)
        again = MqttDriver(spec)
        with pytest.raises(DeviceTrouble):
            await again.connect()
        await again.close()
        broker.start()
        driver = MqttDriver(spec)
        async with listening(driver) as heard, aiomqtt.Client("127.0.0.1", broker.port) as other:
            await other.publish("site/1001/power", "3", qos=1)
            await heard.value("1", 3)


async def test_a_broker_that_falls_silent_confirms_no_write() -> None:
    with servers.mosquitto_server() as broker:
        spec = channel(broker.port)
        driver = MqttDriver(spec)
        await driver.connect()
        broker.pause()
        with pytest.raises(DeviceTrouble):
            await driver.write(POINTS[5], 1)
        silent = MqttDriver(spec)
        with pytest.raises(DeviceTrouble):
            async with asyncio.timeout(3):
                await silent.connect()
        broker.resume()
        await driver.close()
        await silent.close()


def problems(points: tuple[PointSpec, ...] = (), **parameters: Any) -> set[tuple[str, str]]:
    spec = ChannelSpec("1", protocol="mqtt", parameters=parameters, points=points)
    return {(problem.code, problem.path) for problem in MqttDriver.check(spec)}


def test_bad_definitions_are_found_beforehand() -> None:
    assert MqttDriver.check(channel(1883)) == []
    assert problems() == {("missing", "parameters.host")}
    assert problems(host="h", port=0, prot=1, retained="x", tls={"cafile": "y"}) == {
        ("bad_number", "parameters.port"), ("unknown_parameter", "parameters.prot"),
        ("bad_value", "parameters.retained"), ("unknown_parameter", "parameters.tls.cafile"),
    }  # fmt: skip
    points = (
        PointSpec(M, "1"),
        PointSpec(M, "2", mapping={"topic": "a/{nobody}"}),
        PointSpec(M, "3", mapping={"topic": "a/b#/c"}),
        PointSpec(M, "4", mapping={"topic": "a", "json_path": "[", "qos": 3, "payload": "xml"}),
        PointSpec(C, "5", mapping={"write_topic": "a/+"}),
        PointSpec(A, "6", mapping={"write_topic": "a", "write_payload": "nothing"}),
    )
    assert problems(points, host="h") == {
        ("no_topic", "points[0].mapping.topic"), ("bad_topic", "points[1].mapping.topic"),
        ("bad_topic", "points[2].mapping.topic"), ("bad_json_path", "points[3].mapping.json_path"),
        ("bad_qos", "points[3].mapping.qos"), ("bad_payload", "points[3].mapping.payload"),
        ("bad_topic", "points[4].mapping.write_topic"), ("bad_payload", "points[5].mapping.write_payload"),
    }  # fmt: skip


def test_topics_of_the_channel_serve_points_without_their_own() -> None:
    spec = channel(1, (PointSpec(M, "8"),), topic="all/{point}", json_path="v")
    assert [(source.topic, source.path) for source in sources_of(spec, [])] == [("all/8", ("v",))]


@pytest.mark.parametrize(
    ("found", "ms"),
    [
        (1_700_000_000, 1_700_000_000_000),
        (1_700_000_000_123, 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("1700000000", 1_700_000_000_000),
        (True, 0), (None, 0), ("later", 0), (-5, 0), (float("inf"), 0),
    ],
)  # fmt: skip
def test_times(found: object, ms: int) -> None:
    assert time_of(found) == ms


def test_words_for_on_and_off() -> None:
    assert [number_of(word) for word in ("Open", "closed", " yes ", "2.5", True)] == [1, 0, 1, 2.5, 1]
    assert all(math.isnan(number_of(word)) for word in ("maybe", None, [], "1_0", "٣", "nan", 10**400))
