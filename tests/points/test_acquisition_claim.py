"""Who polls a channel: leases, take-over, reload."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.points.site import Site, virtual_channel
from tests.process import Server, running
from tests.servers import redis_server
from tradewind.points.acquisition import Acquisition
from tradewind.points.channel_claim import ClaimKeeper
from tradewind.points.channel_status import request_reload
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.drivers.virtual import VirtualDriver
from tradewind.points.spec import Kind
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings

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


def test_owners_differ(site: Site) -> None:
    engines = [Acquisition(site.plane, site.board, site.store) for _ in range(2)]
    assert engines[0].owner != engines[1].owner
