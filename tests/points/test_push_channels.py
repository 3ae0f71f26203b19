"""MQTT and OPC UA channels at work: values on the board, a server that dies and comes back, commands read back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import aiomqtt
import pytest
from asyncua import Client, ua

from tests import servers
from tests.points.opcua_server import opcua_server
from tests.points.site import Site
from tradewind.points.acquisition import new_owner
from tradewind.points.command_record import Command, CommandRequest, CommandStatus, Result
from tradewind.points.command_run import CommandRunner
from tradewind.points.commands import Commands
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings

M, C, A = Kind.MEASUREMENT, Kind.CONTROL, Kind.ADJUSTMENT


class Plant(Site):
    """A site whose engine carries commands out."""

    def commands(self) -> Commands:
        return Commands(self.plane, self.board, self.store)

    @contextlib.asynccontextmanager
    async def at_work(self, channel: ChannelSpec) -> AsyncIterator[Commands]:
        await self.store.put([channel])
        commands, owner = self.commands(), new_owner()
        runner = CommandRunner(commands.store, self.board, owner)
        async with self.running(commands=runner, owner=owner):
            await self.online(channel.id)
            yield commands

    async def shows(self, point: str, value: float, quality: str = "good") -> None:
        async def is_so() -> bool:
            found = (await self.values("1001")).get(point)
            return found is not None and (found.value, found.quality) == (value, quality)

        await self.until(is_so, f"{point} = {value} {quality}")


@pytest.fixture
async def plant(redis_7: servers.Server, key_prefix: str) -> AsyncIterator[Plant]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield Plant(link, key_prefix)
    await link.close()


@pytest.fixture
def broker() -> Iterator[servers.Server]:
    with servers.mosquitto_server() as server:
        yield server


@contextlib.asynccontextmanager
async def device(port: int) -> AsyncIterator[aiomqtt.Client]:
    """A device that does what is set, and says so, in tenths."""

    async def obey(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            await client.publish("dev/state", json.dumps({"limit": json.loads(message.payload)["set"]}), qos=1)

    async with aiomqtt.Client("127.0.0.1", port) as client:
        await client.subscribe("dev/set", qos=1)
        task = asyncio.create_task(obey(client))
        try:
            yield client
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def mqtt_channel(broker: servers.Server) -> ChannelSpec:
    return ChannelSpec(
        "1001",
        protocol="mqtt",
        timeout_ms=1000,
        parameters={"host": "127.0.0.1", "port": broker.port},
        points=(
            PointSpec(M, "1", mapping={"topic": "dev/power"}, scale=0.5),
            PointSpec(M, "2", mapping={"topic": "dev/state", "json_path": "limit"}, scale=0.1),
            PointSpec(
                A, "3", scale=0.1, data_type="int16", read_back="m:2",
                mapping={"write_topic": "dev/set", "write_payload": '{"set":{value}}'},
            ),
        ),
    )  # fmt: skip


async def done(commands: Commands, point: str, value: float, **options: float) -> Command:
    accepted = await commands.submit(CommandRequest(address=f"comsrv:1001:{point}", value=value, **options))
    return await commands.wait(accepted.id, 10)


async def test_mqtt(plant: Plant, broker: servers.Server) -> None:
    async with plant.at_work(mqtt_channel(broker)) as commands:
        async with device(broker.port) as client:
            await client.publish("dev/power", "21", qos=1, retain=True)
            await plant.shows("1", 10.5)
            command = await done(commands, "a:3", 42.28)
            assert (command.status, command.result, command.actual) == (CommandStatus.SUCCESS, Result.VERIFIED, 42.3)
            assert (await plant.values("1001", A))["3"].value == 42.28
            again = await done(commands, "a:3", 42.28)
            assert again.result is Result.VERIFIED, "a value that the board does not write again, as it is the same"
        unheard = await done(commands, "a:3", 50, timeout_s=0.4)
        assert (unheard.status, unheard.result) == (CommandStatus.TIMEOUT, Result.UNVERIFIED), "the device is not there"
        broker.kill()
        await plant.shows("1", 10.5, "bad")
        broker.start()
        async with device(broker.port) as client:

            async def is_back() -> bool:
                await client.publish("dev/power", "22", qos=1)  # heard once the channel has connected again
                found = (await plant.values("1001"))["1"]
                return (found.value, found.quality) == (11, "good")

            await plant.until(is_back, "good values")


async def test_commands_wait_for_a_broker_that_comes_back_or_expire(plant: Plant, broker: servers.Server) -> None:
    async with plant.at_work(mqtt_channel(broker)) as commands:
        broker.kill()

        async def is_offline() -> bool:
            return (await plant.status("1001"))["online"] == "0"

        await plant.until(is_offline, "offline")
        address = "comsrv:1001:a:3"
        waits = await commands.submit(CommandRequest(address=address, value=1))
        expires = await commands.submit(CommandRequest(address=address, value=2, expiry_s=0.1))
        assert waits.note == "channel 1001 is offline"
        await asyncio.sleep(0.2)
        assert await commands.sweep() == [expires.id]
        broker.start()
        async with device(broker.port):
            assert (await commands.wait(waits.id, 20)).status is CommandStatus.SUCCESS
        assert (await commands.get(expires.id)).result is Result.EXPIRED


async def test_opcua(plant: Plant) -> None:
    with opcua_server() as server:
        channel = ChannelSpec(
            "1001",
            protocol="opcua",
            timeout_ms=2000,
            parameters={"endpoint": server.url, "publishing_interval_ms": 50},
            points=(
                PointSpec(M, "1", mapping={"node_id": "ns=2;s=Power"}),
                PointSpec(M, "2", mapping={"node_id": "ns=2;s=Count"}, scale=0.1),
                PointSpec(A, "3", mapping={"node_id": "ns=2;s=Count"}, scale=0.1, data_type="int32", read_back="m:2"),
                PointSpec(A, "4", mapping={"node_id": "ns=2;s=Fixed"}),
            ),
        )
        async with plant.at_work(channel) as commands:
            async with Client(server.url) as other:
                node = other.get_node("ns=2;s=Power")
                await node.write_value(ua.DataValue(ua.Variant(12.5, ua.VariantType.Double)))
                await plant.shows("1", 12.5)
                command = await done(commands, "a:3", 4228.9)
                assert (command.status, command.result) == (CommandStatus.SUCCESS, Result.VERIFIED)
                assert await other.get_node("ns=2;s=Count").read_value() == 42289
                refused = await done(commands, "a:4", 5)
                assert (refused.status, refused.result) == (CommandStatus.FAILED, Result.REFUSED)
            server.kill()
            await plant.shows("1", 12.5, "bad")
            server.start()
            await plant.shows("1", 0.0)
