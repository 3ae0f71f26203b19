"""Workers killed with -9 in the middle of load: nothing is lost, and only what they were running runs again."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Sequence

import pytest

from tests import servers
from tests.faults.probe import Probe, probe
from tests.faults.station_process import Site, by_id
from tests.soak import repeats

BATCH = 200
TAKEOVER_S = 15.0  # promised: the last interrupted task has ended so long after the last kill


async def _kill_in_bursts(there: Probe, bursts: Sequence[int], chance: random.Random) -> list[str]:
    """In each burst of work one of the workers that have begun some of it is killed, and another one started."""
    site, ids = there.site, list[str]()
    workers = {worker.pid: worker for worker in site.processes[1:]}
    for many in bursts:
        seen = len(site.ledger())
        calls = [(300 if n % 25 == 0 else round(chance.uniform(5, 20), 1),) for n in range(many)]  # a kill meets some
        submitting = asyncio.gather(*(there.submit("nap", calls[n : n + BATCH]) for n in range(0, many, BATCH)))
        busy: list[int] = []
        while not busy:
            await asyncio.sleep(chance.uniform(0.01, 0.05))
            busy = sorted(_open_at(site, seen) & workers.keys())
        workers.pop(chance.choice(busy)).kill()
        started = site.start("worker")
        workers[started.pid] = started
        for part in await submitting:
            ids += part
    return ids


def _open_at(site: Site, seen: int) -> set[int]:
    """Processes that run something now, by the ledger's lines after the first `seen`."""
    running: dict[int, int] = {}
    for entry in site.ledger()[seen:]:
        running[entry.token] = entry.pid
        if entry.kind == "end":
            del running[entry.token]
    return set(running.values())


async def _killed_workers_lose_nothing(site: Site, tasks: int, kills: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 — pytest shows it when the test fails
    chance = random.Random(seed)
    site.start("scheduler")
    for worker in [site.start("worker") for _ in range(3)]:
        worker.says("worker registered")
    async with probe(site) as there:
        ids = await _kill_in_bursts(there, [tasks // kills] * kills, chance)
        await there.wait_ended(tasks, 60)
        found = {task.id: task for task in await there.assert_succeeded(ids)}
        rows = await there.archived(tasks, 30)
    assert sorted(row_id for row_id, _ in rows) == sorted(ids)
    assert {status for _, status in rows} == {"SUCCESS"}

    ledger = site.ledger()
    killed_at = {process.pid: process.killed_at for process in site.processes if process.killed_at}
    assert len(killed_at) == kills
    ends = by_id(ledger, "end")
    interrupted = 0
    for task_id, begins in by_id(ledger, "begin").items():
        *earlier, last = begins
        assert all(begin.pid in killed_at for begin in earlier), f"{task_id} ran twice without a kill: {begins}"
        assert len({begin.token for begin in begins}) == len(begins)
        assert len(begins) <= found[task_id].stalls + 1
        if earlier:
            interrupted += 1
            done = next(end.at for end in ends[task_id] if end.token == last.token)
            # From the last kill: what went back may have been given to a worker that was killed before it began.
            took = done - max(killed_at.values())
            assert took < TAKEOVER_S, f"{task_id} ended {took:.1f} s after the last kill"
    assert interrupted, "no kill has hit a running task: the test showed nothing"


@pytest.mark.slow
async def test_thousands_of_tasks_survive_killed_workers(make_site: Callable[..., Site]) -> None:
    with servers.redis_server(appendonly=True) as redis:
        await _killed_workers_lose_nothing(make_site(redis.url), tasks=repeats(4_000), kills=repeats(4))


@pytest.mark.slow
async def test_the_same_on_a_cluster_of_three(make_site: Callable[..., Site]) -> None:
    with servers.redis_cluster(3) as cluster:
        await _killed_workers_lose_nothing(make_site(cluster.url), tasks=1000, kills=4)
