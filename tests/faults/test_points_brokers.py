"""An MQTT broker and an OPC UA server that die and return, with a real comsrv process between them and the board."""

from __future__ import annotations

import asyncio
import json

import aiomqtt
from asyncua import Client, ua

from tests.faults.points_plant import A, M, Plant
from tests.points.opcua_server import opcua_server
from tests.servers import mosquitto_server
from tradewind.clock import Clock
from tradewind.points.spec import ChannelSpec, PointSpec

TIMEOUT_S = 2.0
SLACK_S = 1.5
LIMIT = PointSpec(
    A, "3", scale=0.1, data_type="int16", mapping={"write_topic": "dev/set", "write_payload": '{"set":{value}}'}
)
TIMED = PointSpec(M, "4", mapping={"topic": "dev/timed", "json_path": "v", "timestamp_path": "ts"})


def mqtt_channel(port: int, *points: PointSpec) -> ChannelSpec:
    given = {"host": "127.0.0.1", "port": port}
    return ChannelSpec("1001", protocol="mqtt", timeout_ms=int(TIMEOUT_S * 1000), parameters=given, points=points)


async def test_mqtt_through_the_death_of_the_broker(plant: Plant) -> None:
    power = PointSpec(M, "1", mapping={"topic": "dev/power"}, scale=0.5)
    with mosquitto_server() as broker:
        await plant.store.put([mqtt_channel(broker.port, power, LIMIT)])
        plant.start()
        await plant.online("1001")
        async with aiomqtt.Client("127.0.0.1", broker.port) as device:
            await device.subscribe("dev/set", qos=1)
            await device.publish("dev/power", "21", qos=1)
            await plant.shows("1001", {"1": 10.5})
            assert (await plant.done("comsrv:1001:a:3", 42.28)).status == "success"
            async with asyncio.timeout(10):
                message = await anext(aiter(device.messages))
            assert json.loads(message.payload) == {"set": 423}, "rounded"
        await plant.shows("1001", {"3": 42.28}, A)

        broker.kill()
        assert await plant.has_quality("1001", "bad", (M, A)) < TIMEOUT_S + SLACK_S
        assert (await plant.values("1001"))["1"].value == 10.5
        broker.start()
        await plant.online("1001")
        await plant.has_quality("1001", "good", [A])
        async with aiomqtt.Client("127.0.0.1", broker.port) as device:
            await device.publish("dev/power", "22", qos=1)
            await plant.shows("1001", {"1": 11})


async def test_late_repeated_future_and_unreadable_samples_of_a_driver(plant: Plant) -> None:
    """The rules of the board, all the way from a device: newest only, late ones to the feed."""
    now = Clock().now_ms()
    with mosquitto_server() as broker:
        await plant.store.put([mqtt_channel(broker.port, TIMED)])
        plant.start()
        await plant.online("1001")

        async def stored() -> tuple[str, str, str | None]:
            keys, redis = plant.plane.keys, plant.plane.redis
            found = [
                await redis.hget(key("1001", "m"), "4") for key in (keys.points, keys.points_ts, keys.points_quality)
            ]
            value, ts, quality = (text.decode() if text else None for text in found)
            return str(value), str(ts), quality

        async with aiomqtt.Client("127.0.0.1", broker.port) as device:

            async def send(value: str, ts: int, entries: int) -> None:
                """And wait until the feed has so many entries."""
                await device.publish("dev/timed", f'{{"v":{value},"ts":{ts}}}', qos=1)

                async def has_come() -> bool:
                    return len(await plant.feed()) == entries

                await plant.until(has_come, f"{value} in the feed")

            await send("1.5", now, 1)
            assert await stored() == ("1.500000", str(now), None)
            await send("9", now - 1000, 2)
            late = (await plant.feed())[-1]
            assert (late["d"], late["t"], late["l"]) == ("4:9.000000", str(now - 1000), "1")
            assert await stored() == ("1.500000", str(now), None), "the newest only moves forward"
            await device.publish("dev/timed", f'{{"v":1.5,"ts":{now}}}', qos=1)  # a repetition: nothing
            await send("2.5", now, 3)  # of the same time the last counts
            assert await stored() == ("2.500000", str(now), None)
            await send("NaN", now + 1, 4)
            assert (await plant.feed())[-1] == {**(await plant.feed())[-1], "d": "", "q": "4:bad"}
            assert await stored() == ("2.500000", str(now), "bad")
            await send("3.5", now + 3_600_000, 5)
            value, ts, quality = await stored()
            assert (value, quality) == ("3.500000", "uncertain")
            assert now <= int(ts) <= Clock().now_ms() + 1000, "the clock of the server, not of the device"


async def test_opcua_through_the_death_of_the_server(plant: Plant) -> None:
    with opcua_server() as server:
        channel = ChannelSpec(
            "1001",
            protocol="opcua",
            timeout_ms=int(TIMEOUT_S * 1000),
            parameters={"endpoint": server.url, "publishing_interval_ms": 50},
            points=(
                PointSpec(M, "1", mapping={"node_id": "ns=2;s=Power"}, scale=0.5),
                PointSpec(M, "2", mapping={"node_id": "ns=2;s=Count"}, scale=0.1),
                PointSpec(A, "3", mapping={"node_id": "ns=2;s=Count"}, scale=0.1, data_type="int32", read_back="m:2"),
            ),
        )
        await plant.store.put([channel])
        plant.start()
        await plant.online("1001")
        async with Client(server.url) as device:
            await device.get_node("ns=2;s=Power").write_value(ua.DataValue(ua.Variant(25.0, ua.VariantType.Double)))
            await plant.shows("1001", {"1": 12.5})
            ended = await plant.done("comsrv:1001:a:3", 42.28)
            assert (ended.status, ended.actual) == ("success", 42.3)
            assert await device.get_node("ns=2;s=Count").read_value() == 423
        server.kill()
        assert await plant.has_quality("1001", "bad", (M, A)) < TIMEOUT_S + SLACK_S
        assert (await plant.values("1001"))["1"].value == 12.5
        server.start()
        await plant.has_quality("1001", "good", (M, A))
        await plant.shows("1001", {"1": 0, "2": 0})
