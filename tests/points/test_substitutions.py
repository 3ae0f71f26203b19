"""Substituted points: what people say is shown, what the device says is kept and comes back. On every Redis."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, ClassVar

import pytest

from tests.points.board_room import BoardRoom, board_room
from tests.points.site import Site
from tradewind.errors import Conflict, Invalid, Overloaded
from tradewind.points.address import Address
from tradewind.points.board import Batch, Board, PointValue, Written
from tradewind.points.channel_store import ChannelStore, version_of
from tradewind.points.driver import Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Reading
from tradewind.points.substitutions import RELEASED_MS, SubstituteRequest, Substitutions
from tradewind.redis.connection import Link

KEY = "comsrv:1001:m"
WHERE = "comsrv:1001:m:10001"
HOUR_MS = 3_600_000
CHANNEL = ChannelSpec(
    "1001",
    points=(
        PointSpec(Kind.MEASUREMENT, "10001"),
        PointSpec(Kind.MEASUREMENT, "10002"),
        PointSpec(Kind.SIGNAL, "20001"),
        PointSpec(Kind.CONTROL, "30001"),
    ),
)


class Room:
    def __init__(self, room: BoardRoom, link: Link) -> None:
        self.room = room
        self.board, self.clock = room.board, room.clock
        self.channels = ChannelStore(link, room.keys)
        self.substitutions = Substitutions(room.board, self.channels)

    async def drive(self, value: float, ts_ms: int = 0, quality: str = "", point: str = "10001") -> Written:
        """As the driver of the channel."""
        return await self.board.write(
            [Batch.of_channel("1001", "m", {point: value}, ts_ms, {point: quality} if quality else None)]
        )

    async def mark(self, word: str, point: str = "10001") -> None:
        await self.board.write([Batch.of_channel("1001", "m", {}, quality={point: word})])

    async def substitute(self, value: float, for_s: float | None = None, address: str = WHERE, **more: Any) -> Any:
        request = SubstituteRequest(address, value, more.pop("reason", "sensor is broken"), "ada", for_s=for_s)
        return await self.substitutions.substitute(request)

    async def shown(self, address: str = WHERE) -> PointValue:
        return await self.board.read_one(address)

    async def told(self) -> list[dict[str, str]]:
        return await self.room.feed_of()

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)  # type: ignore[attr-defined]


@pytest.fixture
async def plant(link: Link, key_prefix: str) -> AsyncIterator[Room]:
    async with board_room(link, key_prefix) as room:
        found = Room(room, link)
        await found.channels.put([CHANNEL])
        yield found


async def test_the_board_shows_what_people_say_and_keeps_what_the_device_says(plant: Room) -> None:
    await plant.drive(20.0)
    plant.pass_s(1)
    made = await plant.substitute(25.5)
    assert (made.value, made.who, made.reason) == (25.5, "ada", "sensor is broken")
    assert made.until_ms - made.since_ms == 8 * HOUR_MS
    plant.pass_s(1)
    assert await plant.drive(21.0) == Written(held=1)
    await plant.drive(22.0, quality="uncertain")
    shown = await plant.shown()
    assert (shown.value, shown.quality, shown.ts) == (25.5, "substituted", made.since_ms)
    said = shown.substitution
    assert said is not None
    assert (said.device_value, said.device_ts, said.device_quality) == (22.0, plant.room.now, "uncertain")
    assert said.held == 2
    assert [entry.get("q") for entry in await plant.told()] == [None, "10001:substituted"]
    by_channel = await plant.board.read_channel("1001", "m")
    assert [(point.quality, point.substitution) for point in by_channel] == [("substituted", said)]
    assert await plant.substitutions.standing() == [said]


async def test_a_release_shows_the_devices_value_at_once(plant: Room) -> None:
    await plant.drive(20.0)
    await plant.substitute(25.5)
    plant.pass_s(1)
    await plant.drive(21.0)
    plant.pass_s(1)
    assert await plant.substitutions.release(WHERE, "ada") is True
    shown = await plant.shown()
    assert (shown.value, shown.quality, shown.substitution) == (21.0, "good", None)
    assert (await plant.told())[-1] == {
        "k": KEY, "t": str(plant.room.now), "d": "10001:21.000000", "q": "10001:good", "o": "substitute",
    }  # fmt: skip
    assert await plant.substitutions.standing() == []
    assert await plant.substitutions.release(WHERE) is False
    plant.pass_s(1)
    assert await plant.drive(22.0) == Written(accepted=1)
    assert (await plant.shown()).value == 22.0
    key = plant.room.keys.point_substitutions("1001")
    assert await plant.room.plane.at("1001").redis.exists(key) == 0  # nothing is left behind


async def test_what_the_device_said_long_ago_is_uncertain_after_the_release(plant: Room) -> None:
    await plant.drive(20.0)
    plant.pass_s(5)
    await plant.substitute(25.5)
    plant.pass_s(60)
    await plant.substitutions.release(WHERE)
    assert ((await plant.shown()).value, (await plant.shown()).quality) == (20.0, "uncertain")
    # A channel that answers speaks for its unchanged points.
    await plant.substitute(25.5)
    status = plant.room.keys.channel_status("1001")
    await plant.mark("good")
    await plant.room.plane.at("1001").redis.hset(status, "last_ms", str(plant.room.now))
    await plant.substitutions.release(WHERE)
    assert (await plant.shown()).quality == "good"


async def test_a_point_without_a_value_has_none_after_the_release(plant: Room) -> None:
    await plant.substitute(1.0)
    assert (await plant.shown()).quality == "substituted"
    await plant.substitutions.release(WHERE)
    shown = await plant.shown()
    assert (shown.value, shown.quality, shown.is_refused) == (None, "bad", False)
    assert (await plant.told())[-1]["q"] == "10001:bad" and (await plant.told())[-1]["d"] == ""


async def test_marks_of_the_driver_wait_for_the_release(plant: Room) -> None:
    await plant.drive(20.0)
    await plant.substitute(25.5)
    await plant.mark("bad")
    assert (await plant.shown()).quality == "substituted"
    await plant.substitutions.release(WHERE)
    assert ((await plant.shown()).value, (await plant.shown()).quality) == (20.0, "bad")


async def test_a_substituted_value_does_not_grow_old_but_ends(plant: Room) -> None:
    await plant.substitute(25.5, for_s=600)
    plant.pass_s(599)
    shown = await plant.shown()
    assert (shown.quality, shown.is_stale) == ("substituted", False)
    plant.pass_s(2)
    assert (await plant.shown()).quality == "uncertain"  # also before anybody has swept it
    assert await plant.substitutions.sweep() == [WHERE]
    assert (await plant.shown()).value is None


async def test_the_end_comes_with_the_next_reading_without_any_sweep(plant: Room) -> None:
    await plant.drive(20.0)
    await plant.substitute(25.5, for_s=10)
    plant.pass_s(11)
    assert await plant.drive(21.0) == Written(accepted=1, equal=1)
    assert ((await plant.shown()).value, (await plant.shown()).quality) == (21.0, "good")
    plant.pass_s(1)
    assert await plant.substitutions.sweep() == []
    assert (await plant.shown()).value == 21.0


async def test_readings_from_before_the_substitution_are_late_as_always(plant: Room) -> None:
    began = plant.room.now
    await plant.drive(20.0, began)
    plant.pass_s(10)
    await plant.substitute(25.5)
    assert await plant.drive(21.0, began + 5_000) == Written(late=1)
    entry = (await plant.told())[-1]
    assert (entry["l"], entry["d"], entry["t"]) == ("1", "10001:21.000000", str(began + 5_000))
    said = (await plant.shown()).substitution
    assert said is not None and (said.device_value, said.device_ts) == (21.0, began + 5_000)


async def test_a_device_whose_clock_is_behind_is_believed_after_the_release(plant: Room) -> None:
    """It reports changes only: a reading that counts as late would be shown never."""
    behind = plant.room.now - 60_000
    await plant.drive(20.0, behind)
    await plant.substitute(25.5)
    plant.pass_s(10)
    await plant.substitutions.release(WHERE)
    released = plant.room.now
    plant.pass_s(1)
    await plant.drive(23.0, behind + 11_000)
    assert ((await plant.shown()).value, (await plant.shown()).ts) == (23.0, released)
    await plant.drive(19.0, behind + 10_500)  # older than that: late
    assert (await plant.shown()).value == 23.0
    plant.pass_s(60)
    await plant.drive(24.0, behind + 71_000)
    assert ((await plant.shown()).value, (await plant.shown()).ts) == (24.0, behind + 71_000)


@pytest.mark.parametrize("back_s", [3, 3600])
async def test_a_substitution_outlasts_a_clock_that_is_set_back(plant: Room, back_s: float) -> None:
    await plant.drive(20.0)
    plant.pass_s(1)
    await plant.substitute(25.5)
    plant.pass_s(-back_s)
    assert await plant.drive(21.0) == Written(held=1)
    assert ((await plant.shown()).value, (await plant.shown()).quality) == (25.5, "substituted")
    plant.pass_s(1)
    await plant.substitutions.release(WHERE)
    assert (await plant.shown()).value == 21.0
    assert ("b" in (await plant.told())[-1]) == (back_s > 5)
    plant.pass_s(1)
    await plant.drive(22.0)
    assert (await plant.shown()).value == 22.0


async def test_other_points_of_the_same_batch_are_written(plant: Room) -> None:
    await plant.substitute(25.5)
    now = plant.room.now
    batch = Batch.of_channel(
        "1001",
        "m",
        {"10001": 1.0, "10002": 2.0, "10003": 3.0},
        {"10002": now - 10, "10003": now},
        {"10003": "uncertain"},
    )
    plant.pass_s(1)
    assert await plant.board.write([batch]) == Written(accepted=2, held=1)
    assert await plant.room.hash_of(KEY) == {"10001": "25.500000", "10002": "2.000000", "10003": "3.000000"}
    assert await plant.room.hash_of(KEY, 1) == {"10001": str(now), "10002": str(now - 10), "10003": str(now)}
    assert await plant.room.hash_of(KEY, 2) == {"10001": "substituted", "10003": "uncertain"}


async def test_a_second_substitution_takes_the_place_of_the_first(plant: Room) -> None:
    await plant.drive(20.0)
    await plant.substitute(25.5)
    await plant.substitute(26.5, for_s=60, reason="better known")
    [found] = await plant.substitutions.standing()
    assert (found.value, found.reason, found.device_value) == (26.5, "better known", 20.0)
    await plant.substitutions.release(WHERE)
    assert (await plant.shown()).value == 20.0


REFUSED = [
    (SubstituteRequest("comsrv:1001:c:30001", 1, "why"), "not_substitutable", "address"),
    (SubstituteRequest("modsrv:power:measurement:p", 1, "why"), "not_substitutable", "address"),
    (SubstituteRequest("comsrv:9:m:1", 1, "why"), "unknown_channel", "address"),
    (SubstituteRequest("comsrv:1001:m:9", 1, "why"), "unknown_point", "address"),
    (SubstituteRequest("1001", 1, "why"), "bad_address", "address"),
    (SubstituteRequest("comsrv:1001:s:20001", 0.5, "why"), "not_a_switch", "value"),
    (SubstituteRequest(WHERE, float("nan"), "why"), "not_finite", "value"),
    (SubstituteRequest(WHERE, 1, "  "), "no_reason", "reason"),
    (SubstituteRequest(WHERE, 1, "x" * 501), "too_long", "reason"),
    (SubstituteRequest(WHERE, 1, "why", for_s=0), "out_of_range", "for_s"),
    (SubstituteRequest(WHERE, 1, "why", for_s=604_801), "out_of_range", "for_s"),
    (SubstituteRequest(WHERE, 1, "why", for_s=float("nan")), "out_of_range", "for_s"),
]


async def test_what_cannot_be_substituted_is_refused(plant: Room) -> None:
    for request, code, path in REFUSED:
        with pytest.raises(Invalid) as caught:
            await plant.substitutions.substitute(request)
        assert [(problem.code, problem.path) for problem in caught.value.problems] == [(code, path)]
    assert await plant.told() == []


async def test_a_channel_has_a_bound(plant: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.points.substitutions.MAX_POINTS", 1)
    await plant.substitute(1.0)
    await plant.substitute(2.0)  # the same point
    with pytest.raises(Overloaded):
        await plant.substitute(1.0, address="comsrv:1001:m:10002")


async def test_no_driver_can_say_substituted(plant: Room) -> None:
    with pytest.raises(Invalid, match="substitute the point instead"):
        await plant.drive(1.0, quality="substituted")


async def test_points_and_channels_that_are_gone_are_not_substituted(plant: Room) -> None:
    await plant.drive(20.0)
    await plant.substitute(25.5)
    await plant.substitute(1, address="comsrv:1001:s:20001")
    await plant.channels.put([ChannelSpec("1001", points=CHANNEL.points[1:])])
    assert await plant.substitutions.sweep() == [WHERE]
    assert (await plant.shown()).value == 20.0
    await plant.channels.remove(["1001"])
    await plant.board.remove_channel("1001")
    assert await plant.substitutions.standing() == []
    home = plant.room.plane.redis
    assert await home.exists(plant.room.keys.channels_substituted()) == 0
    assert await plant.room.plane.at("1001").redis.exists(plant.room.keys.point_substitutions("1001")) == 0


async def test_records_that_nobody_can_read_hold_up_nobody(plant: Room) -> None:
    key, place = plant.room.keys.point_substitutions("1001"), plant.room.plane.at("1001")
    broken = {
        "m:10001": "{",
        "m:10002": '{"since": [], "until": 7}',
        "m": "x",
        "x:1": "{}",
        "m:3": '{"since": "17e11"}',
    }
    await place.redis.hset(key, mapping=broken)
    await plant.substitute(1, address="comsrv:1001:s:20001")
    assert await plant.drive(21.0) == Written(accepted=1)
    assert await plant.drive(22.0, point="10002") == Written(accepted=1)
    assert [item.address for item in await plant.substitutions.standing()] == ["comsrv:1001:s:20001"]
    assert await plant.substitutions.sweep() == []
    await place.redis.delete(key)
    await place.redis.set(key, "a text")
    assert await plant.drive(23.0, plant.room.now + 1) == Written(accepted=1)


async def test_what_is_left_of_a_substitution_goes_after_a_day(plant: Room) -> None:
    await plant.drive(20.0)
    await plant.substitute(25.5)
    await plant.substitutions.release(WHERE)
    key, place = plant.room.keys.point_substitutions("1001"), plant.room.plane.at("1001")
    plant.pass_s(RELEASED_MS / 1000 - 1)
    await plant.substitutions.sweep()
    assert await place.redis.hlen(key) == 1
    plant.pass_s(2)
    assert await plant.substitutions.sweep() == []
    assert await place.redis.exists(key) == 0
    assert (await plant.shown()).value == 20.0


async def test_a_sweep_does_not_end_what_was_begun_anew(plant: Room) -> None:
    await plant.drive(20.0)
    made = await plant.substitute(25.5, for_s=10)
    plant.pass_s(11)
    await plant.substitute(26.5, for_s=10)
    assert not await plant.substitutions._release(Address.parse(WHERE), str(made.since_ms))
    assert (await plant.shown()).value == 26.5


async def test_drivers_people_and_sweepers_at_once_leave_one_truth(link: Link, key_prefix: str) -> None:
    """Whatever the order: while it is substituted nothing else is shown, and in the end the last reading is."""
    async with board_room(link, key_prefix) as room:
        plant = Room(room, link)
        await plant.channels.put([CHANNEL])
        chance = random.Random(7)
        count, rounds = 0, 40

        async def drive() -> None:
            nonlocal count
            for _ in range(rounds):
                count += 1
                plant.pass_s(0.001)
                await plant.drive(float(count))
                await asyncio.sleep(0)

        async def people() -> None:
            for _ in range(rounds // 2):
                await plant.substitute(-1.0, for_s=60)
                shown = await plant.shown()
                assert (shown.value, shown.quality) == (-1.0, "substituted")
                for _ in range(chance.randrange(3)):
                    await plant.shown()
                assert await plant.substitutions.release(WHERE)
                assert (await plant.shown()).value != -1.0

        async def sweep() -> None:
            for _ in range(rounds):
                await plant.substitutions.sweep()

        await plant.drive(0.5)
        await asyncio.gather(drive(), people(), sweep())
        assert (await plant.shown()).value == float(rounds)
        told = [entry for entry in await plant.told() if "-1.000000" in entry["d"]]
        assert len(told) == rounds // 2 and all(entry["q"] == "10001:substituted" for entry in told)


async def test_a_push_is_refused_when_the_definition_is_another_one(plant: Room) -> None:
    batch = [Batch.of_channel("1001", "m", {"10001": 1.0})]
    with pytest.raises(Conflict) as caught:
        await plant.board.push(batch, {})
    assert caught.value.code == "definition_changed"
    assert await plant.room.hash_of(KEY) == {}
    assert await plant.board.push(batch, {"1001": version_of(CHANNEL)}) == Written(accepted=1)
    assert await plant.board.push([Batch.of_channel("7", "m", {"1": 1.0})], {}) == Written(accepted=1)


class Silent(Driver):
    """A device that has not answered yet."""

    protocol: ClassVar[str] = "silent"

    async def connect(self) -> None:
        await asyncio.sleep(60)

    async def poll(self) -> Sequence[Reading]:
        return ()


async def test_pushed_values_of_a_channel_that_gets_a_device_are_uncertain(link: Link, key_prefix: str) -> None:
    """They would free an interlock before the device has said anything."""
    site = Site(link, key_prefix)
    await site.board.push([Batch.of_channel("1001", "m", {"10001": 10.0})], {})
    await site.store.put([ChannelSpec("1001", protocol="silent", timeout_ms=60_000, points=CHANNEL.points)])
    drivers = DriverRegistry()
    drivers.add(Silent)
    assert await site.qualities("1001") == {"good"}
    async with site.running(drivers=drivers):

        async def is_uncertain() -> bool:
            return await site.qualities("1001") == {"uncertain"}

        await site.until(is_uncertain, "uncertain values")
    await site.board.write([Batch.of_channel("1001", "m", {"10001": 11.0})])
    async with site.running(drivers=drivers):  # the same driver again: what it read stays good
        await site.until(lambda: _is_polled(site), "a process that polls")
        assert await site.qualities("1001") == {"good"}
    await site.plane.close()


async def _is_polled(site: Site) -> bool:
    return "owner" in await site.status("1001")


async def test_a_large_push_says_when_a_part_of_it_was_written(
    link: Link, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with board_room(link, key_prefix) as room:
        channels = ChannelStore(link, room.keys)
        monkeypatch.setattr("tradewind.points.board.MAX_POINTS", 2)
        batches = [Batch.of_channel("7", "m", {"1": 1.0, "2": 1.0, "3": 1.0})]
        assert await room.board.push(batches, {}) == Written(accepted=3)
        with pytest.raises(Conflict, match=r"otherwise in between$"):
            await room.board.push(batches, {"7": "v"})
        versions, asked = Board._versions, 0

        async def declare(board: Board, names: Iterable[str]) -> dict[str, str]:
            nonlocal asked
            found, asked = await versions(board, names), asked + 1
            if asked == 1:  # between the first look and the pieces
                await channels.put([ChannelSpec("7", protocol="virtual")])
            return found

        monkeypatch.setattr(Board, "_versions", declare)
        room.clock.advance(1)  # type: ignore[attr-defined]
        with pytest.raises(Conflict, match="written before that") as caught:
            await room.board.push([Batch.of_channel("7", "m", {"1": 2.0, "2": 2.0, "3": 2.0})], {})
        assert caught.value.code == "definition_changed"
        points = await room.board.read([f"comsrv:7:m:{n}" for n in (1, 2, 3)])
        assert {point.quality for point in points} == {"uncertain"}
