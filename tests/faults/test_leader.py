"""Two schedulers: the one that leads is stopped, killed or asked to go, and the other one goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests import servers
from tests.faults.probe import Probe, probe
from tests.faults.station_process import Site, by_id
from tradewind.tasks.leader_store import Deposed, LeaderStore

LOST_S = 12.0  # promised: work goes on so long after the leader has died
GRACEFUL_S = 1.0  # promised: … after it was asked to stop
MANY = 20  # more than a submit assigns by itself, so that a leader is needed


async def _work_goes_on(there: Probe, old: str, since: float, within_s: float) -> list[str]:
    """Submit until another one leads and once more; all of it must have ended in time.

    One batch is not enough: the request of a stopped leader waits in the server and assigns once more. A few are: the
    time it takes to work many off is none that is promised.
    """
    ids = await there.submit("nap", [(5,)] * MANY)
    while await there.leader() in (old, ""):
        assert time.monotonic() - since < within_s, f"nobody leads instead of {old}\n{there.site.logs()}"
        if len(ids) < 5 * MANY:
            ids += await there.submit("nap", [(5,)] * MANY)
        await asyncio.sleep(0.1)
    ids += await there.submit("nap", [(5,)] * MANY)
    wanted = set(ids)
    while not wanted <= (ends := by_id(there.site.ledger(), "end")).keys():
        assert time.monotonic() - since < within_s + 30, f"work does not go on\n{there.site.logs()}"
        await asyncio.sleep(0.05)
    took = max(ends[task_id][0].at for task_id in ids) - since
    assert took < within_s, f"work went on after {took:.2f} s"
    return ids


@pytest.mark.slow
async def test_another_scheduler_leads_when_the_leader_is_stopped_killed_or_asked_to_go(
    make_site: Callable[..., Site],
) -> None:
    with servers.redis_server(appendonly=True) as redis:
        site = make_site(redis.url)
        a = site.start("scheduler", scheduler_id="a")
        a.says("leads now")
        b = site.start("scheduler", scheduler_id="b")
        b.says("stands for election")
        site.start_worker()
        async with probe(site) as there:
            ids = await there.submit("nap", [(5,)] * MANY)
            await there.wait_ended(MANY, 10)
            epoch = await there.epoch()

            a.pause()
            ids += await _work_goes_on(there, "a", time.monotonic(), LOST_S)
            assert await there.leader() == "b"
            assert await there.epoch() == epoch + 1
            a.resume()
            a.says("does not lead any more", 5)
            with pytest.raises(Deposed):
                await LeaderStore(there.plane, "a", epoch).assign(100)
            ids += await there.submit("nap", [(5,)] * MANY)
            await there.wait_ended(len(ids), 10)
            assert await there.leader() == "b"
            assert await there.epoch() == epoch + 1

            b.kill()
            ids += await _work_goes_on(there, "b", b.killed_at, LOST_S)
            assert await there.leader() == "a"

            site.start("scheduler", scheduler_id="c").says("stands for election")
            a.terminate()
            ids += await _work_goes_on(there, "a", time.monotonic(), GRACEFUL_S)
            assert a.wait(5) == 0

            await there.wait_ended(len(ids), 10)
            await there.assert_succeeded(ids)
            assert await there.epoch() == epoch + 3
        begins = by_id(site.ledger(), "begin")
        assert begins.keys() == set(ids)
        assert all(len(found) == 1 for found in begins.values()), "a task was assigned twice"
