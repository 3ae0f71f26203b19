"""Redis at its memory limit: no new work, but what it has is done, leases and the lead are kept, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests import servers
from tests.faults.probe import probe
from tests.faults.station_process import LEASE_S, LEASES, Site
from tradewind.errors import Overloaded
from tradewind.tasks.record import Status


@pytest.mark.slow
async def test_a_full_redis_refuses_new_tasks_only(make_site: Callable[..., Site]) -> None:
    with servers.redis_server(appendonly=True, extra=("--maxmemory-policy", "noeviction")) as redis:
        site = make_site(redis.url, **LEASES)
        scheduler = site.start("scheduler")
        worker = site.start_worker()
        async with probe(site) as there:
            running = await there.submit("nap", [(1500,)] * 98)
            doomed = (await there.submit("nap", [(60_000,)]))[0]
            later = [(await there.client.submit("nap", 10, delay=4)).id for _ in range(20)]
            await there.wait_until(lambda: len(site.ledger()) == 99, "begin", 10)
            leader, epoch = await there.leader(), await there.epoch()
            await there.plane.redis.config_set("maxmemory", 1_000_000)
            with pytest.raises(Overloaded, match="out of memory"):
                await there.client.submit("nap", 10)
            await there.wait_ended(len(running), 10)
            await there.client.task(doomed).cancel()
            await there.wait_ended(len(running) + 1, 5)
            assert (await there.read([doomed]))[0].status is Status.CANCELLED
            await there.wait_ended(
                len(running + later) + 1, 15
            )  # what waits is worked off: that is how memory gets free
            await asyncio.sleep(LEASE_S + 1)  # so long that every lease would have ended without a renewal
            assert (await there.leader(), await there.epoch()) == (leader, epoch)
            with pytest.raises(Overloaded):
                await there.client.submit("nap", 10)

            await there.plane.redis.config_set("maxmemory", 0)
            more = await there.submit("nap", [(10,)] * 200)
            await there.wait_ended(len(running + later + more) + 1, 20)
            tasks = await there.read(running + later + more)
            assert {(task.status, task.stalls) for task in tasks} == {(Status.SUCCESS, 0)}
            assert await there.ended() == {"success": len(tasks), "cancelled": 1}
            assert len(await there.archived(len(tasks) + 1, 10)) == len(tasks) + 1
        assert "worker lost" not in scheduler.output
        assert worker.output.count("worker registered") == 1
        assert all(process.exit_code is None for process in site.processes)
