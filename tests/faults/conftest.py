"""Every fault test has servers, processes and folders of its own: they are killed, stopped and filled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.station_process import Site


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
