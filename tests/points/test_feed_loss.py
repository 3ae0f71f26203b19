"""What a consumer of the feed loses is counted, whoever removed it; and what it reads has no hole, also when trimming
begins before it is known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.points.board_room import BoardRoom, board_room
from tests.points.test_feed import read_all, seen, write
from tradewind.clock import Clock
from tradewind.points import feed_trim
from tradewind.points.board import Batch
from tradewind.points.feed import FeedReader
from tradewind.points.feed_count import StreamCount, before
from tradewind.points.feed_trim import trim_feed
from tradewind.redis.connection import Link


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[BoardRoom]:
    async with board_room(link, key_prefix, Clock()) as room:
        yield room


def feed_of(room: BoardRoom) -> Any:
    """The server that has the feed of the channel that `write` writes to; in a cluster each channel has its own."""
    return room.plane.at("1001").redis


async def missed_of(room: BoardRoom, name: str = "history") -> tuple[int, list[float]]:
    """What a new process of that consumer is told, and what it reads."""
    reader, missed, found = FeedReader(room.plane, name, start="oldest"), 0, list[float]()
    while batch := await reader.read(1):
        missed += batch.missed
        found += seen(batch)
        await reader.commit(batch)
    await reader.close()
    return missed, found


@pytest.mark.parametrize(
    ("count", "at", "read", "lost"),
    [
        (StreamCount(10, 0, (1, 0), (10, 0)), (4, 0), 4, 0),
        (StreamCount(10, 4, (5, 0), (10, 0)), (4, 0), 4, 0),
        (StreamCount(10, 7, (8, 0), (10, 0)), (4, 0), 4, 3),
        (StreamCount(10, 10), (4, 0), 4, 6),
        (StreamCount(3, 1, (22, 0), (23, 0)), (4, 0), 4, 2),  # made anew
        (StreamCount(), (4, 0), 4, 0),
    ],
)
def test_what_is_gone_beyond_what_was_read_is_lost(
    count: StreamCount, at: tuple[int, int], read: int, lost: int
) -> None:
    assert count.lost(at, read) == lost


def test_how_much_lies_behind_a_cursor() -> None:
    count = StreamCount(10, 4, (5, 0), (10, 0))
    assert [count.read_upto((at, 0)) for at in (4, 5, 7, 10, 12)] == [4, 5, None, 10, 10]
    assert before((5, 3)) == (5, 2) and before((5, 0)) == (4, 2**64 - 1) and before((0, 0)) == (0, 0)


async def test_entries_that_somebody_else_trims_are_counted_once(room: BoardRoom) -> None:
    await write(room, 1, 2)
    assert await missed_of(room) == (0, [1, 2])
    await write(room, *range(3, 53))
    await feed_of(room).xtrim(room.keys.feed("1001"), maxlen=10, approximate=False)
    reader = FeedReader(room.plane, "history")
    await reader.open()  # and is killed before it has read
    await reader.close()
    assert await missed_of(room) == (40, [float(n) for n in range(43, 53)])
    assert await missed_of(room) == (0, [])
    await write(room, 60, 61)
    await trim_feed(room.plane)
    assert await missed_of(room) == (0, [60, 61])
    faults = await room.plane.redis.xrange(room.keys.faults())
    assert [fields[b"source"] for _, fields in faults] == [b"points:feed:history"]


async def test_a_feed_that_was_removed_counts_as_a_loss(room: BoardRoom) -> None:
    await write(room, 1, 2, 3)
    assert await missed_of(room) == (0, [1, 2, 3])
    await write(room, 4)
    await feed_of(room).delete(room.keys.feed("1001"))
    await write(room, 5)
    assert await missed_of(room) == (1, [5])
    await write(room, 6)
    assert await missed_of(room) == (0, [6])


async def test_a_consumer_that_began_in_the_middle_has_lost_nothing(room: BoardRoom) -> None:
    """How much it has behind it is not known then."""
    await write(room, 1, 2, 3)
    fresh = FeedReader(room.plane, "fresh", count=1)
    await fresh.open()
    await write(room, 4, 5, 6)
    batch = await fresh.read()
    assert batch is not None
    await fresh.commit(batch)
    await fresh.close()
    for _ in range(2):
        await trim_feed(room.plane)
        reader = FeedReader(room.plane, "fresh", count=1)
        batch = await reader.read()
        assert batch is not None and batch.missed == 0
        await reader.commit(batch)
        await reader.close()


async def test_what_our_own_trimming_counts_is_not_counted_again(link: Link, key_prefix: str) -> None:
    async with board_room(link, key_prefix, Clock(), feed_max_bytes=20_000) as room:
        running = FeedReader(room.plane, "running", start="oldest")
        await running.open()
        for names in (("running", "stopped"), ("running",), ("running",)):
            if "stopped" in names:
                assert await missed_of(room, "stopped") == (0, [])
            for number in range(60):
                values = {str(point): number for point in range(100)}
                await room.board.write([Batch.of_channel("1001", "m", values)])
            trimmed = await trim_feed(room.plane)
            batch = await running.read()
            assert batch is not None and batch.missed == trimmed.missed["running"] > 0
            await running.commit(batch)
            assert (await missed_of(room, "running"))[0] == 0
            running.rewind()
        await running.close()
        assert (await missed_of(room, "stopped"))[0] > 0
        assert (await missed_of(room, "stopped"))[0] == 0


@pytest.mark.parametrize("look", [1, 2])
async def test_a_consumer_that_becomes_known_while_trimming_is_under_way_reads_without_a_hole(
    room: BoardRoom, look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read a part when what it was not known for is trimmed."""
    models = FeedReader(room.plane, "models", start="oldest")
    await write(room, *range(1, 21))
    assert await read_all(models) == list(range(1, 21))
    await write(room, *range(21, 31))
    late, found, looks = FeedReader(room.plane, "history", start="oldest", count=3), list[float](), 0
    stored = feed_trim._stored

    async def looked(plane: Any) -> Any:
        nonlocal looks
        answer = await stored(plane)
        looks += 1
        if looks == look:
            batch = await late.read(1)
            assert batch is not None
            found.extend(seen(batch))
            await late.commit(batch)
        return answer

    monkeypatch.setattr(feed_trim, "_stored", looked)
    await trim_feed(room.plane)
    found += await read_all(late)
    assert found == [float(n) for n in range(int(found[0]), 31)] and found[0] <= 21
    if look == 1:
        assert found[0] == 1, "it was seen in time"
    await models.close(), await late.close()


async def test_what_is_no_entry_is_counted(room: BoardRoom) -> None:
    reader = FeedReader(room.plane, "history", start="oldest")
    await write(room, 1)
    client, key = room.plane.at("1001").redis, room.keys.feed("1001")
    for _ in range(3):
        await client.xadd(key, {"what": "is this"})
    await write(room, 2)
    batch = await reader.read()
    assert batch is not None and seen(batch) == [1, 2] and batch.unreadable == 3
    await reader.close()


async def test_a_loss_that_is_told_without_an_entry_is_not_counted_again(link: Link, key_prefix: str) -> None:
    async with board_room(link, key_prefix, Clock(), feed_max_bytes=1) as room:
        assert await missed_of(room) == (0, [])
        await write(room, *range(1, 21))
        assert (await trim_feed(room.plane)).missed == {"history": 20}
        assert await missed_of(room) == (20, [])
        assert await missed_of(room) == (0, [])
        await write(room, 21)
        assert await missed_of(room) == (0, [21])
