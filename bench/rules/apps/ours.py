"""Tradewind: entries of the feed, decoded and judged by the network of rules. MODE: points an entry has.

Entries are made just before they are judged, as those that the engine reads are; what makes them is not counted."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

from tradewind.points.feed import FeedEntry
from tradewind.rules.engine import ENTRIES
from tradewind.rules.network import RuleNetwork
from tradewind.rules.spec import Compare, Rule

START = 1_700_000_000_000
path, seconds, mode = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
with open(path) as file:
    stream = json.load(file)
limit, sweeps = stream["limit"], stream["sweeps"]
points = len(sweeps[0])
sources = [f"comsrv:{at // 1000 + 1}:m:{at % 1000}" for at in range(points)]


def read(number: int, values: list[float]) -> Iterator[list[FeedEntry]]:
    """What the feed has of a sweep, as many entries at once as the engine reads."""
    for start in range(0, points, ENTRIES * mode):
        firsts = range(start, min(start + ENTRIES * mode, points), mode)
        parts = [enumerate(values[first : first + mode], first % 1000) for first in firsts]
        data = [",".join(f"{field}:{value:.6f}" for field, value in part) for part in parts]
        keys = [sources[first].rpartition(":")[0] for first in firsts]
        yield [FeedEntry("1-1", key, START + number, text) for key, text in zip(keys, data, strict=True)]


began = time.perf_counter()
network = RuleNetwork([Rule(f"r{at}", conditions=(Compare(source, ">", limit),)) for at, source in enumerate(sources)])
network.start({}, START - 1)
built_s = time.perf_counter() - began
changes = 0
took = 0.0
fired = []
for number, values in enumerate(sweeps):
    for entries in read(number, values):
        began = time.perf_counter()
        network.apply_all(entries)
        fired += network.take()
        took += time.perf_counter() - began
    changes += points
    if took >= seconds:
        break
assert network.checks == changes
# Edges say when a value crossed; how long it stayed above follows from the stream.
high: dict[str, bool] = {}
matched = 0
edges = {(each.rule.id, each.verdict.at_ms): each.verdict.edge == "rise" for each in fired}
for number, values in enumerate(sweeps[: changes // points]):
    for at in range(len(values)):
        name = f"r{at}"
        high[name] = edges.get((name, START + number), high.get(name, False))
        matched += high[name]
print(json.dumps({"checks": changes, "changes": changes, "matched": matched, "seconds": took, "built_s": built_s}))
