"""Periodic tasks: slots without drift, one task per slot whoever fires it, only the latest after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import servers
from tests.tasks.room import Room
from tradewind.errors import Invalid, NotFound
from tradewind.settings import RedisSettings, Settings, TaskSettings
from tradewind.station import open_station
from tradewind.tasks.function import registry, task
from tradewind.tasks.periodic import Periodic, Schedule, ScheduleStore, check_schedule, parse_every

MINUTE = 60_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


async def slots_of(room: Room, name: str = "s") -> list[int]:
    ids = [i for i in (await room.look()).tasks if i.startswith(f"{name}_")]
    return sorted(int(i.removeprefix(f"{name}_")) for i in ids)


async def test_interval_slots_are_counted_from_the_epoch_and_never_drift(room: Room) -> None:
    room.clock.ms = 1_700_000_003_217
    schedules, periodic = ScheduleStore(room.plane), Periodic(room.plane, room.store)
    assert (await schedules.set(Schedule("s", "a", every_ms=1500))).next_ms == 1_700_000_004_000
    for _ in range(200):
        room.clock.advance(0.377)  # late by something else each time
        await periodic.fire_due(room.clock.ms)
    slots = await slots_of(room)
    assert slots == list(range(1_700_000_004_000, room.clock.ms + 1, 1500)) and len(slots) > 45


async def test_cron_slots_are_utc(room: Room) -> None:
    room.clock.ms = ms("2027-02-27T23:50:00.500")
    schedules, periodic = ScheduleStore(room.plane), Periodic(room.plane, room.store)
    await schedules.set(Schedule("s", "a", cron="*/20 0,1 * * *"))
    for _ in range(15):
        await periodic.fire_due(room.clock.ms)
        room.clock.advance(600)
    day = "2027-02-28T0"
    wanted = [f"{day}0:00", f"{day}0:20", f"{day}0:40", f"{day}1:00", f"{day}1:20", f"{day}1:40"]
    assert await slots_of(room) == [ms(w) for w in wanted]
    assert (await schedules.get("s")).next_ms == ms("2027-03-01T00:00")


@pytest.mark.parametrize("rule", [{"every_ms": MINUTE}, {"cron": "* * * * *"}])
async def test_only_the_latest_slot_runs_after_a_pause(room: Room, rule: dict[str, int]) -> None:
    room.clock.ms = ms("2027-01-01T12:00:30")
    schedules = ScheduleStore(room.plane)
    await schedules.set(Schedule("s", "a", **rule))  # type: ignore[arg-type]
    room.clock.ms = ms("2027-01-01T12:10:30")
    next_ms = await Periodic(room.plane, room.store).fire_due(room.clock.ms)
    assert await slots_of(room) == [ms("2027-01-01T12:10")] and next_ms == ms("2027-01-01T12:11")


async def test_racing_leaders_make_one_task_of_a_slot(room: Room) -> None:
    schedules = ScheduleStore(room.plane)
    for name in ("s", "t"):
        await schedules.set(Schedule(name, "a", every_ms=1000))
    leaders = [Periodic(room.plane, room.store) for _ in range(2)]
    began = room.clock.ms
    for step in range(20):
        room.clock.advance(1 if step % 5 else 4.5)
        now = room.clock.ms
        await asyncio.gather(*(leader.fire_due(now - lag) for leader, lag in zip(leaders, (0, 1), strict=True)))
        await asyncio.gather(*(leader.fire_due(now) for leader in leaders))
    seen = await room.look()
    for name in ("s", "t"):
        slots = await slots_of(room, name)
        assert len(slots) >= 20 and all(began < s <= room.clock.ms for s in slots)
    assert seen.number("metrics:task:count:submitted") == len(seen.tasks) == len(seen.values["queue:normal"])


async def test_leader_that_died_between_submit_and_the_next_slot_fires_no_second_task(room: Room) -> None:
    await ScheduleStore(room.plane).set(Schedule("s", "a", every_ms=1000))
    room.clock.advance(1)
    due = room.keys.schedules_due()
    await Periodic(room.plane, room.store).fire_due(room.clock.ms)
    await room.redis.zadd(due, {"s": room.clock.ms})  # as if it had not moved on
    assert await Periodic(room.plane, room.store).fire_due(room.clock.ms) == room.clock.ms + 1000
    assert len(await slots_of(room)) == 1 == (await room.look()).number("metrics:task:count:submitted")


async def test_the_task_of_a_slot_is_what_the_definition_says(room: Room) -> None:
    wanted = Schedule("s", "a", every_ms=1000, args=[1], kwargs={"x": 2}, priority="high", max_attempts=3, timeout_ms=5)
    await ScheduleStore(room.plane).set(wanted)
    room.clock.advance(1)
    await Periodic(room.plane, room.store).fire_due(room.clock.ms)
    made = await room.store.get(f"s_{room.clock.ms}")
    assert (made.type, made.priority, made.request.args, made.request.kwargs) == ("a", "high", [1], {"x": 2})
    assert (made.request.max_attempts, made.request.timeout_ms) == (3, 5) and made.request.tags == ["periodic", "s"]


async def test_same_definition_keeps_its_slot_and_a_changed_one_starts_anew(room: Room) -> None:
    schedules = ScheduleStore(room.plane)
    first = await schedules.set(Schedule("s", "a", every_ms=10_000))
    room.clock.advance(25)  # overdue, and a station starts
    assert (await schedules.set(Schedule("s", "a", every_ms=10_000))).next_ms == first.next_ms
    changed = await schedules.set(Schedule("s", "b", every_ms=10_000))
    assert changed.next_ms == room.clock.ms + 5000 and (await schedules.get("s")).type == "b"
    assert len(await schedules.list()) == 1


async def test_definition_that_changes_while_its_slot_is_fired_is_not_moved_on(room: Room) -> None:
    schedules, periodic = ScheduleStore(room.plane), Periodic(room.plane, room.store)
    await schedules.set(Schedule("s", "a", every_ms=10_000))
    room.clock.advance(10)
    slot, keys = room.clock.ms, room.keys
    old = await room.redis.hget(keys.schedules(), "s")
    changed = await schedules.set(Schedule("s", "a", every_ms=7000))
    args = ["s", slot, slot + 10_000, old]
    assert await room.plane.scripts.run("schedule_advance", [keys.schedules(), keys.schedules_due()], args) == 0
    assert await periodic.fire_due(room.clock.ms) == changed.next_ms


async def test_removed_schedule_fires_no_more(room: Room) -> None:
    schedules = ScheduleStore(room.plane)
    await schedules.set(Schedule("s", "a", every_ms=1000))
    await schedules.remove("s")
    room.clock.advance(5)
    assert await Periodic(room.plane, room.store).fire_due(room.clock.ms) == 0
    assert not {"schedule:config", "schedule:due"} & await room.names() and await slots_of(room) == []
    for verb in (schedules.remove, schedules.get):
        with pytest.raises(NotFound):
            await verb("s")


async def test_definition_that_cannot_be_read_stops_no_other(room: Room) -> None:
    schedules = ScheduleStore(room.plane)
    await schedules.set(Schedule("s", "a", every_ms=1000))
    await room.redis.hset(room.keys.schedules(), "bad", "{nonsense")
    await room.redis.zadd(room.keys.schedules_due(), {"bad": 1, "orphan": 2})
    room.clock.advance(1)
    job = asyncio.create_task(Periodic(room.plane, room.store).run())
    async with asyncio.timeout(5):
        while not await slots_of(room):  # noqa: ASYNC110 — a real loop fires it
            await asyncio.sleep(0.01)
    calls = (await room.redis.info("commandstats"))["cmdstat_zrange"]["calls"]
    await asyncio.sleep(0.3)
    after = (await room.redis.info("commandstats"))["cmdstat_zrange"]["calls"]
    assert after - calls < 15, "it spins"
    job.cancel()
    assert [s.name for s in await schedules.list()] == ["s"]


@pytest.mark.parametrize(
    "bad",
    [
        Schedule("a b", "a", every_ms=1000), Schedule("s", "a b", every_ms=1000), Schedule("s", "a"),
        Schedule("s", "a", every_ms=1000, cron="* * * * *"), Schedule("s", "a", cron="* * *"),
        Schedule("s", "a", cron="61 * * * *"), Schedule("s", "a", cron="0 0 30 2 *"),
        Schedule("s", "a", cron="* * * * * *"), Schedule("s", "a", cron="² * * * *"), Schedule("s", "a", cron="@daily"),
        Schedule("s", "a", every_ms=1000, priority="low"), Schedule("s", "a", every_ms=1000, max_attempts=0),
    ],
)  # fmt: skip
def test_bad_schedule_is_refused(bad: Schedule) -> None:
    with pytest.raises(Invalid) as caught:
        check_schedule(bad)
    assert caught.value.problems


@pytest.mark.parametrize(
    ("text", "wanted"), [(30, 30_000), (0.5, 500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("250ms", 250)]
)
def test_intervals(text: float | str, wanted: int) -> None:
    assert parse_every(text) == wanted


@pytest.mark.parametrize("bad", [0, -1, True, "5", "5 min", "", "0.01s", float("nan"), float("inf"), "400d"])
def test_bad_interval_is_refused(bad: float | str) -> None:
    with pytest.raises(Invalid):
        parse_every(bad)


@pytest.fixture
def daily() -> Iterator[None]:
    async def beat_every_day() -> None: ...

    task(name="beat_every_day", every="1d")(beat_every_day)
    yield
    del registry._functions["beat_every_day"]


@pytest.mark.usefixtures("daily")
async def test_function_with_an_interval_brings_its_schedule(
    valkey: servers.Server, key_prefix: str, tmp_path: Path
) -> None:
    redis = RedisSettings(url=valkey.url)
    settings = Settings(key_prefix=key_prefix, data_dir=tmp_path, redis=redis, tasks=TaskSettings(archive=False))
    async with open_station(settings, frozenset({"worker"})) as station:
        stop = asyncio.Event()
        job = asyncio.create_task(station.run(stop))
        async with asyncio.timeout(10):
            while not await station.schedules.list():  # noqa: ASYNC110 — another task does it
                await asyncio.sleep(0.01)
        stop.set()
        await job
        (found,) = [s for s in await station.schedules.list() if s.name == "beat_every_day"]
        assert found.every_ms == 86_400_000 and found.next_ms % 86_400_000 == 0
