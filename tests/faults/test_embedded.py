"""A whole station in one process on its embedded store: stopped or killed, and started again on the same folder."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil
import pytest

from tests.faults.probe import Probe, probe
from tests.faults.station_process import LEASES, RoleProcess, Site
from tradewind.redis.embedded import socket_of

STOP_S = 12.0  # the grace time of its worker and two seconds


def _up(site: Site) -> tuple[RoleProcess, str]:
    station = site.start()
    station.says("worker registered")
    return station, f"unix://{socket_of(site.data_dir)}"


async def _load(there: Probe) -> tuple[list[str], list[str]]:
    """More than the worker can run at once, and some for later; returns when the worker is busy."""
    now = await there.submit("nap", [(400,)] * 300)
    later = [handle.id for handle in [await there.client.submit("nap", 10, delay=3) for _ in range(5)]]
    seen = len(there.site.ledger())
    await there.wait_until(lambda: len(there.site.ledger()) > seen, "load", 10)
    return now, later


@pytest.mark.slow
async def test_a_station_that_is_asked_to_stop_goes_on_after_a_restart(make_site: Callable[..., Site]) -> None:
    site = make_site()
    station, url = _up(site)
    async with probe(site, url) as there:
        now, later = await _load(there)
        asked_at = time.monotonic()
        station.terminate()
    assert station.wait(STOP_S) == 0
    assert time.monotonic() - asked_at < STOP_S
    _, url = _up(site)
    async with probe(site, url) as there:
        await there.wait_ended(len(now + later), 20)
        tasks = await there.assert_succeeded(now + later)
        assert {task.stalls for task in tasks} == {0}
        assert len(await there.archived(len(now + later), 10)) == len(now + later)


@pytest.mark.slow
async def test_a_station_that_is_killed_loses_nothing(make_site: Callable[..., Site]) -> None:
    site = make_site(**LEASES)
    station, url = _up(site)
    async with probe(site, url) as there:
        now, later = await _load(there)
        store = psutil.Process((await there.plane.redis.info("server"))["process_id"])
        station.kill()
        await there.wait_until(lambda: not store.is_running(), "end of the child server", 5)
    _, url = _up(site)
    async with probe(site, url) as there:
        await there.wait_ended(len(now + later), 30)
        await there.assert_succeeded(now + later)
        assert len(await there.archived(len(now + later), 10)) == len(now + later)
