"""What other programs, or people with redis-cli, leave in the keys of points and models harms nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import BusyLoadingError

from tests.points.command_bench import Workbench
from tests.points.site import Site, virtual_channel
from tradewind.errors import Conflict, Invalid
from tradewind.models.store import ModelStore
from tradewind.points.acquisition import Acquisition
from tradewind.points.address import Address
from tradewind.points.board import Batch
from tradewind.points.channel_status import read_statuses
from tradewind.points.command_run import CommandRunner
from tradewind.points.command_store import CommandStore
from tradewind.points.feed import FeedReader
from tradewind.points.feed_trim import feed_state, trim_feed
from tradewind.points.spec import ChannelSpec
from tradewind.points.substitutions import SubstituteRequest
from tradewind.redis.connection import Link
from tradewind.redis.faults import WrongType
from tradewind.redis.fences import sorted_out
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


async def test_what_is_spoilt_at_one_channel_holds_up_no_other_poller(link: Link, key_prefix: str) -> None:
    """Each channel but the last has something in one of its keys that does not belong there."""
    site = Site(link, key_prefix)
    keys, home = site.plane.keys, site.plane.redis
    await site.store.put([virtual_channel(name) for name in "12345"])
    await site.plane.at("1").redis.hset(keys.points("1", "m"), mapping={b"\xff": "1", "x": "1", "7": "1"})
    await site.plane.at("2").redis.set(keys.points("2", "m"), "text")
    await site.plane.at("3").redis.set(keys.channel_status("3"), "text")
    await site.plane.at("4").redis.set(keys.point_substitutions("4"), "text")
    await home.sadd(keys.channels_substituted(), b"\xff", "4")
    await home.zadd(keys.commands_open(), {b"\xff": 1})
    await home.set(keys.channel_todo("4"), "text")
    async with site.running(commands=CommandRunner(CommandStore(site.plane), site.board, "me"), owner="me") as engine:
        for channel in "145":
            await site.online(channel)
        assert (await site.values("1"))["7"].quality == "uncertain", "not declared any more, like the odd names"

        async def is_said() -> bool:
            return (await site.status("2")).get("error", "").startswith("values not written: ")

        await site.until(is_said, "the reason in the status of channel 2")
        polls = {figures["channel"]: figures["polls"] for figures in engine.statistics()}
        assert set(polls) == set("12345") and min(polls.values()) > 0
        assert [set(found) for found in await read_statuses(site.plane, ["3"])] == [{"error"}]
        await site.store.remove(["3"])

        async def is_gone() -> bool:
            return {figures["channel"] for figures in engine.statistics()} == set("1245")

        await site.until(is_gone, "channel 3 let go")
    await site.plane.close()


async def test_a_poller_of_which_something_unforeseen_fails_is_begun_anew_and_alone(
    link: Link, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, failed = Site(link, key_prefix), list[str]()
    await site.store.put([virtual_channel("1"), virtual_channel("2")])
    mark = Acquisition._mark_undeclared

    async def fail(engine: Acquisition, spec: ChannelSpec) -> None:
        if spec.id == "1" and not failed:
            failed.append(spec.id)
            raise RuntimeError("unforeseen")
        await mark(engine, spec)

    monkeypatch.setattr(Acquisition, "_mark_undeclared", fail)
    async with site.running():
        await site.online("2")
        await site.online("1")
    assert failed == ["1"]
    await site.plane.close()


async def test_substitutions_end_in_time_although_others_and_all_else_the_leader_does_fail(bench: Workbench) -> None:
    plane, keys = bench.plane, bench.plane.keys
    room = PointRoom(plane.link, plane.all_settings)
    for address, value in (("comsrv:1001:m:10001", 5), ("comsrv:1001:s:20001", 1)):
        await room.substitutions.substitute(SubstituteRequest(address, value, "test", for_s=1))
    await plane.redis.sadd(keys.channels_substituted(), b"\xff", "7")
    await plane.at("7").redis.set(keys.point_substitutions("7"), "text")
    assert len(await room.substitutions.standing()) == 2
    spoilt = plane.at("1001").redis
    await spoilt.delete(keys.points("1001", "m"))
    await spoilt.set(keys.points("1001", "m"), "text")
    for key in (keys.commands_open(), keys.command_effects(), keys.feed_cursors()):
        await plane.redis.set(key, "text")
    await asyncio.sleep(1)
    with pytest.raises(WrongType):
        await asyncio.wait_for(room.look_after(), 10)
    assert [item.address for item in await room.substitutions.standing()] == ["comsrv:1001:m:10001"]
    await spoilt.delete(keys.points("1001", "m"))
    await room.substitutions.sweep()
    assert await room.substitutions.standing() == []
    await room.close()


async def test_an_effect_that_cannot_be_shown_holds_up_no_other(bench: Workbench) -> None:
    plane = bench.plane
    await plane.at("7").redis.set(plane.keys.points("7", "a"), "text")
    mine = "comsrv:1001:a:40001 6.0 1700000000000"
    await plane.redis.hset(plane.keys.command_effects(), mapping={"1": "comsrv:7:a:1 5.0 1700000000000", "2": mine})
    with pytest.raises(WrongType):
        await bench.commands.sweep()
    assert (await bench.board.read_one("comsrv:1001:a:40001")).value == 6
    assert await plane.redis.hkeys(plane.keys.command_effects()) == [b"1"]


async def test_names_that_are_none_are_simply_unknown(bench: Workbench, link: Link) -> None:
    plane, keys = bench.plane, bench.plane.keys
    await bench.show("m", "10001", 1)
    await bench.board.write([Batch.of_channel("55", "m", {"1": 1.0}), Batch.of_channel("56", "m", {"1": 1.0})])
    await plane.at("55").redis.hset(keys.points("55", "m"), mapping={b"\xff": "1", "one": "1"})
    place = plane.at("56").redis
    await place.delete(keys.points("56", "m"))
    await place.set(keys.points("56", "m"), "text")
    await plane.redis.sadd(keys.channels_pushed(), b"\xff:m", b"55:\xff", "odd")
    await plane.redis.hset(keys.models(), mapping={b"\xff": "{}", "no name": "{}"})
    await plane.redis.hset(keys.channels(), b"\xff", "{}")
    await plane.redis.hset(keys.channel_owners(), mapping={b"\xff": "me:9999999999999"})
    assert await bench.board.channels() == ["55", "56", "1001"]
    assert await bench.board.pushed() == [("55", "m", "1")]
    known = [point.address async for points in bench.board.read_all() for point in points if point.value == 1]
    assert {"comsrv:1001:m:10001", "comsrv:55:m:1"} <= set(known)
    room = PointRoom(link, plane.all_settings)
    assert [str(address) for address, _ in await room.find("comsrv:55")] == ["comsrv:55:m:1"]
    assert set(await room.health()) == {"comsrv", "modsrv"}
    await room.close()


async def test_a_version_that_is_no_text_is_a_conflict(bench: Workbench) -> None:
    await bench.plane.redis.hset(bench.plane.keys.channel_versions(), "1001", b"\xff")
    spec = await bench.channels.get("1001")
    with pytest.raises(Conflict):
        await bench.channels.put([spec], expected="v")
    with pytest.raises(Conflict):
        await bench.board.push([Batch.of_channel("1001", "m", {"10001": 1.0})], {"1001": "v"})


async def test_one_reply_of_several_is_of_a_wrong_type_and_what_may_pass_is_no_answer(bench: Workbench) -> None:
    plane, keys = bench.plane, bench.plane.keys
    await plane.redis.set(keys.models(), "text")
    found, version = await plane.home.ask_each([("HKEYS", keys.models()), ("GET", keys.models_version())])
    assert isinstance(found, WrongType) and found.keys == (keys.models(),) and version is None
    passing = BusyLoadingError("LOADING Redis is loading the dataset in memory")
    with pytest.raises(BusyLoadingError):
        sorted_out([("GET", "a"), ("GET", "b")], [b"1", passing])


@pytest.mark.parametrize("any_redis", ["cluster3"], indirect=True)
async def test_one_spoilt_feed_of_many_stops_no_reader_and_no_trimming(bench: Workbench) -> None:
    plane, keys = bench.plane, bench.plane.keys
    for channel in ("7", "8"):
        await bench.board.write([Batch.of_channel(channel, "m", {"1": 1.0})])
    await plane.at("7").redis.delete(keys.feed("7"))
    await plane.at("7").redis.set(keys.feed("7"), "text")
    reader = FeedReader(plane, "me", start="oldest")
    batch = await reader.read(2000)
    assert batch is not None and {entry.key for entry in batch.entries} == {"comsrv:8:m"}
    await reader.commit(batch)
    assert not await reader.has_unread()
    await trim_feed(plane)
    assert (await feed_state(plane)).entries == 1
    await FeedReader(plane, "other").open()
    await reader.close()


async def test_an_outcome_that_cannot_be_read_hides_no_other(bench: Workbench) -> None:
    keys, address = bench.plane.keys, Address.parse("comsrv:1001:c:30001")
    await bench.plane.redis.set(keys.channel_outcomes("7"), "text")
    await bench.plane.redis.hset(
        keys.channel_outcomes("1001"),
        "c:30001",
        '{"id":"1","status":"success","value":"1","result":"success","message":"","who":"","source":"","at":"1"}',
    )
    found = await bench.commands.outcomes([Address.parse("comsrv:7:c:1"), address])
    assert found[0] is None and found[1] is not None
