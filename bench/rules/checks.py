"""What judging costs: 10,000 rules over 100,000 points in memory and from the feed to Redis, and whether a change costs
more with more rules.

    .venv/bin/python bench/rules/checks.py [--quick]

A check is a change that met a condition which reads it. `in memory`: entries of the feed are decoded and judged, and
states made ready to be stored when the engine would: those with an edge after each sweep, all once a second. `feed to
stored`: the engine reads them from Redis, judges, and stores states, alarms, history and cursor; until all is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import secrets
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis
import uvloop
from shared import (
    A_CHANNEL,
    POINTS,
    RULES,
    Rate,
    data_of,
    mixed,
    one_each,
    quiet_logs,
    server_cpu_s,
    server_of,
    sweeps,
    ten_each,
)  # fmt: skip

from tradewind.points.board import Batch, Board
from tradewind.points.feed import FeedEntry, id_of
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link, open_link
from tradewind.rules.document import read_rule
from tradewind.rules.engine import CONSUMER, TICK_S, RuleEngine
from tradewind.rules.network import RuleNetwork
from tradewind.rules.spec import Rule
from tradewind.rules.store import RuleStore
from tradewind.settings import RedisSettings, Settings

FEW = 100


@dataclass
class Kind:
    """One kind of rules. `points`: that change in a sweep."""

    name: str
    documents: list[dict[str, Any]]
    points: int
    rules: list[Rule]
    memory: Rate = field(default_factory=Rate)
    stored: Rate = field(default_factory=Rate)
    #: Of the stored runs: edges, and alarms that stood in Redis afterwards.
    fired: int = 0


@dataclass(frozen=True, slots=True)
class CheckFigures:
    server: str
    rules: int
    kinds: list[dict[str, Any]]
    #: Per pass: ns a change of a whole channel with few and with all rules, and of single points.
    batch_few: list[float]
    batch_all: list[float]
    single_few: list[float]
    single_all: list[float]

    def ratio(self, few: list[float], every: list[float]) -> float:
        return statistics.median(b / a for a, b in zip(few, every, strict=True))


def kinds_of(rules: int) -> list[Kind]:
    points = rules * POINTS // RULES
    made = [
        ("ten comparisons a rule, every point read once", ten_each(rules), points),
        ("one comparison a rule, nine of ten points read by nobody", one_each(rules), points),
        ("mixed conditions, one a rule, every point read", mixed(rules), rules),
    ]
    return [Kind(name, documents, changed, specs(documents)) for name, documents, changed in made]


def specs(documents: list[dict[str, Any]]) -> list[Rule]:
    found = [read_rule(document) for document in documents]
    assert all(rule is not None for rule, _ in found), next(problems for rule, problems in found if rule is None)
    return [rule for rule, _ in found if rule is not None]


def entries(count: int, points: int, start_ms: int) -> list[list[FeedEntry]]:
    return [
        [FeedEntry("1-1", f"comsrv:{channel}:m", ts, data_of(values)) for channel, ts, values in sweep]
        for sweep in sweeps(count, points, start_ms)
    ]


def in_memory(kind: Kind, count: int) -> None:
    network = RuleNetwork(kind.rules)
    first, *rest = entries(count + 1, kind.points, 1_700_000_000_000)
    network.start({}, 1_699_999_999_999)
    network.apply_all(first)
    network.take()
    network.take_states()
    gc.collect()
    before, began, cpu = network.checks, time.perf_counter(), time.process_time()
    ticked = began
    for sweep in rest:
        network.apply_all(sweep)
        network.take()
        is_tick = time.perf_counter() >= ticked + TICK_S or sweep is rest[-1]
        network.take_states(is_all=is_tick)
        ticked = time.perf_counter() if is_tick else ticked
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    checks = network.checks - before
    kind.memory.rates.append(checks / wall)
    kind.memory.cpu_us.append(used / checks * 1e6)


class Station:
    """A kind's own place in Redis, with its rules."""

    def __init__(self, kind: Kind, link: Link, client: redis.Redis) -> None:
        # Nothing grows stale while the feed is filled.
        given = {"key_prefix": f"bench{secrets.token_hex(3)}:", "points": {"stale_s": 3600}}
        settings = Settings.model_validate(given)
        self.kind = kind
        self.client = client
        self.plane = PointPlane(link, settings)
        self.store = RuleStore(link, self.plane.keys, settings)
        self.board = Board(self.plane)

    async def begin(self) -> None:
        """Rules begin afresh, with a first sweep that an engine has judged: windows of the pass before would empty."""
        self.client.delete(self.plane.keys.rule_states())
        await self.write(1)
        stop, engine = asyncio.Event(), RuleEngine(self.plane, self.store)
        running = asyncio.create_task(engine.run(stop))
        await _until(running, lambda: engine.is_leading and engine.stats.rounds > 1)
        stop.set()
        await running

    async def write(self, count: int) -> int:
        """Fill the feed; how many entries that is."""
        entries = 0
        for sweep in sweeps(count, self.kind.points, int(time.time() * 1000)):
            await self.board.write([Batch.of_channel(channel, "m", values, ts) for channel, ts, values in sweep])
            entries += len(sweep)
        return entries


async def from_feed(station: Station, count: int) -> None:
    """The feed is filled while no engine runs; then one takes it up where the last one left off. It is told to stop
    when it has read all, and woken by a last entry, which no rule reads, so that it does not wait for more; before it
    has stopped, it stores all that rules remember, with the cursor."""
    kind, plane, client = station.kind, station.plane, station.client
    await station.begin()
    wanted = await station.write(count)
    last = client.xrevrange(plane.keys.feed(), count=1)[0][0]
    stop, engine = asyncio.Event(), RuleEngine(plane, station.store)
    running = asyncio.create_task(engine.run(stop))
    await _until(running, lambda: engine.is_leading)
    server_s, began, cpu = server_cpu_s(client), time.perf_counter(), time.process_time()
    await _until(running, lambda: engine.stats.entries >= wanted)
    stop.set()
    await station.board.write([Batch.of_channel("999999", "m", {"1": 0.0}, int(time.time() * 1000))])
    await running
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    checks = engine.stats.checks
    kind.stored.rates.append(checks / wall)
    kind.stored.cpu_us.append(used / checks * 1e6)
    kind.stored.server_us.append((server_cpu_s(client) - server_s) / checks * 1e6)
    kind.fired = engine.stats.fired
    assert engine.stats.missed == 0
    assert id_of(client.hget(plane.keys.feed_cursors(), CONSUMER).decode()) >= id_of(last.decode())
    client.xtrim(plane.keys.feed(), maxlen=0, approximate=False)


async def _until(running: asyncio.Task[None], is_so: Callable[[], Any]) -> None:
    while not is_so():
        if running.done():
            running.result()
        await asyncio.sleep(0.002)


def cost(network: RuleNetwork, given: list[FeedEntry], changes: int) -> float:
    """ns of CPU a change."""
    began = time.process_time()
    network.apply_all(given)
    return (time.process_time() - began) / changes * 1e9


def growth(rules: list[Rule], passes: int, count: int) -> tuple[list[float], ...]:
    """`rules` of ten comparisons. The same changes reach 100 of them, alone and among all the others; each change is of
    another point than the one before it."""
    channels = FEW * 10 // A_CHANNEL
    networks = [RuleNetwork(rules[:size]) for size in (FEW, len(rules))]
    for network in networks:
        network.start({}, 1_699_999_999_999)
    found: tuple[list[float], ...] = ([], [], [], [])
    chance = random.Random(3)
    ts = 1_700_000_000_000
    for turn in range(passes + 1):
        batches = [entry for sweep in entries(count, channels * A_CHANNEL, ts) for entry in sweep]
        ts += count
        singles = []
        for _ in range(count * 20):
            ts += 1
            point = chance.randrange(FEW * 10)
            data = f"{point % A_CHANNEL + 10_001}:{chance.uniform(0, 70):.6f}"
            singles.append(FeedEntry("1-1", f"comsrv:{point // A_CHANNEL + 1}:m", ts, data))
        ts += 1
        order = (0, 1) if turn % 2 else (1, 0)
        for given, changes, place in ((batches, len(batches) * A_CHANNEL, 0), (singles, len(singles), 2)):
            for which in order:
                took = cost(networks[which], given, changes)
                if turn:  # the first one warms up
                    found[place + which].append(took)
        for network in networks:
            network.take()
            network.take_states()
    return found


async def run(kinds: list[Kind], passes: int, count: int, url: str) -> None:
    link, client = await open_link(RedisSettings(url=url)), redis.Redis.from_url(url)
    stations = [Station(kind, link, client) for kind in kinds]
    for station in stations:
        await station.store.apply(station.kind.documents)
    for turn in range(1, passes + 1):
        for station in stations:
            kind = station.kind
            # Sweeps are longer where all points are read; each run has about the same number of changes.
            many = count * max(1, kinds[0].points // kind.points)
            in_memory(kind, many)
            await from_feed(station, many)
            rates = f"{kind.memory.rates[-1]:,.0f} in memory, {kind.stored.rates[-1]:,.0f} stored"
            print(f"  pass {turn} of {passes}, {kind.name}: {rates} checks/s", file=sys.stderr, flush=True)
    client.close()
    await link.close()


def measure(*, is_quick: bool = False) -> CheckFigures:
    quiet_logs()
    rules, passes, count = (500, 1, 5) if is_quick else (RULES, 3, 10)
    kinds = kinds_of(rules)
    with server_of(is_valkey=False) as server:
        uvloop.run(run(kinds, passes, count, server.url))
    plain = [
        {"name": k.name, "points": k.points, "memory": k.memory, "stored": k.stored, "fired": k.fired} for k in kinds
    ]
    return CheckFigures(
        server.name, rules, plain, *growth(kinds[0].rules, 3 if is_quick else 15, 20 if is_quick else 400)
    )


def main() -> None:
    import goals
    import report

    import parts

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    found = measure(is_quick=parser.parse_args().quick)
    print(f"{parts.verdict_table(goals.of_checks(found))}\n\n{report.check_text(found)}")


if __name__ == "__main__":
    main()
