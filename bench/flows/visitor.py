"""A station on its own Redis, and a way in: for the measurements that watch one station (lateness.py, idle.py)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from engine import own_place
from shared import BenchError
from stations import Embedded

from tradewind.settings import RedisSettings, Settings
from tradewind.station import Station, open_station


@contextlib.contextmanager
def embedded_station(folder: Path, name: str) -> Iterator[Embedded]:
    engine = Embedded(own_place(folder))
    engine.home = folder / name
    try:
        engine.clear()
        engine.start_services()
        yield engine
    finally:
        engine.stop()


@contextlib.asynccontextmanager
async def visit(engine: Embedded) -> AsyncIterator[Station]:
    """The station's services, from this process; yields when it has a leader and a worker."""
    async with open_station(Settings(redis=RedisSettings(url=engine.socket_url)), frozenset()) as station:
        keys, limit = station.plane.keys, time.monotonic() + 40
        while not await station.link.client.exists(keys.leader()) or not await station.link.client.exists(
            keys.worker_type("noop")
        ):
            if time.monotonic() > limit:
                raise BenchError(f"the station did not start; {engine.last_output()}")
            await asyncio.sleep(0.02)
        yield station
