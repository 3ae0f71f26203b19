"""How late a 1 s flow starts on an embedded station that is otherwise idle: slots, drift, p50 and p99.

Lateness of a cycle is its start_ms − slot_ms; that of its first node is the time inside the node's function − slot_ms.
The first slot is the moment of the start itself and is left out. What the cycles say is read between two slots, every
eight seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared import BenchError
from visitor import embedded_station, visit

from tradewind.flows.starting import cycle_outputs
from tradewind.station import Station

FLOW = {"id": "second", "interval": 1, "nodes": [{"id": "end", "type": "stamp"}], "edges": []}
EVERY_S = 8


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds. missed: slots without a cycle. drift: lateness of the last tenth − that of the first."""

    slots: int
    missed: int
    drift: float
    cycle_p50: float
    cycle_p99: float
    cycle_most: float
    node_p50: float
    node_p99: float
    node_most: float


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


async def collect(station: Station, slots: int) -> list[tuple[int, float, float]]:
    """(slot, lateness of the cycle, lateness of its first node) of every cycle after the first."""
    await station.flows.register(FLOW)
    began = time.time()
    await station.flows.start("second")
    found: list[tuple[int, float, float]] = []
    number, limit = 1, time.monotonic() + slots + 30
    while number <= slots:
        if time.monotonic() > limit:
            raise BenchError(f"{number} of {slots} cycles after {slots + 30} s")
        await asyncio.sleep(min(EVERY_S, slots - number + 1) - (time.time() - began - 0.5) % 1)
        while number <= slots and (row := await read(station, number)) is not None:
            found.append(row)
            number += 1
    await station.flows.stop("second")
    return found


async def read(station: Station, cycle: int) -> tuple[int, float, float] | None:
    """None: it has not ended."""
    raw: Any = await station.link.client.hmget(
        station.plane.keys.cycle("second", cycle), "status", "slot_ms", "start_ms"
    )
    if raw[0] in (None, b"running"):
        return None
    if raw[0] != b"completed":
        raise BenchError(f"cycle {cycle} ended {raw[0].decode()}")
    slot = int(raw[1])
    began = (await cycle_outputs(station.flow_store, "second", cycle))["end"]["result"]
    return slot, int(raw[2]) - slot, began - slot


def summary(rows: Sequence[tuple[int, float, float]]) -> Lateness:
    slots = [row[0] for row in rows]
    cycles, nodes = [row[1] for row in rows], [row[2] for row in rows]
    tenth = max(len(rows) // 10, 1)
    return Lateness(
        slots=len(rows),
        missed=(slots[-1] - slots[0]) // 1000 + 1 - len(set(slots)),
        drift=statistics.median(cycles[-tenth:]) - statistics.median(cycles[:tenth]),
        cycle_p50=statistics.median(cycles),
        cycle_p99=percentile(cycles, 0.99),
        cycle_most=max(cycles),
        node_p50=statistics.median(nodes),
        node_p99=percentile(nodes, 0.99),
        node_most=max(nodes),
    )


def measure(folder: Path, slots: int) -> Lateness:
    async def go(engine: Any) -> list[tuple[int, float, float]]:
        async with visit(engine) as station:
            return await collect(station, slots)

    with embedded_station(folder, "lateness") as engine:
        return summary(asyncio.run(go(engine)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=120)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(asdict(measure(Path(temporary), chosen.slots)), indent=1))
