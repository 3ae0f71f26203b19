"""The Redis server goes away and comes back in the middle of load: all reconnect by themselves, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests import servers
from tests.faults.probe import Probe, probe
from tests.faults.station_process import Site, by_id

BURST = 300


async def _load(there: Probe, over: asyncio.Event) -> list[str]:
    """Small bursts until `over`, and one after it."""
    ids: list[str] = []
    while True:
        is_last = over.is_set()
        ids += await there.submit("nap", [(10 + n % 40,) for n in range(BURST)])
        if is_last:
            return ids
        await asyncio.sleep(0.1)


async def _wait_busy(there: Probe) -> None:
    seen = len(there.site.ledger())
    await there.wait_until(lambda: len(there.site.ledger()) > seen + 100, "load", 30)


async def _during_load(site: Site, disturb: Callable[[Probe], Awaitable[object]]) -> None:
    """Every accepted task ends once although `disturb` was called in the middle; nobody had to be started again."""
    async with probe(site) as there:
        over = asyncio.Event()
        loading = asyncio.create_task(_load(there, over))
        for _ in range(3):
            await _wait_busy(there)
            await disturb(there)
        over.set()
        ids = await loading
        await there.wait_ended(len(ids), 30)
        await there.assert_succeeded(ids)
        rows = await there.archived(len(ids), 20)
        assert sorted(row_id for row_id, _ in rows) == sorted(ids)
    assert all(process.exit_code is None for process in site.processes), site.logs()
    assert all(len(begins) == 1 for begins in by_id(site.ledger(), "begin").values()), "a task ran twice"


def _start(site: Site) -> None:
    site.start("scheduler").says("leads now")
    for worker in [site.start("worker") for _ in range(2)]:
        worker.says("worker registered")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_a_restart_of_redis_loses_nothing(make_site: Callable[..., Site], end: str) -> None:
    with servers.redis_server(appendonly=True) as redis:
        site = make_site(redis.url)
        _start(site)

        async def restart(_: Probe) -> None:
            getattr(redis, end)()
            await asyncio.sleep(0.5)
            redis.start()

        await _during_load(site, restart)


async def test_forgotten_scripts_are_loaded_again_under_load(make_site: Callable[..., Site]) -> None:
    with servers.redis_server(appendonly=True) as redis:
        site = make_site(redis.url)
        _start(site)
        await _during_load(site, lambda there: there.plane.redis.script_flush())
