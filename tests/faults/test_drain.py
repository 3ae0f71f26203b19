"""SIGTERM on a worker: it finishes what is short, hands the rest over at once and goes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from tests import servers
from tests.faults.probe import probe
from tests.faults.station_process import Site, by_id

GRACE_S = 10.0
LEAVE_S = 2.0  # promised: it is gone so long after the grace time


@pytest.mark.slow
async def test_a_worker_that_is_asked_to_stop_hands_its_work_over(make_site: Callable[..., Site]) -> None:
    with servers.redis_server(appendonly=True) as redis:
        site = make_site(redis.url)
        site.start("scheduler")
        leaving = site.start_worker(worker_id="w1")
        async with probe(site) as there:
            short = await there.submit("nap", [(3000,)] * 5) + await there.submit("thread_nap", [(3000,)] * 3)
            long = await there.submit("nap", [(60_000,)] * 2) + await there.submit("thread_nap", [(60_000,)])
            await there.wait_until(lambda: len(site.ledger()) == len(short + long), "begin", 10)
            heir = site.start_worker(worker_id="w2")
            asked_at = time.monotonic()
            leaving.terminate()
            try:
                assert leaving.wait(GRACE_S + LEAVE_S) == 0
            except subprocess.TimeoutExpired:
                pytest.fail(f"it has not gone {GRACE_S + LEAVE_S} s after SIGTERM\n{site.logs()}")

            def begun_again() -> bool:
                begins = by_id(site.ledger(), "begin")
                return all(len(begins[task_id]) == 2 for task_id in long)

            await there.wait_until(begun_again, "takeover", 5)
            begins, ends = by_id(site.ledger(), "begin"), by_id(site.ledger(), "end")
            for task_id in long:
                assert begins[task_id][1].pid == heir.pid
                assert begins[task_id][1].at - asked_at < GRACE_S + LEAVE_S, "it waited for the lease to end"
            for task_id in short:
                assert [end.pid for end in ends[task_id]] == [leaving.pid]
                assert len(begins[task_id]) == 1
            tasks = await there.read(short + long)
            assert {task.stalls for task in tasks} == {0}
            assert {task.attempt for task in tasks} == {1}, "an attempt that was given back counts"
            for task_id in long:
                await there.client.task(task_id).cancel()
            await there.wait_ended(len(short + long), 10)
            assert await there.ended() == {"success": len(short), "cancelled": len(long)}
