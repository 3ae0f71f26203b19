"""The change feed: nothing is missed over restarts, trimming respects cursors, and what must go is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import servers
from tests.points.board_room import BoardRoom, board_room
from tradewind.clock import Clock
from tradewind.errors import Invalid, Unavailable
from tradewind.points.board import Batch
from tradewind.points.feed import FeedBatch, FeedEntry, FeedReader, id_of
from tradewind.points.feed_trim import feed_state, forget_consumer, trim_feed
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[BoardRoom]:
    async with board_room(link, key_prefix, Clock()) as room:
        yield room


async def write(room: BoardRoom, *numbers: int, channel: str = "1001") -> None:
    """A batch per number, with that number as the value of point 1."""
    for number in numbers:
        await room.board.write([Batch.of_channel(channel, "m", {"1": number})])


def seen(batch: FeedBatch | None) -> list[float]:
    return [value for entry in (batch.entries if batch else ()) for value in entry.values().values()]


async def read_all(reader: FeedReader) -> list[float]:
    """Read and commit until nothing comes."""
    found: list[float] = []
    while batch := await reader.read(1):
        found += seen(batch)
        await reader.commit(batch)
    return found


def test_entries_are_decoded() -> None:
    entry = FeedEntry("5-0", "comsrv:1:m", 30, "1:2.500000,2:-1.000000", "2:bad,9:good", each_ts="30,20")
    assert entry.values() == {"1": 2.5, "2": -1.0} and entry.fields() == ["1", "2"]
    assert entry.times() == {"1": 30, "2": 20} and entry.quality() == {"2": "bad", "9": "good"}
    empty = FeedEntry("5-0", "comsrv:1:m", 30, "")
    assert (empty.values(), empty.fields(), empty.times(), empty.quality()) == ({}, [], {}, {})


async def test_a_consumer_without_a_cursor_begins_now_or_with_the_oldest(room: BoardRoom) -> None:
    await write(room, 1, 2)
    fresh, old = FeedReader(room.plane, "fresh"), FeedReader(room.plane, "old", start="oldest")
    await fresh.open()
    await write(room, 3)
    assert await read_all(fresh) == [3] and await read_all(old) == [1, 2, 3]
    await fresh.close(), await old.close()
    with pytest.raises(Invalid):
        FeedReader(room.plane, "a:b")


async def test_a_restarted_consumer_misses_nothing_and_sees_again_what_it_had_not_stored(room: BoardRoom) -> None:
    reader = FeedReader(room.plane, "models", count=2)
    await reader.open()
    await write(room, 1, 2, 3, 4, 5)
    first = await reader.read()
    assert first is not None and seen(first) == [1, 2]
    await reader.commit(first)
    assert seen(await reader.read()) == [3, 4], "read, but its effect is not stored"
    await reader.close()
    await trim_feed(room.plane)
    await write(room, 6)
    again = FeedReader(room.plane, "models", count=10)
    assert await read_all(again) == [3, 4, 5, 6]
    await write(room, 7)
    assert seen(await again.read()) == [7] and await again.read(1) is None
    again.rewind()
    assert seen(await again.read()) == [7]
    await again.close()


async def test_a_waiting_consumer_gets_entries_at_once(room: BoardRoom) -> None:
    reader = FeedReader(room.plane, "models")
    await reader.open()

    async def consume() -> list[float]:
        found: list[float] = []
        async for batch in reader:
            found += seen(batch)
            await reader.commit(batch)
            if len(found) == 3:
                break
        return found

    async with asyncio.timeout(10):
        task = asyncio.create_task(consume())
        await write(room, 1, 2, channel="1001")
        await write(room, 3, channel="1002")
        assert sorted(await task) == [1, 2, 3]
    await reader.close()


async def test_channels_that_appear_later_and_models_are_in_the_feed(room: BoardRoom) -> None:
    reader = FeedReader(room.plane, "models")
    await reader.open()
    await write(room, 1, channel="1")
    await write(room, 2, channel="2")
    await room.board.write([Batch.of_model("plant", {"power": 3})])
    assert sorted(await read_all(reader)) == [1, 2, 3]
    await write(room, 4, channel="3")
    assert await read_all(reader) == [4]
    await reader.close()


async def test_the_cursor_can_be_stored_by_a_script_of_the_consumer(room: BoardRoom) -> None:
    reader = FeedReader(room.plane, "models")
    await reader.open()
    await write(room, 1, 2)
    batch = await reader.read()
    assert batch is not None
    pipe = room.plane.redis.pipeline(transaction=True)
    pipe.execute_command("HSET", room.keys.feed_cursors(), *batch.cursor)
    await pipe.execute()
    await write(room, 3)
    again = FeedReader(room.plane, "models")
    assert await read_all(again) == [3]
    await reader.close(), await again.close()


async def test_trimming_stops_at_the_slowest_cursor(room: BoardRoom) -> None:
    fast, slow = FeedReader(room.plane, "fast"), FeedReader(room.plane, "slow", count=2)
    await fast.open(), await slow.open()
    await write(room, 1, 2, 3, 4, 5)
    assert await read_all(fast) == [1, 2, 3, 4, 5]
    first = await slow.read()
    assert first is not None and seen(first) == [1, 2]
    await slow.commit(first)
    trimmed = await trim_feed(room.plane)
    assert (trimmed.entries, trimmed.missed) == (1, {})
    assert len(await room.feed_of()) == 4
    state = await feed_state(room.plane)
    assert [(consumer.name, consumer.missed) for consumer in state.consumers] == [("fast", 0), ("slow", 0)]
    assert await forget_consumer(room.plane, "slow") and not await forget_consumer(room.plane, "slow")
    await trim_feed(room.plane)
    assert len(await room.feed_of()) == 1
    await fast.close(), await slow.close()


async def test_without_consumers_only_the_last_minute_stays(room: BoardRoom) -> None:
    await write(room, 1)
    feed = room.keys.feed("1001")
    client = room.plane.at("1001").redis
    await client.delete(feed)
    seconds, _ = await client.time()
    for age_s in (61, 50, 0):
        await client.xadd(feed, {"k": "comsrv:1001:m", "t": "1", "d": "1:1"}, id=f"{(seconds - age_s) * 1000}-1")
    assert (await trim_feed(room.plane)).entries == 1


async def test_what_was_missed_is_told_also_after_a_crash_between_the_count_and_the_report(room: BoardRoom) -> None:
    await write(room, 1)
    await room.plane.redis.hincrby(room.keys.feed_missed(), "rulesrv", 7)
    for _ in range(2):
        await trim_feed(room.plane)
    faults = await room.plane.redis.xrange(room.keys.faults())
    assert [(fields[b"source"], b"missed 7 entries" in fields[b"message"]) for _, fields in faults] == [
        (b"points:feed:rulesrv", True)
    ], "once"


async def test_a_consumer_that_is_expected_gets_what_was_written_before_it_first_ran(room: BoardRoom) -> None:
    """Another one has all behind it, and the expected one has not run yet: nothing may go."""
    quick, late = FeedReader(room.plane, "models"), FeedReader(room.plane, "history", start="oldest")
    await quick.open()
    await write(room, 1, 2, 3, 4, 5)
    assert await read_all(quick) == [1, 2, 3, 4, 5]
    assert (await trim_feed(room.plane, ["history"])).entries == 0
    assert await read_all(late) == [1, 2, 3, 4, 5]
    assert (await trim_feed(room.plane, ["history"])).entries == 4, "then it is trimmed like that of any other"
    await quick.close(), await late.close()


async def test_past_the_bound_the_oldest_go_and_each_consumer_learns_what_it_missed(
    link: Link, key_prefix: str
) -> None:
    async with board_room(link, key_prefix, Clock(), feed_max_bytes=40_000) as room:
        reader, slow = FeedReader(room.plane, "reader"), FeedReader(room.plane, "slow")
        await reader.open(), await slow.open()

        async def write_many(numbers: range) -> None:
            for number in numbers:
                values = {str(point): number for point in range(100)}
                await room.board.write([Batch.of_channel("1001", "m", values)])

        await write_many(range(10))
        assert len((await reader.read() or pytest.fail()).entries) == 10
        half = await slow.read()
        assert half is not None
        await slow.commit(half)
        await write_many(range(10, 100))
        trimmed = await trim_feed(room.plane)
        assert trimmed.entries > 50 and trimmed.missed == {"reader": trimmed.entries, "slow": trimmed.entries - 10}
        left = await room.feed_of()
        assert len(left) == 100 - trimmed.entries > 10
        assert (await feed_state(room.plane)).bytes <= 40_000
        found = await slow.read()
        assert found is not None and found.missed == trimmed.missed["slow"]
        assert found.entries[0].values()["0"] == trimmed.entries, "the rest is whole"
        await slow.commit(found)
        late = FeedReader(room.plane, "reader")
        batch = await late.read()
        assert batch is not None and batch.missed == trimmed.missed["reader"]
        again = FeedReader(room.plane, "slow")
        assert await again.read(1) is None, "a gap is told once"
        assert not (await trim_feed(room.plane)).missed
        for one in (reader, slow, late, again):
            await one.close()


async def test_a_reader_survives_a_restart_of_the_server(key_prefix: str) -> None:
    with servers.redis_server(appendonly=True, extra=("--appendfsync", "always")) as server:
        link = await open_link(RedisSettings(url=server.url))
        async with board_room(link, key_prefix, Clock()) as room:
            reader = FeedReader(room.plane, "models")
            await reader.open()
            found: list[float] = []

            async def consume() -> None:
                async for batch in reader:
                    found.extend(seen(batch))
                    while True:
                        try:
                            await reader.commit(batch)
                            break
                        except Unavailable:  # it is just being killed
                            await asyncio.sleep(0.05)
                    if found[-1] == 3:
                        break

            task = asyncio.create_task(consume())
            await write(room, 1, 2)
            server.kill()
            server.start()
            await link.wait_ready(20)
            await write(room, 3)
            async with asyncio.timeout(20):
                await task
            assert list(dict.fromkeys(found)) == [1, 2, 3]
            await reader.close()
        await link.close()


def test_ids_are_compared_as_numbers() -> None:
    ids: list[Any] = ["9-1", "10-0", "10-2", "10-11"]
    assert sorted(ids, key=id_of) == ids
