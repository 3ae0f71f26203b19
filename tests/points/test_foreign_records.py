"""What other programs, or people with redis-cli, leave in the keys of points and models harms nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.points.command_bench import Workbench
from tests.points.site import Site, virtual_channel
from tradewind.errors import Invalid
from tradewind.models.store import ModelStore
from tradewind.points.address import Address
from tradewind.points.board import Batch
from tradewind.points.channel_status import read_statuses
from tradewind.points.feed import FeedReader
from tradewind.points.feed_trim import feed_state, trim_feed
from tradewind.redis.connection import Link
from tradewind.station_points import PointRoom

MODEL = {
    "name": "good",
    "inputs": [{"name": "x", "source": "comsrv:1001:m:10001"}],
    "calculations": [{"id": "y", "expression": "x + 1"}],
    "outputs": [{"field": "y", "source": "y"}],
}


@pytest.fixture
async def bench(link: Link, key_prefix: str) -> AsyncIterator[Workbench]:
    bench = Workbench(link, key_prefix)
    await bench.online()
    yield bench
    await bench.plane.close()


@pytest.mark.parametrize("time", ["soon", "", "1e400", "-5"])
async def test_a_time_that_is_none_does_not_stop_the_board(bench: Workbench, time: str) -> None:
    redis, keys = bench.plane.at("1001").redis, bench.plane.keys
    await bench.show("m", "10001", 1)
    await redis.hset(keys.points_ts("1001", "m"), mapping={"10001": time, "10002": time})
    await redis.delete(keys.points_mark("1001", "m"))
    await bench.board.write([Batch.of_channel("1001", "m", {"10001": 2.0}, {"10001": 1_700_000_000_000})])
    await bench.board.write([Batch.of_channel("1001", "m", {"10001": 3.0})])
    assert (await bench.board.read_one("comsrv:1001:m:10001")).value == 3
    assert await bench.board.compare_and_set("comsrv:1001:m:10001", 3, 4)


async def test_one_broken_channel_hides_no_other(bench: Workbench, link: Link) -> None:
    redis, keys = bench.plane.redis, bench.plane.keys
    for name, text in (("7", "{"), ("8", '{"id":"9"}'), ("x", '{"id":"x"}')):
        await redis.hset(keys.channels(), name, text)
        await redis.hset(keys.channel_versions(), name, "v")
    assert [channel.id for channel in await bench.channels.list()] == ["1001"]
    assert set(await bench.channels.broken()) == {"7", "8", "x"}
    room = PointRoom(link, bench.plane.all_settings)
    await room.look()
    spec = room.describe(Address.point("1001", "a", "40001"))
    assert spec is not None and spec.unit == "kW"
    with pytest.raises(Invalid):
        await bench.channels.get("7")
    await room.close()


async def test_a_broken_channel_holds_up_no_other_poller(link: Link, key_prefix: str) -> None:
    site = Site(link, key_prefix)
    redis, keys = site.plane.redis, site.plane.keys
    await site.store.put([virtual_channel("1")])
    await redis.hset(keys.channels(), "7", "{")
    await redis.hset(keys.channel_versions(), "7", "v")
    await redis.hset(keys.channel_owners(), mapping={"1": "rubbish", "2": "a:b"})
    async with site.running():
        await site.online("1")
        await site.plane.at("1").redis.hset(keys.channel_status("1"), mapping={"polls": "many", "poll_ms": "1.2.3"})
        assert (await read_statuses(site.plane, ["1"]))[0]["online"] is True
    await site.plane.close()


async def test_a_cursor_of_another_program_stops_no_reader_and_no_trimming(bench: Workbench) -> None:
    redis, keys = bench.plane.redis, bench.plane.keys
    reader = FeedReader(bench.plane, "me")
    await reader.open()
    await redis.hset(keys.feed_cursors(), mapping={"stranger": "$", "me#missed": "few", "me#read": "all"})
    await redis.hset(keys.feed_missed(), mapping={"stranger": "some"})
    await redis.sadd(keys.feeds(), "no channel")
    await bench.show("m", "10001", 1)
    again = FeedReader(bench.plane, "me")
    await again.open()
    batch = await again.read(500)
    assert batch is not None and len(batch.entries) == 1
    await trim_feed(bench.plane)
    assert [consumer.name for consumer in (await feed_state(bench.plane)).consumers] == ["me"]


async def test_one_broken_model_is_named_and_computes_nothing_alone(bench: Workbench, link: Link) -> None:
    store = ModelStore(link, bench.plane.keys)
    await store.put(MODEL)
    await bench.plane.redis.hset(bench.plane.keys.models(), mapping={"bad": "{", "worse": "[1]"})
    await bench.plane.redis.hset(bench.plane.keys.model_templates(), "torn", b"\xff")
    await bench.plane.redis.incr(bench.plane.keys.models_version())
    definitions = await store.load()
    assert set(definitions.specs) == {"good"}
    assert {problem.path.partition(".")[0] for problem in definitions.problems} >= {"bad", "worse"}
    await bench.plane.redis.hset(
        bench.plane.keys.model_values("good", "control"), mapping={"x": "1:1700000000000:me", "y": "?"}
    )
    assert list(await store.controls("good")) == ["x"]
