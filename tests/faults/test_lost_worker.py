"""Workers that fall silent: one that is stopped past its lease loses its work, one whose loop is blocked does not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests import servers
from tests.faults.probe import Probe, probe
from tests.faults.station_process import LEASE_S, LEASES, Site, by_id

TAKEOVER_S = 15.0  # promised: a lost worker's tasks have ended elsewhere so long after it fell silent


async def _assert_no_ghosts(there: Probe, workers: set[str]) -> None:
    """Every index names exactly these workers, every record expires by itself, nothing is in flight."""
    keys, client = there.plane.keys, there.plane.redis
    expected = {name.encode() for name in workers}
    assert set(await client.zrange(keys.workers(), 0, -1)) == expected
    assert await client.smembers(keys.worker_type("nap")) == expected
    records = [key async for key in client.scan_iter(match=f"{keys.worker('')}*", _type="hash")]
    assert {key.decode() for key in records} == {keys.worker(name) for name in workers}
    for key in records:
        assert 0 < await client.pttl(key) <= 30_000, f"{key} does not expire"
    for name in workers:
        assert not await client.exists(keys.worker_inflight(name))


@pytest.mark.slow
async def test_a_worker_stopped_past_its_lease_loses_its_tasks_and_joins_again(make_site: Callable[..., Site]) -> None:
    with servers.redis_server(appendonly=True) as redis:
        site = make_site(redis.url)
        scheduler = site.start("scheduler")
        stopped = site.start_worker(worker_id="w1")
        async with probe(site) as there:
            ids = await there.submit("nap", [(4000,)] * 3) + await there.submit("exclusive_nap", [(4000,)])
            await there.wait_until(lambda: len(site.ledger()) == len(ids), "begin", 10)
            paused_at = time.monotonic()
            stopped.pause()  # before the other one starts, which may take longer than the naps
            other = site.start_worker(worker_id="w2")
            await there.wait_ended(len(ids), TAKEOVER_S + 5)
            ends = by_id(site.ledger(), "end")
            assert {end.pid for found in ends.values() for end in found} == {other.pid}
            assert max(found[0].at for found in ends.values()) - paused_at < TAKEOVER_S

            stopped.resume()
            stopped.says("result refused", 10)
            stopped.says("worker was lost and registers again", 10)
            await there.wait_until(lambda: stopped.output.count("worker registered") == 2, "second registration", 10)
            more = await there.submit("nap", [(20,)] * 400)
            await there.wait_ended(len(ids) + len(more), 20)
            tasks = await there.assert_succeeded(ids + more)
            assert [(task.worker_id, task.stalls) for task in tasks[: len(ids)]] == [("w2", 1)] * len(ids)
            assert {begin.pid for i in more for begin in by_id(site.ledger(), "begin")[i]} == {stopped.pid, other.pid}
            await _assert_no_ghosts(there, {"w1", "w2"})
        assert scheduler.output.count("worker lost") == 1


@pytest.mark.slow
async def test_a_worker_with_a_blocked_loop_keeps_its_lease(make_site: Callable[..., Site]) -> None:
    with servers.redis_server(appendonly=True) as redis:
        site = make_site(redis.url, **LEASES)
        scheduler = site.start("scheduler")
        worker = site.start_worker()
        async with probe(site) as there:
            ids = await there.submit("block_loop", [(LEASE_S * 2000,)])
            await there.wait_until(lambda: len(site.ledger()) == 1, "begin", 10)
            ids += await there.submit("nap", [(20,)] * 50)
            await there.wait_ended(len(ids), 30)
            tasks = await there.assert_succeeded(ids)
            assert {task.stalls for task in tasks} == {0}
        assert len(by_id(site.ledger(), "begin")[ids[0]]) == 1
        assert "the event loop is blocked" in worker.output
        assert "in block_loop" in worker.output, "the log does not name the culprit"
        assert "worker lost" not in scheduler.output
