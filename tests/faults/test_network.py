"""A bad network to Redis: answers lost, connections cut, silent or slow; still every task ends once."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable

import pytest

from tests import servers
from tests.faults.probe import Probe, probe
from tests.faults.proxy import FaultyProxy, faulty_proxy
from tests.faults.station_process import Site

BURST = 300


async def _disturb(proxy: FaultyProxy, chance: random.Random) -> None:
    """Every fault some times, in a random order, each while there is load."""
    faults = ["lose"] * 12 + ["cut"] * 4 + ["swallow"] * 2 + ["stall"]
    chance.shuffle(faults)
    for fault in faults:
        await asyncio.sleep(chance.uniform(0.1, 0.4))
        if fault == "lose":
            proxy.lose_replies(chance.randint(1, 3))
        elif fault == "cut":
            proxy.cut()
        elif fault == "swallow":
            proxy.swallow()
        else:
            await proxy.stall(5)


async def _load(there: Probe, over: asyncio.Event) -> list[str]:
    ids: list[str] = []
    while not over.is_set():
        ids += await there.submit("nap", [(10 + n % 40,) for n in range(BURST)])
        await asyncio.sleep(0.2)
    return ids


@pytest.mark.slow
async def test_every_task_ends_once_over_a_bad_network(make_site: Callable[..., Site]) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 — pytest shows it when the test fails
    with servers.redis_server(appendonly=True) as redis:
        async with faulty_proxy(redis.port) as proxy:
            site = make_site(proxy.url)
            scheduler, *workers = [site.start(role) for role in ("scheduler", "worker", "worker")]
            for process, sign in ((scheduler, "leads now"), *((worker, "worker registered") for worker in workers)):
                await asyncio.to_thread(process.says, sign)  # the proxy runs on this loop
            # The client submits through the proxy, too; what the test looks at comes straight from the server.
            async with probe(site, redis.url) as there, probe(site) as across:
                over = asyncio.Event()
                loading = asyncio.create_task(_load(across, over))
                await _disturb(proxy, random.Random(seed))
                over.set()
                ids = await loading
                await there.wait_ended(len(ids), 40)
                tasks = await there.assert_succeeded(ids)
                assert sum(task.stalls > 1 for task in tasks) <= BURST // 10, "one fault costs a task one run"
                assert sorted(row_id for row_id, _ in await there.archived(len(ids), 20)) == sorted(ids)
            assert proxy.lost > 10
            assert all(process.exit_code is None for process in site.processes), site.logs()
            site.stop()
