"""A station that has ended leaves no connection and no task behind, also when its terms were cut short before."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis

from tests import servers
from tests.flows.engine import until
from tradewind.settings import load_settings
from tradewind.station import ROLES, Station, open_station


async def _lead(station: Station) -> bool:
    """Whoever can lead does: what a term opens is open."""
    with redis.Redis.from_url(station.settings.redis.url, decode_responses=True) as client:
        return len(client.keys("*:leader")) >= 6


@pytest.mark.filterwarnings("always::ResourceWarning")
@pytest.mark.parametrize("fault", ["none", "redis restarts", "leaders are deposed"])
async def test_a_station_that_has_ended_leaves_nothing(
    fault: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with servers.redis_server(appendonly=True) as server:
        told = {"data_dir": tmp_path, "redis.url": server.url, "scheduler.leader_ttl_s": 1.5, "scheduler.renew_s": 0.4}
        tasks = asyncio.all_tasks()
        gc.collect()  # what others left
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "none": _nothing,
            "redis restarts": lambda: _restart(server),
            "leaders are deposed": lambda: _depose(server.url),
        }
        async with open_station(load_settings(overrides=told), frozenset(ROLES) - {"api"}) as station:
            stop = asyncio.Event()
            running = asyncio.create_task(station.run(stop), name="station")
            await until(lambda: _lead(station), "leaders")
            await faults[fault]()
            await until(lambda: _lead(station), "leaders again")
            stop.set()
            await asyncio.wait_for(running, 30)
        assert asyncio.all_tasks() == tasks
        gc.collect()
        assert [str(each.message) for each in recwarn if issubclass(each.category, ResourceWarning)] == []
        with redis.Redis.from_url(server.url) as client:
            assert [each for each in client.client_list() if each["addr"] != client.client_info()["addr"]] == []


async def _nothing() -> None:
    pass


async def _restart(server: servers.Server) -> None:
    server.kill()
    server.start()


async def _depose(url: str) -> None:
    """Somebody else leads, of a higher epoch, and goes away."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        for key in client.keys("*:leader"):
            client.incr(key.removesuffix("leader") + "epoch")
            client.set(key, "another", px=1000)
    await asyncio.sleep(1.2)  # its leases are over
