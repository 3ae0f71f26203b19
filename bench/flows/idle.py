"""What registered flows cost while none is due: CPU of a station with them minus that of one without, at the same time.

Every flow is started, with an interval of an hour and its first slot an hour or more ahead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared import BenchError
from stations import Embedded
from visitor import embedded_station, visit

from tradewind.clock import iso
from tradewind.station import Station

AT_ONCE = 50
#: Between the last start and the measurement: the record is written, the queues are empty.
SETTLE_S = 6.0


@dataclass(frozen=True, slots=True)
class Idle:
    """Per cent of one core. `station` is its process, `server` the Redis server that it started."""

    flows: int
    registered_s: float
    seconds: float
    station_with: float
    station_without: float
    server_with: float
    server_without: float

    @property
    def cost(self) -> float:
        return self.station_with - self.station_without


def cpu_s(pid: int) -> float:
    """CPU time of a process, of the threads that it has now, to the nanosecond."""
    files = Path("/proc", str(pid), "task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def children(pid: int) -> list[int]:
    files = Path("/proc", str(pid), "task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def usage(engine: Embedded) -> tuple[float, float]:
    """CPU seconds so far of the station and of its Redis server."""
    (station,) = engine.processes.pids
    return cpu_s(station), sum(cpu_s(child) for child in children(station))


def document(number: int, first_ms: int) -> dict[str, Any]:
    schedule = {"interval": "1h", "anchor": iso(first_ms + number)}
    nodes = [{"id": "end", "type": "noop", "inputs": {"x": 0}}]
    return {"id": f"hourly-{number}", "schedule": schedule, "nodes": nodes, "edges": []}


async def register(station: Station, flows: int) -> float:
    """Seconds that it took to register and start them."""
    began = time.monotonic()
    first_ms = int(time.time() * 1000) + 3_600_000

    async def one(number: int) -> None:
        await station.flows.register(document(number, first_ms))
        await station.flows.start(f"hourly-{number}")

    for at in range(0, flows, AT_ONCE):
        await asyncio.gather(*map(one, range(at, min(at + AT_ONCE, flows))))
    return time.monotonic() - began


async def check(station: Station, flows: int) -> None:
    """Every flow has its slot ahead, and none had a cycle. Raises BenchError."""
    keys, client = station.plane.keys, station.link.client
    due = await client.zcard(keys.flows_due())
    last: Any = await client.hget(keys.flow(f"hourly-{flows - 1}"), "last_cycle")
    if due != flows or last != b"-1":
        raise BenchError(f"{due} of {flows} flows wait for a slot; the last cycle of the last one is {last!r}")


async def compare(full: Embedded, empty: Embedded, flows: int, seconds: float, settle_s: float) -> Idle:
    async with visit(full) as station, visit(empty):
        registered_s = await register(station, flows)
        await check(station, flows)
    await asyncio.sleep(settle_s)  # nobody is connected but the stations themselves
    before, began = (usage(full), usage(empty)), time.monotonic()
    await asyncio.sleep(seconds)
    after, took = (usage(full), usage(empty)), time.monotonic() - began
    async with visit(full) as station:
        await check(station, flows)
    rates = [[(b - a) / took * 100 for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)]
    (station_with, server_with), (station_without, server_without) = rates
    return Idle(flows, registered_s, took, station_with, station_without, server_with, server_without)


def measure(folder: Path, flows: int, seconds: float = 20.0, settle_s: float = SETTLE_S) -> Idle:
    with embedded_station(folder, "full") as full, embedded_station(folder, "empty") as empty:
        return asyncio.run(compare(full, empty, flows, seconds, settle_s))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(Path(temporary), chosen.flows, chosen.seconds)
        print(json.dumps({**asdict(found), "cost": found.cost}, indent=1))
