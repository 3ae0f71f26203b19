"""A task that kills its worker: it is given up after some deaths, and those beside it are not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests import servers
from tests.faults.probe import probe
from tests.faults.station_process import Site, by_id
from tradewind.tasks.record import Status

MAX_STALLS = 3
# Shorter than the defaults, because every death costs a lease.
SHORT = {"scheduler_lease_s": 2, "scheduler_renew_s": 0.5, "tasks_max_stalls": MAX_STALLS}


@pytest.mark.slow
async def test_a_task_that_kills_its_workers_dies_and_the_others_go_on(make_site: Callable[..., Site]) -> None:
    with servers.redis_server(appendonly=True) as redis:
        site = make_site(redis.url, **SHORT)
        site.start("scheduler")
        workers = [site.start("worker") for _ in range(2)]
        for worker in workers:
            worker.says("worker registered")
        async with probe(site) as there:
            before = await there.submit("nap", [(50,)] * 40)
            poison = (await there.submit("poison", [()]))[0]
            after = await there.submit("nap", [(50,)] * 40)
            while (await there.ended()).total() < len(before + after) + 1:
                workers = [worker if worker.exit_code is None else site.start("worker") for worker in workers]
                await asyncio.sleep(0.1)
            dead = (await there.read([poison]))[0]
            assert dead.status is Status.DEAD
            assert dead.error is not None and dead.error.type == "WorkerLost"
            assert f"{MAX_STALLS + 1} times" in dead.error.message
            tasks = await there.read(before + after)
            assert {task.status for task in tasks} == {Status.SUCCESS}
        assert len(by_id(site.ledger(), "begin")[poison]) == MAX_STALLS + 1
