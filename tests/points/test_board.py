"""The board: what a write does to values, times, qualities, the feed; and reading it. On every Redis."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.points.board_room import BoardRoom, board_room
from tradewind.clock import Clock, FakeClock
from tradewind.errors import Invalid
from tradewind.points.address import Address
from tradewind.points.board import Batch, Board, Written
from tradewind.points.spec import Kind, PointSpec
from tradewind.redis.connection import Link

KEY = "comsrv:1001:m"


@pytest.fixture
async def room(link: Link, key_prefix: str) -> AsyncIterator[BoardRoom]:
    async with board_room(link, key_prefix) as room:
        yield room


def batch(values: dict[str, float], ts_ms: Any = 0, quality: dict[str, str] | None = None, **more: Any) -> Batch:
    return Batch.of_channel("1001", "m", values, ts_ms, quality, **more)


async def test_a_write_leaves_value_time_and_feed_entry(room: BoardRoom) -> None:
    assert await room.board.write([batch({"1": 25.1, "2": -0.0})]) == Written(accepted=2)
    assert await room.hash_of(KEY) == {"1": "25.100000", "2": "0.000000"}
    assert await room.hash_of(KEY, 1) == {"1": str(room.now), "2": str(room.now)}
    assert await room.hash_of(KEY, 2) == {}
    assert await room.feed_of() == [{"k": KEY, "t": str(room.now), "d": "1:25.100000,2:0.000000"}]


async def test_several_hashes_are_written_in_one_call(room: BoardRoom) -> None:
    batches = [
        batch({"1": 1.5}),
        Batch.of_channel("1001", "s", {"2": 1, "3": False}),
        Batch.of_channel("1002", "c", {"4": 1.0}),
        Batch.of_model("power_calc", {"total_power": 1200.5}, origin="modsrv"),
    ]
    assert (await room.board.write(batches)).accepted == 5
    assert await room.hash_of("comsrv:1001:s") == {"2": "1", "3": "0"}
    assert await room.hash_of("comsrv:1002:c") == {"4": "1"}
    assert await room.hash_of("modsrv:power_calc:measurement") == {"total_power": "1200.500000"}
    entry = (await room.feed_of("" if room.plane.link.cluster else "1001"))[-1]
    assert entry["k"] == "modsrv:power_calc:measurement" and entry["o"] == "modsrv"


async def test_latest_only_moves_forward(room: BoardRoom) -> None:
    now = room.now
    await room.board.write([batch({"1": 1.0, "2": 2.0}, now)])
    assert await room.board.write([batch({"1": 9.0, "3": 3.0}, now - 1)]) == Written(accepted=1, late=1)
    assert await room.hash_of(KEY) == {"1": "1.000000", "2": "2.000000", "3": "3.000000"}
    _, taken, late = await room.feed_of()
    assert taken == {"k": KEY, "t": str(now - 1), "d": "3:3.000000", "e": "1"}
    assert late == {"k": KEY, "t": str(now - 1), "d": "1:9.000000", "l": "1"}


async def test_of_equal_times_the_last_wins_and_repeats_are_dropped(room: BoardRoom) -> None:
    now = room.now
    await room.board.write([batch({"1": 1.0, "2": 2.0, "3": 3.0}, now)])
    again = batch({"1": 1.0, "2": 5.0, "3": 3.0}, now, {"3": "bad"})
    assert await room.board.write([again]) == Written(accepted=2, duplicates=1, equal=2)
    assert await room.board.write([again]) == Written(duplicates=3)
    assert await room.hash_of(KEY) == {"1": "1.000000", "2": "5.000000", "3": "3.000000"}
    assert [entry["d"] for entry in (await room.feed_of())[1:]] == ["2:5.000000,3:3.000000"]


async def test_a_time_in_the_future_becomes_now_and_uncertain(room: BoardRoom) -> None:
    now = room.now
    ahead = {"1": now + 5000, "2": now + 5001, "3": now + 9000}
    written = await room.board.write([batch({"1": 1.0, "2": 2.0, "3": 3.0}, ahead, {"3": "bad"})])
    assert written == Written(accepted=3, clamped=2)
    assert await room.hash_of(KEY, 1) == {"1": str(now + 5000), "2": str(now), "3": str(now)}
    assert await room.hash_of(KEY, 2) == {"2": "uncertain", "3": "bad"}
    (entry,) = await room.feed_of()
    assert entry["q"] == "2:uncertain,3:bad" and entry["p"] == f"{now + 5000},{now},{now}"


async def test_points_may_have_times_of_their_own(room: BoardRoom) -> None:
    now = room.now
    times = {"1": now - 10, "2": now - 20}
    await room.board.write([batch({"1": 1.0, "2": 2.0, "3": 3.0}, times)])
    assert await room.hash_of(KEY, 1) == {"1": str(now - 10), "2": str(now - 20), "3": str(now)}
    assert await room.board.write([batch({"1": 1.0, "2": 8.0}, {"1": now - 11, "2": now - 19})]) == Written(1, 1)


async def test_quality_comes_and_goes_with_the_values(room: BoardRoom, key_prefix: str) -> None:
    now = room.now
    await room.board.write([batch({"1": 1.0, "2": 2.0}, now, {"1": "bad", "2": "uncertain"})])
    assert await room.hash_of(KEY, 2) == {"1": "bad", "2": "uncertain"}
    await room.board.write([batch({"1": 1.0}, now + 1)])
    assert await room.hash_of(KEY, 2) == {"2": "uncertain"}
    assert (await room.feed_of())[0]["q"] == "1:bad,2:uncertain"


async def test_a_quality_without_a_value_keeps_value_and_time(room: BoardRoom) -> None:
    now = room.now
    await room.board.write([batch({"1": 1.0, "2": 2.0}, now - 50)])
    for _ in range(2):  # the second time nothing changes, so nobody is told
        assert await room.board.write([batch({}, 0, {"1": "bad", "9": "bad"})]) == Written()
    assert await room.hash_of(KEY, 1) == {"1": str(now - 50), "2": str(now - 50)}
    assert await room.hash_of(KEY, 2) == {"1": "bad", "9": "bad"}
    await room.board.write([batch({"2": 3.0}, 0, {"1": "good"})])
    assert await room.hash_of(KEY, 2) == {"9": "bad"}
    _, bad, good = await room.feed_of()
    assert bad == {"k": KEY, "t": str(now), "d": "", "q": "1:bad,9:bad"}
    assert (good["d"], good["q"]) == ("2:3.000000", "1:good")


async def test_bad_input_is_refused_whole_and_each_is_named(room: BoardRoom) -> None:
    bad: list[Any] = [
        batch({"1": 1.0, "2": math.nan, "3": "4", "x": 1.0}),
        Batch.of_channel("1001", "s", {"1": 2, "2": math.inf}),
        Batch.of_channel("12a", "m", {"1": 1.0}),
        Batch.of_model("power_calc", {"a b": 1.0, "n": 1.0}),
        Batch("modsrv:power_calc:control", {"x": 1.0}),
        batch({"1": 1.0}, 1234),
        batch({"1": 1.0}, {"1": -5}),
        batch({"1": 1.0}, 0, {"1": "fine", "y": "bad"}),
        batch({"1": 10**400}),
    ]
    with pytest.raises(Invalid) as caught:
        await room.board.write(bad)
    found = {(problem.code, problem.path) for problem in caught.value.problems}
    assert found == {
        ("bad_id", "batches[0].values.x"),
        ("not_a_switch", "batches[1].values.1"),
        ("not_finite", "batches[1].values.2"),
        ("bad_key", "batches[2].key"),
        ("bad_id", "batches[3].values.a b"),
        ("bad_key", "batches[4].key"),
        ("bad_timestamp", "batches[5].ts_ms"),
        ("bad_timestamp", "batches[6].ts_ms.1"),
        ("bad_quality", "batches[7].quality.1"),
        ("bad_id", "batches[7].quality.y"),
        ("not_a_number", "batches[8].values.1"),
    }
    with pytest.raises(Invalid) as caught:
        await room.board.write([batch({"1": 1.0}), batch({"1": 1.0, "2": math.nan, "3": "4"})])  # type: ignore[dict-item]
    assert [problem.path for problem in caught.value.problems] == ["batches[1].values.2", "batches[1].values.3"]
    assert await room.hash_of(KEY) == {} and await room.feed_of() == []


async def test_a_field_with_the_letters_of_nan_is_no_nan(room: BoardRoom) -> None:
    await room.board.write([Batch.of_model("plant", {"gain": 1.0, "inf": -0.0})])
    assert await room.hash_of("modsrv:plant:measurement") == {"gain": "1.000000", "inf": "0.000000"}


async def test_from_a_driver_a_broken_value_makes_its_point_bad(room: BoardRoom) -> None:
    await room.board.write([batch({"1": 1.0, "2": 2.0})])
    room.clock.advance(1)  # type: ignore[attr-defined]
    await room.board.write([batch({"1": math.nan, "2": 3.0}, is_lenient=True)])
    await room.board.write([batch({"1": math.inf}, is_lenient=True)])
    assert await room.hash_of(KEY) == {"1": "1.000000", "2": "3.000000"}
    assert await room.hash_of(KEY, 2) == {"1": "bad"}


async def test_a_batch_larger_than_a_script_takes_is_written_in_pieces(room: BoardRoom) -> None:
    values = {str(i): i / 7 for i in range(1, 45_001)}
    times = {name: room.now - int(name) % 3 for name in values}
    assert await room.board.write([batch(values, times, {"44000": "bad", "5": "uncertain"})]) == Written(45_000)
    assert await room.board.write([batch(values, times, {"44000": "bad", "5": "uncertain"})]) == Written(0, 0, 45_000)
    assert await room.hash_of(KEY) == {name: f"{value:.6f}" for name, value in values.items()}
    assert await room.hash_of(KEY, 2) == {"44000": "bad", "5": "uncertain"}


async def test_a_lost_mark_is_found_again(room: BoardRoom) -> None:
    await room.board.write([batch({"1": 1.0}, room.now)])
    await room.plane.at("1001").redis.delete(room.keys.points_mark("1001", "m"))
    assert await room.board.write([batch({"1": 2.0, "2": 2.0}, room.now - 5)]) == Written(1, 1)


async def test_a_repeat_after_a_lost_reply_changes_nothing(room: BoardRoom) -> None:
    keys, args = room.board._packed(room.board._formats.lines([batch({"1": 1.0, "2": 2.0})]), "1001")
    scripts = room.plane.at("1001").scripts
    assert await scripts.run("board_write", keys, args) == [2, 0, 0, 0, 0, 0, 0]
    args[0] = str(room.now + 1)
    assert await scripts.run("board_write", keys, args) == [2, 0, 0, 0, 0, 0, 0]
    assert len(await room.feed_of()) == 1


async def test_several_readings_of_a_point_are_written_in_order_and_their_repeat_changes_nothing(
    room: BoardRoom,
) -> None:
    at = room.now - 1000
    burst = [
        batch({"1": 1.0}, at),
        batch({}, at + 1, {"1": "bad"}),
        batch({"1": 2.0, "2": 5.0}, {"1": at + 2, "2": at + 3}),
        batch({"1": 3.0}, at + 4),
    ]
    keys, args = room.board._packed(room.board._formats.lines(burst), "1001")
    scripts = room.plane.at("1001").scripts
    for _ in range(2):
        assert await scripts.run("board_write", keys, args) == [4, 0, 0, 0, 0, 0, 0]
        told = [(entry["d"], entry["t"], entry.get("q", "")) for entry in await room.feed_of()]
        assert told == [
            ("1:1.000000", str(at), ""),
            ("", str(at + 1), "1:bad"),
            ("1:2.000000,2:5.000000", str(at + 3), ""),
            ("1:3.000000", str(at + 4), ""),
        ]
        assert await room.hash_of(KEY, 2) == {}


async def test_reading_many_gives_them_in_order_with_age_and_unit(link: Link, key_prefix: str) -> None:
    clock = FakeClock()
    async with board_room(link, key_prefix, clock) as room:
        spec = PointSpec(Kind.MEASUREMENT, "1", unit="kW", max_age_s=120)
        board = Board(room.plane, lambda address: spec if str(address) == f"{KEY}:1" else None)
        await board.write(
            [batch({"1": 1.5, "2": 2.5}), Batch.of_model("plant", {"power": 7}), batch({}, 0, {"9": "bad"})]
        )
        clock.advance(31)
        names = [f"{KEY}:2", "modsrv:plant:measurement:power", f"{KEY}:9", f"{KEY}:1"]
        two, power, nine, one = await board.read([names[0], Address.parse(names[1]), *names[2:]])
        assert [point.address for point in (two, power, nine, one)] == names
        assert (two.value, two.quality, two.is_stale, two.age_ms) == (2.5, "uncertain", True, 31_000)
        assert (power.value, power.quality, power.is_stale) == (7.0, "uncertain", True), "nobody computes models here"
        assert (nine.value, nine.ts, nine.quality, nine.age_ms) == (None, None, "bad", None)
        assert (one.value, one.unit, one.quality, one.ts) == (1.5, "kW", "good", clock.ms - 31_000)
        with pytest.raises(Invalid) as caught:
            await board.read(["x", names[0], "y"])
        assert len(caught.value.problems) == 2


async def test_unchanged_points_of_a_channel_that_answers_are_fresh(room: BoardRoom) -> None:
    await room.board.write([batch({"1": 1.0})])
    room.clock.advance(100)  # type: ignore[attr-defined]
    assert (await room.board.read_one(f"{KEY}:1")).is_stale
    await room.plane.at("1001").redis.hset(room.keys.channel_status("1001"), "last_ms", room.now - 1000)
    point = await room.board.read_one(f"{KEY}:1")
    assert (point.is_stale, point.quality, point.age_ms) == (False, "good", 100_000)


async def test_channels_lengths_and_everything(room: BoardRoom) -> None:
    await room.plane.redis.hset(room.keys.channels(), "7", "{}")
    await room.plane.redis.hset(room.keys.models(), "plant", "{}")
    batches = [batch({"10": 1, "9": 2}), Batch.of_channel("1001", "a", {"3": 1}), Batch.of_channel("7", "s", {"1": 1})]
    await room.board.write([*batches, Batch.of_model("plant", {"power": 7})])
    assert await room.board.channels() == ["7", "1001"]
    assert await room.board.lengths("1001") == {"m": 2, "s": 0, "c": 0, "a": 1}
    names = [point.address for point in await room.board.read_channel("1001")]
    assert names == [f"{KEY}:9", f"{KEY}:10", "comsrv:1001:a:3"]
    everything = [point.address for part in [part async for part in room.board.read_all()] for point in part]
    assert everything == ["comsrv:7:s:1", *names, "modsrv:plant:measurement:power"]
    pushed = await room.plane.redis.smembers(room.keys.channels_pushed())
    assert pushed == {b"1001:m", b"1001:a"}, "channel 7 is declared"


async def test_foreign_values_in_a_hash_do_not_stop_a_reader(room: BoardRoom) -> None:
    name = room.keys.points("1001", "m")
    await room.plane.at("1001").redis.hset(name, mapping={"1": "abc", "2": "nan", "3": "1.5"})
    await room.plane.redis.hset(room.keys.model_values("plant", "control"), "limit", "1500.0:1642592400000:operator")
    assert [point.value for point in await room.board.read_channel("1001")] == [None, None, 1.5]
    limit = await room.board.read_one("modsrv:plant:control:limit")
    assert (limit.value, limit.ts) == (1500.0, 1642592400000)


async def test_compare_and_set(room: BoardRoom) -> None:
    address = f"{KEY}:1"
    assert not await room.board.compare_and_set(address, 1.0, 2.0)
    assert await room.board.compare_and_set(address, None, 1.0)
    assert not await room.board.compare_and_set(address, None, 5.0)
    assert await room.board.compare_and_set(address, 1, 2.0)
    await room.board.write([batch({"1": 3.0}, room.now + 4000)])
    assert await room.board.compare_and_set(address, 3.0, 4.0), "also when the device's clock is ahead"
    assert await room.hash_of(KEY) == {"1": "4.000000"}
    assert [entry["d"] for entry in await room.feed_of()] == ["1:1.000000", "1:2.000000", "1:3.000000", "1:4.000000"]


async def test_of_many_who_compare_one_wins(room: BoardRoom) -> None:
    await room.board.write([batch({"1": 0.0})])
    tries = [room.board.compare_and_set(f"{KEY}:1", 0.0, float(n)) for n in range(1, 21)]
    assert sum(await asyncio.gather(*tries)) == 1


async def test_removing_a_channel_leaves_nothing_of_it(room: BoardRoom) -> None:
    await room.board.write([batch({"1": 1.0}, 0, {"1": "bad"}), Batch.of_channel("1001", "s", {"1": 1})])
    await room.board.write([Batch.of_model("plant", {"power": 7})])
    assert await room.board.remove_channel("1001") > 0
    assert await room.board.remove_model("plant") > 0
    assert await room.board.read_channel("1001") == [] and await room.board.channels() == []
    left = [key async for key in room.plane.redis.scan_iter(match=f"{room.keys.channel_prefix}*")]
    assert set(left) <= {room.keys.feed().encode()}
    await room.board.write([batch({"1": 2.0}, room.now - 1000)])
    assert await room.board.channels() == ["1001"], "it may come back, with any time"


async def test_values_of_a_model_may_have_a_life(room: BoardRoom) -> None:
    await room.board.write([Batch.of_model("plant", {"power": 7}, ttl_s=604_800)])
    ttl = await room.plane.redis.ttl(room.keys.model_values("plant", "measurement"))
    assert 604_000 < ttl <= 604_800


async def test_writers_at_once_end_with_the_newest_of_each_point(link: Link, key_prefix: str) -> None:
    async with board_room(link, key_prefix, Clock()) as room:
        base = room.now - 60_000
        boards = [Board(room.plane) for _ in range(4)]

        async def write(number: int) -> int:
            total = 0
            for step in range(25):
                ts = base + step * 4 + number
                values = {str(point): ts - base + point / 1000 for point in range(50)}
                written = await boards[number].write([batch(values, ts)])
                total += written.accepted + written.late
            return total

        assert sum(await asyncio.gather(*map(write, range(4)))) == 4 * 25 * 50
        assert await room.hash_of(KEY) == {str(p): f"{99 + p / 1000:.6f}" for p in range(50)}
        assert set((await room.hash_of(KEY, 1)).values()) == {str(base + 99)}
        assert sum(len(entry["d"].split(",")) for entry in await room.feed_of()) == 4 * 25 * 50
