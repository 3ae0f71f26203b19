"""The acquisition engine: definitions, drivers that misbehave, pushed values, a Redis that goes away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.points.site import Site, virtual_channel
from tests.process import Server
from tests.servers import redis_server
from tradewind.clock import now_ms
from tradewind.points.acquisition import Acquisition
from tradewind.points.batch import Batch
from tradewind.points.channel_status import ChannelStatus, read_statuses
from tradewind.points.driver import Deliver, DeviceTrouble, Driver
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.feed import FeedReader
from tradewind.points.spec import Kind, PointSpec, Quality, Reading
from tradewind.redis.connection import Link, open_link
from tradewind.redis.keys import Keys
from tradewind.settings import RedisSettings

M = Kind.MEASUREMENT


@pytest.fixture
async def site(redis_7: Server, key_prefix: str) -> AsyncIterator[Site]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield Site(link, key_prefix)
    await link.close()


async def test_the_same_on_every_redis(link: Link, key_prefix: str) -> None:
    site = Site(link, key_prefix)
    await site.store.put([virtual_channel("1"), virtual_channel("2"), virtual_channel("3", enabled=False)])
    async with site.running() as engine:
        await site.online("1")
        await site.online("2")
        assert (await site.values("1"))["1"].quality == "good"
        assert {s["channel"] for s in engine.statistics()} == {"1", "2"}
        assert await site.status("3") == {}
    status = await site.status("1")
    assert (status["online"], status["error"]) == ("0", "stopped")
    assert await site.plane.redis.hlen(site.plane.keys.channel_owners()) == 0
    await site.plane.close()


async def test_disabling_and_enabling_a_channel(site: Site) -> None:
    await site.store.put([virtual_channel()])
    async with site.running():
        await site.online("1")
        await site.store.put([virtual_channel(enabled=False)])

        async def is_stopped() -> bool:
            return (await site.status("1"))["error"] == "stopped"

        await site.until(is_stopped, "stop")
        await site.store.put([virtual_channel()])
        await site.online("1")


class Moody(Driver):
    """Does what `mood` says."""

    protocol = "moody"
    mood = "well"

    async def connect(self) -> None:
        if Moody.mood == "closed":
            raise DeviceTrouble("closed")

    async def poll(self) -> Sequence[Reading]:
        if Moody.mood == "broken":
            raise KeyError("a bug in a driver")
        if Moody.mood == "hangs":
            await asyncio.Event().wait()
        return [Reading(M, "1", 1)]

    async def write(self, point: PointSpec, raw: float) -> None: ...


def test_the_schema_names_every_field_of_a_status() -> None:
    told = Keys.channel_status.__doc__ or ""
    for name in (*ChannelStatus("1", "comsrv-1", 0, 0).fields(), "reload"):
        assert re.search(rf"\b{name}\b", told), name


@pytest.mark.parametrize("mood", ["closed", "broken", "hangs"])
async def test_whatever_a_driver_does_its_channel_goes_bad_and_comes_back(site: Site, mood: str) -> None:
    drivers = DriverRegistry()
    drivers.add(Moody)
    Moody.mood = "well"
    await site.store.put([virtual_channel("1", PointSpec(M, "1"), protocol="moody"), virtual_channel("2")])
    async with site.running(drivers=drivers) as engine:
        await site.online("1")
        await site.online("2")
        Moody.mood = mood
        if mood == "closed":
            engine.reload("1")

        async def is_bad() -> bool:
            return await site.qualities("1") == {"bad"}

        await site.until(is_bad, "bad")
        assert await site.qualities("2") == {"good"}
        Moody.mood = "well"

        async def is_good() -> bool:
            return await site.qualities("1") == {"good"}

        await site.until(is_good, "good")


async def test_a_role_that_is_cancelled_ends_with_that_and_nothing_else(site: Site) -> None:
    """As when another role of the process fails: its posts end while their leases are still held."""
    await site.store.put([virtual_channel("1"), virtual_channel("2")])
    engine = Acquisition(site.plane, site.board, site.store)
    task = asyncio.create_task(engine.run(asyncio.Event()))
    await site.online("1")
    await site.online("2")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 20)


class Sending(Driver):
    """Sends when it is told to."""

    protocol = "sending"
    is_polled = False
    deliver: Deliver | None = None
    end: asyncio.Event

    async def connect(self) -> None: ...

    async def listen(self, deliver: Deliver) -> None:
        Sending.deliver, Sending.end = deliver, asyncio.Event()
        await Sending.end.wait()
        Sending.deliver = None
        raise DeviceTrouble("the broker is gone")

    async def write(self, point: PointSpec, raw: float) -> None: ...


async def test_a_driver_that_listens(site: Site) -> None:
    drivers = DriverRegistry()
    drivers.add(Sending)
    await site.store.put([virtual_channel("1", PointSpec(M, "1", scale=2), PointSpec(M, "2"), protocol="sending")])
    async with site.running(drivers=drivers):
        await site.online("1")
        assert Sending.deliver is not None
        Sending.deliver([Reading(M, "1", 5, ts_ms=1_700_000_000_000), Reading(M, "2", 6)])

        async def has_come() -> bool:
            return len(await site.values("1")) == 2

        await site.until(has_come, "values")
        found = await site.values("1")
        assert (found["1"].value, found["1"].ts) == (10, 1_700_000_000_000)
        assert found["1"].is_stale  # by its own time: that others came now says nothing of it
        assert not found["2"].is_stale
        Sending.end.set()

        async def is_bad() -> bool:
            return await site.qualities("1") == {"bad"}

        await site.until(is_bad, "bad")

        async def is_back() -> bool:
            return Sending.deliver is not None

        await site.until(is_back, "connection")
        assert await site.qualities("1") == {"bad"}  # nothing new was heard of them
        Sending.deliver([Reading(M, "2", 6)])

        async def is_good() -> bool:
            return (await site.values("1"))["2"].quality == "good"

        await site.until(is_good, "good")


async def test_pushed_values_become_uncertain_when_no_more_come(site: Site) -> None:
    points = (PointSpec(M, "1", max_age_s=1), PointSpec(M, "2"))
    await site.store.put([virtual_channel("1", *points, protocol="http")])
    async with site.running():

        async def is_waiting() -> bool:
            return (await site.status("1")).get("error") == "no value yet"

        await site.until(is_waiting, "status")
        await site.board.write([Batch.of_channel("1", M, {"1": 1, "2": 2})])
        await site.online("1")
        key = site.plane.keys.points_quality("1", "m")

        async def is_marked() -> bool:
            return bool(await site.plane.redis.hget(key, "1") == b"uncertain")

        await site.until(is_marked, "stale")
        assert await site.plane.redis.hget(key, "2") is None
        await site.board.write([Batch.of_channel("1", M, {"1": 1})])
        assert await site.plane.redis.hget(key, "1") is None
        await site.until(is_marked, "stale again")


async def test_the_status_as_the_api_reads_it(site: Site) -> None:
    await site.store.put([virtual_channel()])
    async with site.running() as engine:
        await site.online("1")
        status, nothing = await read_statuses(site.plane, ["1", "2"])
        assert nothing == {}
        assert status["online"] is True
        assert status["owner"] == engine.owner
        assert status["polls"] >= 1
        assert status["last_ms"] >= status["since_ms"] > 1_600_000_000_000
        assert status.keys() == engine.statistics()[0].keys() - {"channel"}


class Stepping(Driver):
    """One value that differs with each poll, one that a test sets and that stays, and an event of each poll."""

    protocol = "stepping"
    level = 7.0
    polls = 0

    async def connect(self) -> None: ...

    async def poll(self) -> Sequence[Reading]:
        Stepping.polls += 1
        event = Reading(M, "3", Stepping.polls, now_ms())
        return [Reading(M, "1", Stepping.polls), Reading(M, "2", Stepping.level), event]

    async def write(self, point: PointSpec, raw: float) -> None: ...


async def test_polling_goes_on_while_redis_is_away_and_all_is_written_after(key_prefix: str) -> None:
    """Also a value that changed once, in between, and events, which no later poll reads again."""
    drivers = DriverRegistry()
    drivers.add(Stepping)
    Stepping.level, Stepping.polls = 7.0, 0
    with redis_server(appendonly=True) as server:
        link = await open_link(RedisSettings(url=server.url, read_timeout_s=0.5))
        site = Site(link, key_prefix, redis={"max_retries": 0})
        points = [PointSpec(M, name) for name in ("1", "2", "3")]
        await site.store.put([virtual_channel("1", *points, protocol="stepping")])
        async with site.running(drivers=drivers) as engine:
            await site.online("1")
            assert (await site.values("1"))["2"].value == 7
            server.kill()

            async def is_failing() -> bool:
                return "not written" in engine.statistics()[0]["error"]

            await site.until(is_failing, "trouble with Redis")
            Stepping.level, polls = 9.0, Stepping.polls

            async def is_polled() -> bool:
                return Stepping.polls >= polls + 3

            await site.until(is_polled, "polls")
            assert engine.statistics()[0]["failures"] == 0
            server.start()

            async def is_back() -> bool:
                found = await site.values("1")
                return {"1", "2"} <= found.keys() and (found["1"].value or 0) > polls and found["2"].value == 9

            await site.until(is_back, "values, sooner than the next sign of life", site.settings.points.stale_s / 4)
            reader = FeedReader(site.plane, "test", start="oldest", count=10_000)
            batch = await reader.read(100)
            events = [entry.values()["3"] for entry in batch.entries if "3" in entry.values()] if batch else []
            assert list(dict.fromkeys(events)) == list(range(1, int(events[-1]) + 1)), "each, in order"
            await reader.close()
        await link.close()


async def test_an_unknown_protocol_is_said_in_the_status(site: Site) -> None:
    await site.store.put([virtual_channel(protocol="modbus_tpc")])
    async with site.running():

        async def is_said() -> bool:
            return 'did you mean "modbus_tcp"?' in (await site.status("1")).get("error", "")

        await site.until(is_said, "error")


async def test_a_bad_point_of_a_virtual_device_is_bad_alone(site: Site) -> None:
    points = (PointSpec(M, "1", mapping={"expression": "1 / 0"}), PointSpec(M, "2", mapping={"expression": "2"}))
    await site.store.put([virtual_channel("1", *points)])
    async with site.running():
        await site.online("1")
        assert {n: p.quality for n, p in (await site.values("1")).items()} == {"2": Quality.GOOD}
        assert await site.plane.redis.hgetall(site.plane.keys.points_quality("1", "m")) == {b"1": b"bad"}


async def test_points_of_a_channel_that_is_switched_off_and_those_it_has_no_more_are_uncertain(site: Site) -> None:
    kept, gone = PointSpec(M, "1", mapping={"initial_value": 1}), PointSpec(M, "2", mapping={"initial_value": 2})
    setpoint = PointSpec(Kind.ADJUSTMENT, "3")
    await site.store.put([virtual_channel("1", kept, gone, setpoint)])
    async with site.running():
        await site.online("1")
        await site.board.write([Batch.of_channel("1", "a", {"3": 5})])
        await site.store.put([virtual_channel("1", kept, setpoint)])

        async def has(m: set[str], a: str) -> bool:
            found = await site.values("1")
            setpoints = await site.qualities("1", Kind.ADJUSTMENT)
            return {f"{name} {point.quality}" for name, point in found.items()} == m and setpoints == {a}

        await site.until(lambda: has({"1 good", "2 uncertain"}, "good"), "the dropped point uncertain")
        await site.store.put([virtual_channel("1", kept, setpoint, enabled=False)])
        await site.until(lambda: has({"1 uncertain", "2 uncertain"}, "uncertain"), "all of them uncertain")
        await site.store.put([virtual_channel("1", kept, gone, setpoint)])
        await site.until(lambda: has({"1 good", "2 good"}, "good"), "all of them good again")
