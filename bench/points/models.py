"""What models cost: 1,000 of 20 inputs each, computed in memory, and by the engine from the feed to the board.

    .venv/bin/python bench/points/models.py [--quick] [--valkey]

Takes about two minutes and writes nothing. A sweep changes all 20,000 inputs; every model is computed anew for each
sweep. `inputs/s` is by the clock; `cpu` is what this process spent on an input, which a busy machine hardly changes.
`Redis` is the server's share of it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import redis
import uvloop
from shared import quiet_logs, server_cpu_s, server_of

from tradewind.models.check import read_models
from tradewind.models.engine import CONSUMER, ModelEngine
from tradewind.models.network import Network
from tradewind.models.store import ModelStore
from tradewind.points.board import Batch, Board
from tradewind.points.feed import FeedEntry, FeedReader
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings

MODELS, INPUTS, POINTS = 1000, 20, 1000
CHANNELS = MODELS * INPUTS // POINTS
KINDS: dict[str, list[dict[str, Any]]] = {
    "sum": [{"id": "out", "function": "sum"}],
    "sum, scale, clamp": [
        {"id": "all", "function": "sum"},
        {"id": "scaled", "function": "scale", "inputs": ["all"], "params": {"factor": 0.001}},
        {"id": "out", "function": "clamp", "inputs": ["scaled"], "params": {"min": -1e6, "max": 1e6}},
    ],
    "expression": [{"id": "out", "expression": " + ".join(f"i{i}" for i in range(INPUTS)) + " * 0.5"}],
    "energy of a sum": [
        {"id": "all", "function": "sum"},
        {"id": "out", "function": "energy", "inputs": ["all"], "params": {"factor": 0.001}},
    ],
}


@dataclass
class Rate:
    """Of inputs; a figure per pass. `cpu_us` of this process and `server_us` of Redis an input."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


@dataclass
class Kind:
    """`computed`: inputs stand in memory. `decoded`: from entries of the feed that are in memory. `stored`: the engine,
    from the feed in Redis to the board in Redis."""

    name: str
    computed: Rate = field(default_factory=Rate)
    decoded: Rate = field(default_factory=Rate)
    stored: Rate = field(default_factory=Rate)


@dataclass(frozen=True, slots=True)
class ModelFigures:
    server: str
    sweeps: int
    #: Inputs a second of a bare loop that adds up lists of 20 numbers, rounds, and keeps the result.
    plain_rate: float
    kinds: list[Kind]


def documents(kind: str) -> list[dict[str, Any]]:
    made = []
    names = [f"i{i}" for i in range(INPUTS)]
    for at in range(MODELS):
        inputs = []
        for i, name in enumerate(names):
            channel, point = divmod(at * INPUTS + i, POINTS)
            inputs.append({"name": name, "source": f"comsrv:{channel + 1}:m:{10_001 + point}"})
        steps = [
            step if "inputs" in step or "expression" in step else {**step, "inputs": names} for step in KINDS[kind]
        ]
        outputs = [{"field": "out", "source": "out"}]
        made.append({"name": f"model_{at}", "inputs": inputs, "calculations": steps, "outputs": outputs})
    return made


def sweeps(count: int, start_ms: int) -> Iterator[list[tuple[str, int, dict[str, float]]]]:
    """Channel, time and values of each batch of each sweep."""
    chance = random.Random(1)
    for sweep in range(count):
        yield [
            (str(channel), start_ms + sweep * 1000, {str(10_001 + i): chance.uniform(0, 1000) for i in range(POINTS)})
            for channel in range(1, CHANNELS + 1)
        ]


class Watch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def note(self, rate: Rate, sweep_count: int, server_s: float = 0.0) -> None:
        inputs = sweep_count * MODELS * INPUTS
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        rate.rates.append(inputs / wall)
        rate.cpu_us.append(cpu / inputs * 1e6)
        rate.server_us.append(server_s / inputs * 1e6)


def in_memory(kind: Kind, count: int) -> None:
    specs, problems = read_models({d["name"]: d for d in documents(kind.name)}, {})
    assert not problems, problems[:3]
    network = Network(specs)
    rounds = [
        [
            FeedEntry("1-1", f"comsrv:{channel}:m", ts, ",".join(f"{k}:{v:.6f}" for k, v in values.items()))
            for channel, ts, values in sweep
        ]
        for sweep in sweeps(count, 1_700_000_000_000)
    ]
    watch = Watch()
    for entries in rounds:
        for entry in entries:
            network.apply(entry)
        network.settle()
        network.take()
    watch.note(kind.decoded, count)
    watch = Watch()
    for _ in range(count):
        for program in network.programs:
            program.run(network.values, network.qualities, network.times)
    watch.note(kind.computed, count)


def plain_python(count: int) -> float:
    chance = random.Random(1)
    inputs = [[chance.uniform(0, 1000) for _ in range(INPUTS)] for _ in range(MODELS)]
    found = [0.0] * MODELS
    rate, watch = Rate(), Watch()
    for _ in range(count):
        for at, values in enumerate(inputs):
            found[at] = round(sum(values), 6)
    watch.note(rate, count)
    return rate.rate


async def from_feed(kind: Kind, count: int, url: str) -> None:
    """The feed is filled first, one sweep is one round; then the engine runs until it has written all outputs."""
    link = await open_link(RedisSettings(url=url))
    settings = Settings(key_prefix=f"bench{secrets.token_hex(3)}:")
    plane = PointPlane(link, settings)
    board, store = Board(plane), ModelStore(link, plane.keys)
    await store.apply(documents(kind.name))
    start = int(time.time() * 1000) - (count + 60) * 1000
    # Inputs have values before the engine starts for the first time, so that it starts from there.
    first, *rest = list(sweeps(count + 1, start))
    await board.write([Batch.of_channel(channel, "m", values, ts) for channel, ts, values in first])
    stop = asyncio.Event()
    engine = ModelEngine(plane, board, store)
    running = asyncio.create_task(engine.run(stop))
    await until(running, lambda: engine.stats.outputs)
    await asyncio.sleep(1.5)  # its own outputs are behind its cursor then
    stop.set()
    await running
    reader = FeedReader(plane, CONSUMER)
    await reader.open()
    await reader.close()
    for sweep in rest:
        await board.write([Batch.of_channel(channel, "m", values, ts) for channel, ts, values in sweep])
    # What the board shows is ahead of the feed for models without memory: take the inputs back to the first sweep, as
    # they were when the engine died, or it would have nothing to do.
    pipe = plane.redis.pipeline(transaction=False)
    for channel, ts, values in first:
        pipe.hset(plane.keys.points_ts(channel, "m"), mapping=dict.fromkeys(values, ts))
    await pipe.execute()
    stop, engine = asyncio.Event(), ModelEngine(plane, board, store, entries=CHANNELS)
    client = redis.Redis.from_url(url)
    running = asyncio.create_task(engine.run(stop))
    await until(running, lambda: engine.stats.rounds)
    done = engine.stats.outputs
    before, watch = server_cpu_s(client), Watch()
    await until(running, lambda: engine.stats.outputs >= done + count * MODELS)
    watch.note(kind.stored, count, server_cpu_s(client) - before)
    stop.set()
    await running
    client.flushall()  # or the server has more to look after in each pass
    client.close()
    await link.close()


async def until(running: asyncio.Task[None], is_so: Callable[[], Any]) -> None:
    while not is_so():
        if running.done():
            running.result()
        await asyncio.sleep(0.002)


def measure(*, is_valkey: bool = False, is_quick: bool = False) -> ModelFigures:
    quiet_logs()
    passes, count = (1, 5) if is_quick else (3, 50)
    kinds = [Kind(name) for name in KINDS]
    for kind in kinds:
        in_memory(kind, count)
    with server_of(is_valkey=is_valkey) as server:
        for _ in range(passes):
            for kind in kinds:
                uvloop.run(from_feed(kind, count, server.url))
    return ModelFigures(server.name, count, plain_python(count), kinds)


def main() -> None:
    import goals
    import report

    import parts

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    parser.add_argument("--valkey", action="store_true", help="the embedded server instead of redis-server")
    options = parser.parse_args()
    found = measure(is_valkey=options.valkey, is_quick=options.quick)
    print(f"{parts.verdict_table(goals.of_models(found))}\n\n{report.model_text(found)}")


if __name__ == "__main__":
    main()
