"""What a bare client sees: the seed's keys, values and messages, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from tests import servers
from tests.points.board_room import board_room
from tradewind.clock import Clock
from tradewind.points.board import Batch, Board, Change
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings, Settings

TEMPERATURES = {"10001": 25.123456, "10002": 26.789012, "10003": 24.56789}


@pytest.fixture
async def bare(redis_7: servers.Server) -> AsyncIterator[redis.asyncio.Redis]:
    """A database of its own, because these keys have no prefix."""
    client = redis.asyncio.Redis(port=redis_7.port, db=9)
    await client.flushdb()
    yield client
    await client.flushdb()
    await client.aclose()


async def board_of(server: servers.Server, **points: Any) -> tuple[Board, Link]:
    link = await open_link(RedisSettings(url=server.url.replace("/0", "/9")))
    return Board(PointPlane(link, Settings(points=points))), link


async def messages(pubsub: Any, count: int) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            message = await pubsub.get_message(timeout=1)
            if message and message["type"] in ("message", "pmessage"):
                found.append((message["channel"], message["data"]))
    assert await pubsub.get_message(timeout=0.1) is None
    return found


async def test_the_hashes_of_the_seed(bare: redis.asyncio.Redis, redis_7: servers.Server) -> None:
    board, link = await board_of(redis_7)
    await board.write(
        [
            Batch.of_channel("1001", "m", TEMPERATURES),
            Batch.of_channel("1001", "s", {"20001": 1, "20002": 0, "20003": 1}),
            Batch.of_channel("1001", "c", {"30001": 0, "30002": 1}),
            Batch.of_channel("1001", "a", {"40001": 50.5, "40002": 75.25}),
            Batch.of_model(
                "power_calc", {"total_power": 1200.5, "efficiency": 0.856, "load_factor": 0.78, "reactive_power": 350.2}
            ),
        ]
    )
    assert await bare.hgetall("comsrv:1001:m") == {
        b"10001": b"25.123456",
        b"10002": b"26.789012",
        b"10003": b"24.567890",
    }
    assert await bare.hgetall("comsrv:1001:s") == {b"20001": b"1", b"20002": b"0", b"20003": b"1"}
    assert await bare.hgetall("comsrv:1001:c") == {b"30001": b"0", b"30002": b"1"}
    assert await bare.hgetall("comsrv:1001:a") == {b"40001": b"50.500000", b"40002": b"75.250000"}
    assert await bare.hgetall("modsrv:power_calc:measurement") == {
        b"total_power": b"1200.500000",
        b"efficiency": b"0.856000",
        b"load_factor": b"0.780000",
        b"reactive_power": b"350.200000",
    }
    assert await bare.hget("comsrv:1001:m", "10001") == b"25.123456"
    assert await bare.hmget("comsrv:1001:m", ["10001", "10003"]) == [b"25.123456", b"24.567890"]
    assert await bare.hlen("comsrv:1001:m") == 3
    assert set(await bare.hkeys("comsrv:1001:m:ts")) == {b"10001", b"10002", b"10003"}
    await link.close()


async def test_the_messages_of_the_seed(bare: redis.asyncio.Redis, redis_7: servers.Server) -> None:
    board, link = await board_of(redis_7)
    async with bare.pubsub() as channel, bare.pubsub() as everything:
        await channel.subscribe("comsrv:1001:m", "modsrv:power_calc:measurement")
        await everything.psubscribe("comsrv:*")
        (
            await channel.get_message(timeout=1),
            await channel.get_message(timeout=1),
            await everything.get_message(timeout=1),
        )
        await board.write(
            [
                Batch.of_channel("1001", "m", TEMPERATURES),
                Batch.of_channel("1002", "s", {"20001": 1}),
                Batch.of_model("power_calc", {"total_power": 1250.5}),
            ]
        )
        expected = [b"10001:25.123456", b"10002:26.789012", b"10003:24.567890"]
        found = await messages(channel, 4)
        assert found == [
            *((b"comsrv:1001:m", data) for data in expected),
            (b"modsrv:power_calc:measurement", b"total_power:1250.500000"),
        ]
        assert [data for _, data in await messages(everything, 4)] == [*expected, b"20001:1"]
    await link.close()


async def test_messages_joined_per_point_or_none(bare: redis.asyncio.Redis, redis_7: servers.Server) -> None:
    async with bare.pubsub() as pubsub:
        await pubsub.subscribe("comsrv:1001:m", "comsrv:1001:m:10002")
        await pubsub.get_message(timeout=1), await pubsub.get_message(timeout=1)
        for points, expected in [
            ({"publish": "batch"}, [(b"comsrv:1001:m", b"10001:1.000000,10002:2.000000")]),
            ({"publish": "off", "point_channels": True}, [(b"comsrv:1001:m:10002", b"10002:2.000000")]),
            ({"publish": "off"}, []),
        ]:
            board, link = await board_of(redis_7, **points)
            await board.write([Batch.of_channel("1001", "m", {"10001": 1, "10002": 2})])
            assert await messages(pubsub, len(expected)) == expected
            await link.close()


async def test_late_and_repeated_samples_are_not_published(bare: redis.asyncio.Redis, redis_7: servers.Server) -> None:
    board, link = await board_of(redis_7)
    now = Clock().now_ms()
    async with bare.pubsub() as pubsub:
        await pubsub.subscribe("comsrv:1001:m")
        await pubsub.get_message(timeout=1)
        for value, ts in [(1, now), (1, now), (5, now - 1), (2, now)]:
            await board.write([Batch.of_channel("1001", "m", {"10001": value}, ts)])
        assert [data for _, data in await messages(pubsub, 2)] == [b"10001:1.000000", b"10001:2.000000"]
    await link.close()


async def take(changes: AsyncIterator[Change], count: int) -> list[tuple[str, float]]:
    async with asyncio.timeout(10):
        return [(change.address, change.value) for change in [await anext(changes) for _ in range(count)]]


async def test_changes_by_address_channel_and_pattern(link: Link, key_prefix: str) -> None:
    async with board_room(link, key_prefix, Clock()) as room:
        board = room.board
        async with (
            board.subscribe(addresses=["comsrv:1001:m:2", "modsrv:plant:measurement:power"]) as by_address,
            board.subscribe(channels=["1001"]) as by_channel,
            board.subscribe(patterns=["*:m*"]) as by_pattern,
        ):
            batches = [Batch.of_channel("1001", "m", {"1": 1.5, "2": 2.5}), Batch.of_channel("1001", "s", {"3": 1})]
            await board.write(batches)
            await board.write([Batch.of_model("plant", {"power": 7})])
            one, two, power = (
                ("comsrv:1001:m:1", 1.5),
                ("comsrv:1001:m:2", 2.5),
                ("modsrv:plant:measurement:power", 7.0),
            )
            by_pair, of_all = await take(by_address, 2), await take(by_pattern, 3)
            assert await take(by_channel, 3) == [one, two, ("comsrv:1001:s:3", 1.0)]
            if link.cluster:  # a channel and a model are on different nodes, whose messages come in any order
                by_pair, of_all = sorted(by_pair), sorted(of_all)
            assert (by_pair, of_all) == ([two, power], [one, two, power])


async def test_messages_of_other_programs_are_understood(link: Link, key_prefix: str) -> None:
    async with board_room(link, key_prefix, Clock()) as room:
        await room.board.write([Batch.of_channel("1001", "m", {"1": 1.5})])
        async with room.board.subscribe(channels=["comsrv:1001:m"]) as changes:
            name = f"{key_prefix}comsrv:1001:m"
            for message in ("gibberish", "2:x", "updated:1", "3:9.5,4:8"):
                await room.plane.redis.publish(name, message)
            await room.board.publish([("comsrv:1001:m", {"5": 5.5})])
            found = await take(changes, 4)
        assert found == [
            (f"comsrv:1001:m:{point}", value) for point, value in [("1", 1.5), ("3", 9.5), ("4", 8), ("5", 5.5)]
        ]
