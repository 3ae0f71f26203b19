"""Readings with times of their own, from a device that pushes to feed, models, rules and history: none is folded into
another, and what a limit drops is counted, shown and told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import aiomqtt
import pytest
from asyncua import Client, ua

from tests import servers
from tests.history.history_room import QUICK, HistoryRoom
from tests.history.memory_sink import MemorySink
from tests.models.examples import total
from tests.points.opcua_server import opcua_server
from tests.points.site import Site
from tests.rules.rule_room import RuleRoom, rule
from tests.tasks.workshop import eventually
from tradewind.clock import Clock, now_ms
from tradewind.models.engine import ModelEngine
from tradewind.models.store import ModelStore
from tradewind.points import channel_runner
from tradewind.points.board import Board
from tradewind.points.driver import Deliver, DeviceTrouble, Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers.mqtt import MqttDriver
from tradewind.points.feed import FeedEntry, FeedReader
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Reading
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings

M = Kind.MEASUREMENT
TIMED = PointSpec(M, "1", mapping={"topic": "dev", "json_path": "v", "timestamp_path": "ts"})


@pytest.fixture(scope="module")
def broker() -> Iterator[servers.Server]:
    with servers.mosquitto_server() as server:
        yield server


@pytest.fixture
async def link(redis_7: servers.Server) -> AsyncIterator[Link]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield link
    await link.close()


@pytest.fixture
async def site(link: Link, key_prefix: str) -> AsyncIterator[Site]:
    site = Site(link, key_prefix)
    yield site
    await site.plane.close()


def mqtt_channel(broker: servers.Server, *points: PointSpec, **parameters: Any) -> ChannelSpec:
    given = {"host": "127.0.0.1", "port": broker.port, "qos": 1, **parameters}
    return ChannelSpec("1001", protocol="mqtt", timeout_ms=2000, parameters=given, points=points or (TIMED,))


def timed_channel(protocol: str, *points: PointSpec) -> ChannelSpec:
    return ChannelSpec("1001", protocol=protocol, timeout_ms=2000, points=points or (PointSpec(M, "1"),))


async def entries(site: Site) -> list[FeedEntry]:
    """Everything in the feed, as a reader gets it."""
    reader = FeedReader(site.plane, "test", start="oldest", count=10_000)
    try:
        batch = await reader.read(100)
        return list(batch.entries) if batch is not None else []
    finally:
        await reader.close()


async def test_300_messages_with_their_own_times_are_300_samples(
    site: Site, link: Link, key_prefix: str, broker: servers.Server, tmp_path: Path
) -> None:
    room, sink = HistoryRoom(link, key_prefix, tmp_path), MemorySink()
    await room.store.put_policy(QUICK)
    start = now_ms() - 10_000
    await site.store.put([mqtt_channel(broker)])
    async with site.running(), room.recorder(sink):
        await site.online("1001")
        async with aiomqtt.Client("127.0.0.1", broker.port) as device:
            for at in range(300):
                await device.publish("dev", json.dumps({"v": at % 7, "ts": start + at}), qos=1)

        async def has_all() -> bool:
            return sink.rows() == 300

        await site.until(has_all, "300 samples in history")
        assert sink.values("comsrv:1001:m:1") == [at % 7 for at in range(300)]
        assert (await site.status("1001"))["dropped"] == "0"
    found = [entry for entry in await entries(site) if entry.data]
    assert [entry.ts_ms for entry in found] == [start + at for at in range(300)]
    assert not any(entry.is_late for entry in found)
    assert (await site.values("1001"))["1"].ts == start + 299
    await room.plane.close()


async def test_a_burst_during_reloads_arrives_whole_where_the_broker_keeps_the_session(
    site: Site, broker: servers.Server, key_prefix: str
) -> None:
    """What the former connection had taken is written, what came between the two waits at the broker."""
    start, topic = now_ms() - 10_000, f"{key_prefix}dev"
    timed = PointSpec(M, "1", mapping={"topic": topic, "json_path": "v", "timestamp_path": "ts"})
    kept = {"client_id": key_prefix, "clean_session": False}
    await site.store.put([mqtt_channel(broker, timed, **kept)])
    async with site.running() as acquisition:
        await site.online("1001")
        async with aiomqtt.Client("127.0.0.1", broker.port) as device:
            for at in range(900):
                await device.publish(topic, json.dumps({"v": at % 7, "ts": start + at}), qos=1)
                if at % 150 == 149:
                    acquisition.reload("1001")

        async def has_last() -> bool:
            found = (await site.values("1001")).get("1")
            return found is not None and found.ts == start + 899

        await site.until(has_last, "the last of 900 messages")
    found = {entry.ts_ms for entry in await entries(site) if entry.data}
    assert len(found) == 900, f"{900 - len(found)} are lost"
    no_name = mqtt_channel(broker, timed, clean_session=False)
    assert [problem.path for problem in DriverRegistry().check(no_name)] == ["parameters.client_id"]


async def test_messages_that_a_driver_had_taken_when_it_was_closed_are_handed_over(broker: servers.Server) -> None:
    driver, got = MqttDriver(mqtt_channel(broker)), list[Reading]()
    await driver.connect()
    listening = asyncio.create_task(driver.listen(got.extend))
    await asyncio.sleep(0)
    async with aiomqtt.Client("127.0.0.1", broker.port) as device:
        await device.publish("dev", json.dumps({"v": 1, "ts": 5}), qos=1)
        await eventually(lambda: got, "the first message")
        listening.cancel()
        await asyncio.wait([listening])
        for at in range(50):
            await device.publish("dev", json.dumps({"v": at, "ts": 1000 + at}), qos=1)
    assert driver._client is not None
    inbox = driver._client._queue
    await eventually(lambda: inbox.qsize() == 50, "50 messages")
    await driver.close()
    assert [reading.raw for reading in got[1:]] == list(range(50))


async def test_a_queue_of_50_changes_of_an_opcua_node_arrives_whole(site: Site) -> None:
    with opcua_server() as server:
        given = {"endpoint": server.url, "publishing_interval_ms": 1000, "sampling_interval_ms": 0, "queue_size": 50}
        points = (PointSpec(M, "1", mapping={"node_id": "ns=2;s=Power"}),)
        channel = ChannelSpec("1001", protocol="opcua", timeout_ms=3000, parameters=given, points=points)
        await site.store.put([channel])
        async with site.running():
            await site.online("1001")
            async with Client(server.url) as device:
                node = device.get_node("ns=2;s=Power")
                for at in range(1, 51):
                    await node.write_value(ua.DataValue(ua.Variant(float(at), ua.VariantType.Double)))

            async def has_last() -> bool:
                found = (await site.values("1001")).get("1")
                return found is not None and found.value == 50

            await site.until(has_last, "the last of 50 changes")
        found = [entry.values()["1"] for entry in await entries(site) if entry.data]
    assert [value for value in found if value] == list(range(1, 51))


class Bursts(Driver):
    """A driver of somebody's own: hands over what the test put into `waiting`."""

    protocol: ClassVar[str] = "bursts"
    is_polled: ClassVar[bool] = False
    waiting: ClassVar[asyncio.Queue[Sequence[Reading]]]

    async def connect(self) -> None: ...

    async def listen(self, deliver: Deliver) -> None:
        while readings := await self.waiting.get():
            deliver(readings)
        raise DeviceTrouble("somebody pulled the plug")

    async def write(self, point: PointSpec, raw: float) -> None: ...


@pytest.fixture
def bursts() -> DriverRegistry:
    Bursts.waiting = asyncio.Queue()
    registry = DriverRegistry()
    registry.add(Bursts)
    return registry


async def test_why_a_device_that_pushes_went_away_is_shown(site: Site, bursts: DriverRegistry) -> None:
    await site.store.put([timed_channel("bursts")])
    async with site.running(drivers=bursts):
        await site.online("1001")
        for _ in range(4):  # again and again, until it shows in a status, which is written once a second
            Bursts.waiting.put_nowait(())

        async def is_told() -> bool:
            return "somebody pulled the plug" in (await site.status("1001"))["error"]

        await site.until(is_told, "the reason")


def excursions(start: int) -> list[Reading]:
    """20 of them, each 1 ms long."""
    return [Reading(M, "1", 100.0 * (at % 2), start + at) for at in range(41)]


async def test_twenty_excursions_in_one_burst_raise_and_clear_twenty_times(
    site: Site, link: Link, key_prefix: str, bursts: DriverRegistry
) -> None:
    room = RuleRoom(link, key_prefix, Clock())
    await room.store.put(rule(actions=[{"type": "create_alarm", "parameters": {"level": "High", "title": "hot"}}]))
    await site.store.put([timed_channel("bursts")])
    async with room.leading(), site.running(drivers=bursts):
        await site.online("1001")
        await Bursts.waiting.put([Reading(M, "1", 0.0, now_ms() - 1000)])
        await site.until(room.is_caught_up, "the first value judged")
        await Bursts.waiting.put(excursions(now_ms() - 500))
        told = await room.told("hot", 40)
        assert [execution["triggered"] for execution in told] == [True, False] * 20
    await room.plane.close()


async def test_excursions_of_a_model_raise_as_often_as_those_of_its_point(
    site: Site, link: Link, key_prefix: str, bursts: DriverRegistry
) -> None:
    room = RuleRoom(link, key_prefix, Clock())
    models = ModelStore(link, site.plane.keys)
    await models.put(total(points=1))
    limit = {"operator": ">", "value": 75, "source": "modsrv:total:measurement:total", "field": "t"}
    await room.store.put(rule(conditions=[limit]))
    await site.store.put([timed_channel("bursts")])
    engine, stop = ModelEngine(room.plane, Board(room.plane), models), asyncio.Event()
    computing = asyncio.create_task(engine.run(stop))
    try:
        async with room.leading(), site.running(drivers=bursts):
            await site.online("1001")
            await Bursts.waiting.put([Reading(M, "1", 0.0, now_ms() - 1000)])

            async def has_output() -> bool:
                return bool(await room.plane.redis.hexists(room.keys.model_values("total", "measurement"), "total"))

            await site.until(has_output, "a first output")
            await Bursts.waiting.put(excursions(now_ms() - 500))
            told = await room.told("hot", 40)
            assert [execution["triggered"] for execution in told] == [True, False] * 20
    finally:
        stop.set()
        await asyncio.wait_for(computing, 20)
        await room.plane.close()


async def test_readings_wait_while_the_board_is_away(
    site: Site, bursts: DriverRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And come in order before anything newer; beyond the bound the oldest go, counted and told."""
    monkeypatch.setattr(channel_runner, "MAX_WAITING", 30)
    monkeypatch.setattr(channel_runner, "AGAIN_S", 0.05)
    await site.store.put([timed_channel("bursts")])
    start, write = now_ms() - 10_000, site.board.write
    async with site.running(drivers=bursts):
        await site.online("1001")

        async def fails(batches: Any) -> Any:
            from tradewind.errors import Unavailable

            raise Unavailable("the board is away")

        monkeypatch.setattr(site.board, "write", fails)
        for at in range(50):
            await Bursts.waiting.put([Reading(M, "1", float(at), start + at)])

        async def has_dropped() -> bool:
            return (await site.status("1001"))["dropped"] == "20"

        await site.until(has_dropped, "20 dropped in the status")
        monkeypatch.setattr(site.board, "write", write)

        async def has_last() -> bool:
            found = (await site.values("1001")).get("1")
            return found is not None and found.value == 49

        await site.until(has_last, "the last one")

        async def is_told() -> bool:
            faults = await site.plane.redis.xrange(site.plane.keys.faults())
            return any(f[b"code"] == b"readings_lost" and b"20 readings lost" in f[b"message"] for _, f in faults)

        await site.until(is_told, "a fault of the station")
    assert [entry.values()["1"] for entry in await entries(site) if entry.data] == list(range(20, 50))


async def test_payloads_above_the_bound_are_refused_counted_and_told(site: Site, broker: servers.Server) -> None:
    await site.store.put([mqtt_channel(broker, max_payload_bytes=1000)])
    start = now_ms() - 10_000
    async with site.running():
        await site.online("1001")
        async with aiomqtt.Client("127.0.0.1", broker.port) as device:
            for at, size in enumerate((0, 5000, 0)):
                text = json.dumps({"v": at, "ts": start + at, "more": "x" * size})
                await device.publish("dev", text, qos=1)

        async def is_counted() -> bool:
            return (await site.status("1001"))["refused"] == "1"

        await site.until(is_counted, "one refused")

        async def is_told() -> bool:
            faults = await site.plane.redis.xrange(site.plane.keys.faults())
            return any(f[b"code"] == b"readings_lost" and b"1 messages refused" in f[b"message"] for _, f in faults)

        await site.until(is_told, "a fault of the station")
    assert [entry.values()["1"] for entry in await entries(site) if entry.data] == [0, 2]


async def test_a_time_that_is_none_does_not_hold_up_the_others(site: Site, bursts: DriverRegistry) -> None:
    await site.store.put([timed_channel("bursts", PointSpec(M, "1"), PointSpec(M, "2"))])
    start = now_ms() - 1000
    async with site.running(drivers=bursts):
        await site.online("1001")
        await Bursts.waiting.put([Reading(M, "1", 1.0, 5000), Reading(M, "2", 2.0, start)])

        async def has_both() -> bool:
            found = await site.values("1001")
            return {name: (point.value, point.quality) for name, point in found.items()} == {
                "1": (1.0, "uncertain"),
                "2": (2.0, "good"),
            }

        await site.until(has_both, "both values")
        assert (await site.status("1001"))["dropped"] == "0"
    times = [entry.ts_ms for entry in await entries(site)]
    assert all(earlier <= later for earlier, later in pairwise(times))
