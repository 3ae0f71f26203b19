"""Keeping the change feed short: to its slowest consumer, and at any rate to `points.feed_max_bytes`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from tradewind.points.feed import BEFORE_ALL, FLOOR, field_of
from tradewind.points.feed_count import count_missed, id_of, readable_cursors
from tradewind.points.feed_missed import tell_missed
from tradewind.points.plane import PointPlane
from tradewind.points.values import whole
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType

#: What stays when nobody has a cursor.
ALONE_MS = 60_000
#: Nodes of the stream that are weighed; entries that one look at the excess takes in; looks per call.
SAMPLES = 500
EXCESS = 2000
LOOKS = 20


class Consumer(msgspec.Struct, frozen=True):
    """`cursor`: id of the last entry that is behind it in the home feed; `lag_ms`: how much older that is than the
    newest entry; `missed`: entries that were ever trimmed before it had them."""

    name: str
    cursor: str
    lag_ms: int
    missed: int


class FeedState(msgspec.Struct, frozen=True):
    entries: int
    bytes: int
    consumers: tuple[Consumer, ...]


class Trimmed(msgspec.Struct, frozen=True):
    """`entries` that went; `missed`: per consumer how many of them it had not read."""

    entries: int
    missed: dict[str, int]


async def trim_feed(plane: PointPlane, expected: Collection[str] = ()) -> Trimmed:
    """For the leader, about once a second: remove what every consumer has behind it; past the bound of bytes remove the
    oldest and count for each consumer what it loses. A count may be too high by what was read and not yet committed.

    `expected`: consumers that are to get everything, also what is written before they run for the first time."""
    known, _, channels = await _stored(plane)
    if absent := [name for name in expected if name not in known]:
        with translated(plane.link):
            pipe = plane.redis.pipeline(transaction=True)
            for name in absent:
                pipe.hsetnx(plane.keys.feed_cursors(), name, BEFORE_ALL)
            await pipe.execute()
        known, _, channels = await _stored(plane)
    floors = {channel: await _slowest(plane, known, channel) for channel in channels}
    # A consumer may become known right now. Said first, looked at again then: either it is seen here, or it sees how
    # far this goes and begins behind that. So what it reads has no hole.
    with translated(plane.link):
        said = {field_of(FLOOR, channel): floor for channel, floor in floors.items()}
        await plane.redis.hset(plane.keys.feed_cursors(), mapping=said)
    cursors, _, _ = await _stored(plane)
    sizes: dict[str, int] = {}
    gone, missed = 0, dict[str, int]()
    for channel, floor in floors.items():
        client, key = plane.at(channel).redis, plane.keys.feed(channel)
        slowest = min([floor, *_positions(cursors, channel).values()], key=id_of)
        try:
            with translated(plane.link):
                gone += await client.xtrim(key, minid=slowest, approximate=False)
                sizes[channel] = await client.memory_usage(key, samples=SAMPLES) or 0
        except WrongType:
            if not channel:  # else one of many, in a cluster: its channel says so
                raise
    with translated(plane.link):
        total, bound = sum(sizes.values()), plane.settings.feed_max_bytes
        for channel, size in sizes.items() if total > bound else ():
            gone += await _cut(plane, cursors, channel, size * bound // total, missed)
    await tell_missed(plane)
    return Trimmed(gone, missed)


async def feed_state(plane: PointPlane) -> FeedState:
    """For doctor, API and metrics."""
    cursors, missed, channels = await _stored(plane)
    entries = size = newest = 0
    for channel in channels:
        client, key = plane.at(channel).redis, plane.keys.feed(channel)
        try:
            with translated(plane.link):
                entries += await client.xlen(key)
                size += await client.memory_usage(key, samples=SAMPLES) or 0
                last = await client.xrevrange(key, count=1)
        except WrongType:
            if not channel:
                raise
            continue
        newest = max(newest, id_of(last[0][0].decode())[0]) if last else newest
    consumers = [
        Consumer(name, at, max(0, newest - id_of(at)[0]), missed.get(name, 0))
        for name, at in sorted(cursors.items())
        if "@" not in name and "#" not in name
    ]
    return FeedState(entries, size, tuple(consumers))


async def forget_consumer(plane: PointPlane, name: str) -> bool:
    """Remove a consumer that will not come back, so that the feed no longer waits for it; False if there is none."""
    cursors, _, _ = await _stored(plane)
    fields = [field for field in cursors if field == name or field.startswith((f"{name}@", f"{name}#"))]
    if not fields:
        return False
    with translated(plane.link):
        await plane.redis.hdel(plane.keys.feed_cursors(), *fields)
        known = [field.decode(errors="replace") for field in await plane.redis.hkeys(plane.keys.feed_missed())]
        of_it = [field for field in known if field.startswith(f"{name}@")]
        await plane.redis.hdel(plane.keys.feed_missed(), name, *of_it)
    return True


async def _stored(plane: PointPlane) -> tuple[dict[str, str], dict[str, int], list[str]]:
    keys = plane.keys
    cursors, missed, channels = await plane.home.ask(
        [("HGETALL", keys.feed_cursors()), ("HGETALL", keys.feed_missed()), ("SMEMBERS", keys.feeds())]
    )
    return (
        readable_cursors(cursors),
        {name.decode(errors="replace"): whole(count) for name, count in missed.items()},
        ["", *sorted(channel.decode() for channel in channels if channel.isdigit())],
    )


def _positions(cursors: dict[str, str], channel: str) -> dict[str, str]:
    """Where each consumer stands in the feed of that channel; one that has not seen it yet stands before it."""
    names = [name for name in cursors if "@" not in name and "#" not in name]
    return {name: cursors.get(field_of(name, channel), "0-0") for name in names}


async def _slowest(plane: PointPlane, cursors: dict[str, str], channel: str) -> str:
    positions = _positions(cursors, channel)
    if positions:
        return min(positions.values(), key=id_of)
    seconds, _ = await plane.redis.time()
    return f"{seconds * 1000 - ALONE_MS}-0"


async def _cut(plane: PointPlane, cursors: dict[str, str], channel: str, bound: int, missed: dict[str, int]) -> int:
    """Remove the oldest entries of a feed until it is within the bound. Counted before they go: a crash between the two
    counts them twice, and not never."""
    place, key = plane.at(channel), plane.keys.feed(channel)
    positions = _positions(cursors, channel)
    gone = 0
    for _ in range(LOOKS):
        size = await place.redis.memory_usage(key, samples=SAMPLES) or 0
        if size <= bound:
            break
        pairs: list[Any] = [part for item in positions.items() for part in item]
        average = size // max(1, await place.redis.xlen(key))
        upto, counts = await place.scripts.run("feed_excess", [key], [size - bound, EXCESS, average, *pairs])
        if not upto:
            break
        for name, count in zip(positions, counts, strict=True):
            if count:
                missed[name] = missed.get(name, 0) + count
                await count_missed(plane, name, channel, count)
        gone += await place.redis.xtrim(key, minid=upto.decode(), approximate=False)
    return gone
