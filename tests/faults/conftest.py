"""Every fault test has a Redis, processes and folders of its own: they are killed, stopped and filled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.faults.points_plant import Plant
from tests.faults.station_process import Site
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """`make_site(redis_url, **settings)`; its processes are gone after the test."""
    sites: list[Site] = []

    def make(redis_url: str = "", **settings: object) -> Site:
        folder = tmp_path / f"site{len(sites)}"
        folder.mkdir()
        sites.append(Site(folder, redis_url, **settings))
        return sites[-1]

    yield make
    for site in sites:
        site.stop()


@pytest.fixture
async def plant(make_site: Callable[..., Site]) -> AsyncIterator[Plant]:
    """A Redis of its own and no process yet; leases of channels are short, so that a killed owner is soon replaced."""
    with servers.redis_server() as server:
        link = await open_link(RedisSettings(url=server.url))
        plant = Plant(link, server, make_site(server.url, points_lease_s=1.5))
        yield plant
        plant.roles.stop()
        await plant.plane.close()
        await link.close()
