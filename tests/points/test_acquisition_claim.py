"""Who polls a channel: leases, take-over, reload."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.points.site import Site, virtual_channel
from tests.process import Server, running
from tests.servers import redis_server
from tradewind.health_part import Part
from tradewind.points.acquisition import Acquisition
from tradewind.points.channel_bench import Bench
from tradewind.points.channel_claim import HUNG_LEASES, ClaimKeeper
from tradewind.points.channel_runner import ChannelRunner
from tradewind.points.channel_status import ChannelStatus, request_reload
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers.virtual import VirtualDriver
from tradewind.points.spec import Kind, Reading
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings
from tradewind.station_points import PointRoom

M = Kind.MEASUREMENT


@pytest.fixture
async def site(redis_7: Server, key_prefix: str) -> AsyncIterator[Site]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield Site(link, key_prefix)
    await link.close()


async def test_two_processes_share_no_channel_and_one_takes_over_at_once_from_one_that_stops(site: Site) -> None:
    await site.store.put([virtual_channel(str(n)) for n in range(1, 6)])
    async with site.running(lease_s=30) as second:
        async with site.running(lease_s=30) as first:
            await asyncio.gather(*(site.online(str(n)) for n in range(1, 6)))
            held = [{s["channel"] for s in engine.statistics()} for engine in (first, second)]
            assert held[0] | held[1] == {"1", "2", "3", "4", "5"}
            assert not held[0] & held[1]

        async def has_all() -> bool:
            return len(second.statistics()) == 5

        # The second asks again every quarter of a lease; it need not wait for a lease to end.
        assert await site.until(has_all, "take-over", 20) < 15


async def test_channels_are_shared_evenly_and_stay_where_they_are(site: Site) -> None:
    names = [str(n) for n in range(1, 12)]
    await site.store.put([virtual_channel(name) for name in names])
    moved = 0

    class Counted(VirtualDriver):
        async def connect(self) -> None:
            nonlocal moved
            moved += 1
            await super().connect()

    drivers = DriverRegistry()
    drivers.add(Counted)
    async with contextlib.AsyncExitStack() as stack:
        engines = []
        for count, shares in ((1, [11]), (2, [5, 6]), (3, [3, 4, 4])):
            engines.append(await stack.enter_async_context(site.running(lease_s=0.6, drivers=drivers)))

            async def are_shared(shares: list[int] = shares) -> bool:
                held = [{s["channel"] for s in engine.statistics()} for engine in engines]
                return sorted(map(len, held)) == shares and len(set().union(*held)) == len(names)

            await site.until(are_shared, f"{count} processes")
        await asyncio.sleep(1.5)  # more than two leases
        assert await are_shared()
        assert moved == 11 + 5 + 3, "only what was too much for one"


async def test_a_killed_process_is_replaced_within_one_and_a_half_leases(redis_7: Server, site: Site) -> None:
    lease_s = 2.0
    await site.store.put([virtual_channel()])
    argv = [sys.executable, "-m", "tests.points.acquisition_process", redis_7.url, site.settings.key_prefix, "first"]

    def make(folder: Path) -> Server:
        return Server([*argv, str(lease_s)], port=0, url="", folder=folder, is_ready=lambda: True)

    with running(make) as process:
        await site.online("1")
        assert (await site.status("1"))["owner"] == "first"
        async with site.running(owner="second", lease_s=lease_s) as engine:
            await asyncio.sleep(lease_s)  # long enough to have tried, and to have been refused
            assert engine.statistics() == []
            process.kill()

            async def has_it() -> bool:
                return bool(engine.statistics())

            assert await site.until(has_it, "take-over") <= lease_s * 1.5 + 0.5
            await site.online("1")


NAMES = [str(n) for n in range(1, 7)]


@contextlib.contextmanager
def another(redis_7: Server, site: Site, lease_s: float, fault: str = "") -> Iterator[Server]:
    """A process `first` that polls channels of the same site."""
    argv = [sys.executable, "-m", "tests.points.acquisition_process", redis_7.url, site.settings.key_prefix, "first"]

    def make(folder: Path) -> Server:
        return Server([*argv, str(lease_s), fault], port=0, url="", folder=folder, is_ready=lambda: True)

    with running(make) as process:
        yield process


async def owned(site: Site) -> Counter[str]:
    """By process, of leases that have not ended."""
    found = await site.plane.redis.hgetall(site.plane.keys.channel_owners())
    seconds, micros = await site.plane.redis.time()
    leases = [lease.decode().rpartition(":") for lease in found.values()]
    return Counter(owner for owner, _, ends in leases if int(ends) > seconds * 1000 + micros // 1000)


async def test_channels_that_a_live_process_does_not_claim_are_polled_by_another_one_and_told(
    redis_7: Server, site: Site
) -> None:
    lease_s = 0.6
    await site.store.put([virtual_channel(name) for name in NAMES])

    async def faults() -> list[str]:
        entries = await site.plane.redis.xrange(site.plane.keys.faults())
        return [fields[b"state"].decode() for _, fields in entries if fields[b"source"] == b"points:claims"]

    async def comsrv() -> Part:
        return (await PointRoom(site.plane.link, site.settings).health())["comsrv"]

    with another(redis_7, site, lease_s, "blind") as process:
        await site.online("1")
        async with site.running(owner="second", lease_s=lease_s) as second:
            took_s = await site.until(lambda: shared(site, 1, 5), "all channels polled")
            assert took_s < 3 * lease_s + 1

            async def polls_them() -> bool:
                return len(second.statistics()) == 5

            await site.until(polls_them, "the polls of all of them")
            for _ in range(25):  # it keeps them: nobody asks for them
                await asyncio.sleep(0.1)
                assert await shared(site, 1, 5)
            assert (await faults())[-1] == "raise"
            found = await comsrv()
            assert found.status == "degraded"
            assert "2 by second" in found.detail
            process.kill()
            await site.until(lambda: shared(site, 0, 6), "all of them")
            with another(redis_7, site, lease_s):
                await site.until(lambda: shared(site, 3, 3), "an even share again")
                assert (await faults())[-1] == "clear"
                assert (await comsrv()).status == "ok"


async def test_channels_of_a_process_whose_loop_hangs_are_polled_by_another_one(
    redis_7: Server, site: Site, tmp_path: Path
) -> None:
    lease_s, flag = 0.6, tmp_path / "hang"
    await site.store.put([virtual_channel(name) for name in NAMES])
    with another(redis_7, site, lease_s, str(flag)):
        async with site.running(owner="second", lease_s=lease_s):
            await site.until(lambda: shared(site, 3, 3), "an even share")
            flag.touch()
            took_s = await site.until(lambda: shared(site, 0, 6), "take-over")
            assert took_s < (HUNG_LEASES + 1.5 + 1) * lease_s + 1
            flag.unlink()
            await site.until(lambda: shared(site, 3, 3), "an even share again")


async def test_a_stopped_process_is_replaced_and_has_its_share_again_when_it_goes_on(
    redis_7: Server, site: Site
) -> None:
    lease_s = 0.6
    await site.store.put([virtual_channel(name) for name in NAMES])
    with another(redis_7, site, lease_s) as process:
        async with site.running(owner="second", lease_s=lease_s):
            await site.until(lambda: shared(site, 3, 3), "an even share")
            process.pause()
            took_s = await site.until(lambda: shared(site, 0, 6), "take-over")
            assert took_s < 1.5 * lease_s + 1
            process.resume()
            await site.until(lambda: shared(site, 3, 3), "an even share again")


async def shared(site: Site, first: int, second: int) -> bool:
    return await owned(site) == Counter({"first": first, "second": second})


async def test_a_thread_that_hangs_or_fails_leaves_nothing_polled_twice(site: Site) -> None:
    """By its own clock the process lets go before the lease ends in Redis, whoever should have said so."""
    await site.store.put([virtual_channel()])
    drivers, polled = DriverRegistry(), list[float]()

    class Told(VirtualDriver):
        async def poll(self) -> list[Reading]:
            polled.append(time.monotonic())
            return await super().poll()

    drivers.add(Told)
    async with site.running(owner="first", lease_s=1.0, drivers=drivers) as engine:
        await site.online("1")
        keeper = engine._claims
        assert keeper is not None
        renewed, hangs = keeper._renew, threading.Event()
        began = time.monotonic()

        def hang(*_: object) -> None:
            hangs.wait(10)
            keeper._renew = renewed  # type: ignore[method-assign]
            raise ValueError("and fails then")

        keeper._renew = hang  # type: ignore[method-assign]
        await asyncio.sleep(1.5)
        assert engine.statistics() == []
        assert polled[-1] < began + 1.0
        hangs.set()
        await site.until(lambda: _polls(engine), "it claims again")


async def test_a_runner_polls_only_what_is_ours_by_our_own_clock(site: Site) -> None:
    """A process that was stopped goes on in the middle: it must not poll once more before it learns that it lost."""
    drivers, polled = DriverRegistry(), asyncio.Event()

    class Told(VirtualDriver):
        async def poll(self) -> list[Reading]:
            polled.set()
            return await super().poll()

    drivers.add(Told)
    is_ours = False
    bench = Bench(site.board, drivers, site.plane.clock, 30, None, lambda _: is_ours)
    runner = ChannelRunner(virtual_channel(), bench, ChannelStatus("1", "first", 1, 0))
    task = asyncio.create_task(runner.run())
    await asyncio.sleep(0.2)
    assert not polled.is_set()
    is_ours = True
    await asyncio.wait_for(polled.wait(), 5)
    task.cancel()
    await asyncio.wait([task])


async def _polls(engine: Acquisition) -> bool:
    return bool(engine.statistics())


async def test_leases_from_before_the_clock_was_set_back_end(site: Site) -> None:
    keys = site.plane.keys
    seconds, _ = await site.plane.redis.time()
    later = (seconds + 3600) * 1000
    await site.plane.redis.hset(keys.channel_owners(), "1", f"dead:{later}")
    await site.plane.redis.zadd(keys.channel_pollers(), {"dead": later})
    await site.store.put([virtual_channel("1"), virtual_channel("2")])
    async with site.running(owner="second", lease_s=0.6):
        assert await site.online("1") < 5
        await site.online("2")


async def test_a_keeper_that_cannot_renew_lets_go_before_its_lease_ends(key_prefix: str) -> None:
    with redis_server() as server:
        link = await open_link(RedisSettings(url=server.url))
        site = Site(link, key_prefix)
        changed = asyncio.Event()
        keeper = ClaimKeeper(site.plane, "a", changed.set, lease_s=2.0)
        keeper.want(["1", "2"])
        keeper.start()
        await asyncio.wait_for(changed.wait(), 5)
        assert keeper.held == {"1", "2"}
        began = time.monotonic()
        changed.clear()
        server.pause()
        await asyncio.wait_for(changed.wait(), 5)
        assert keeper.held == frozenset()
        assert time.monotonic() - began < 2.0
        server.resume()
        await keeper.stop()
        await link.close()


async def test_a_request_to_reload_reaches_the_process_that_polls(site: Site) -> None:
    made = 0

    class Counted(VirtualDriver):
        async def connect(self) -> None:
            nonlocal made
            made += 1
            await super().connect()

    drivers = DriverRegistry()
    drivers.add(Counted)
    await site.store.put([virtual_channel()])
    async with site.running(drivers=drivers) as engine:
        await site.online("1")

        async def is_counted() -> bool:
            return bool(engine.statistics()[0]["polls"] > 20)  # the wish that stands before has been seen by then

        await site.until(is_counted, "polls")
        await request_reload(site.plane, "1", "a")

        async def is_reloaded() -> bool:
            return made == 2

        await site.until(is_reloaded, "reload")
        await request_reload(site.plane, "1", "b")

        async def is_reloaded_again() -> bool:
            return made == 3

        await site.until(is_reloaded_again, "second reload")


async def test_shares_requests_and_what_is_beyond_the_share_step_by_step(site: Site) -> None:
    keys, lease, free_ms, channels = site.plane.keys, 1000, 1500, ["1", "2", "3", "4"]
    names = [keys.channel_owners(), keys.channel_pollers(), keys.channel_claims()]

    async def claim(owner: str, now: int) -> tuple[list[int], list[int]]:
        """Share, asks, beyond it here and everywhere; then 0 not ours, 1 ours, 2 asked for by another."""
        found = await site.plane.home.scripts.run("channel_claim", names, [now, owner, lease, free_ms, *channels])
        return found[:4], found[4:]

    async def let_go(*ids: str) -> None:
        await site.plane.redis.hdel(keys.channel_owners(), *ids)

    assert await claim("a", 10_000) == ([4, 0, 0, 0], [1, 1, 1, 1])
    assert await claim("b", 10_100) == ([2, 1, 0, 0], [0, 0, 0, 0])
    assert await claim("a", 10_200) == ([2, 0, 0, 0], [2, 2, 1, 1])
    await let_go("1", "2")
    assert await claim("a", 10_300) == ([2, 0, 0, 0], [0, 0, 1, 1]), "free, but beyond the share"
    assert await claim("b", 10_400) == ([2, 0, 0, 0], [1, 1, 0, 0])
    assert await claim("a", 10_500) == ([2, 0, 0, 0], [0, 0, 1, 1])
    await let_go("1")
    for now in (10_600, 11_500):
        await claim("b2", now)  # lives, and claims nothing that it could have
        await let_go("1", "2")
        await site.plane.redis.hset(keys.channel_owners(), mapping={"1": ":10600", "2": ":10600"})
        assert await claim("a", now) == ([2, 0, 0, 0], [0, 0, 1, 1])
    await claim("b2", 12_090)
    await site.plane.redis.hset(keys.channel_owners(), mapping={"1": ":10600", "2": "b2:13090"})
    assert await claim("a", 12_100) == ([2, 0, 1, 1], [1, 0, 1, 1]), "nobody has claimed it for long"
    assert await claim("b2", 12_200) == ([2, 1, 0, 1], [0, 1, 0, 0])
    await let_go("1")
    assert await claim("b2", 12_300) == ([2, 0, 0, 1], [1, 1, 0, 0])
    assert await claim("a", 12_400) == ([2, 0, 0, 0], [0, 0, 1, 1])
    assert await claim("b2", 12_500) == ([2, 0, 0, 0], [1, 1, 0, 0]), "told at once that nobody has more"


def test_owners_differ(site: Site) -> None:
    engines = [Acquisition(site.plane, site.board, site.store) for _ in range(2)]
    assert engines[0].owner != engines[1].owner


async def test_whoever_sees_the_end_clears_the_alarm_of_one_that_was_killed(site: Site) -> None:
    keeper = ClaimKeeper(site.plane, "second", lambda: None)
    client = site.plane.link.new_blocking_client(1)

    async def told() -> list[bytes]:
        return [fields[b"state"] for _, fields in await site.plane.redis.xrange(site.plane.keys.faults())]

    keeper._tell(client, 0, 0)
    assert await told() == [b"clear"], "one from before may be open"
    keeper._tell(client, 0, 0)
    keeper._tell(client, 0, 2)  # another process has them, told it, and is killed
    assert await told() == [b"clear"]
    keeper._tell(client, 0, 0)
    keeper._tell(client, 0, 0)
    assert await told() == [b"clear", b"clear"]
    keeper._tell(client, 1, 1)
    keeper._tell(client, 2, 3)
    keeper._tell(client, 0, 1)  # ours are over, not those of another
    assert await told() == [b"clear", b"clear", b"raise"]
    keeper._tell(client, 0, 0)
    assert await told() == [b"clear", b"clear", b"raise", b"clear"]
    client.close()
