"""Tradewind: entries of the feed, decoded and judged by the network of rules. MODE: points an entry has."""

from __future__ import annotations

import json
import sys
import time

from tradewind.points.feed import FeedEntry
from tradewind.rules.network import RuleNetwork
from tradewind.rules.spec import Compare, Rule

path, seconds, mode = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
with open(path) as file:
    stream = json.load(file)
limit, sweeps = stream["limit"], stream["sweeps"]
points = len(sweeps[0])
sources = [f"comsrv:{at // 1000 + 1}:m:{at % 1000}" for at in range(points)]
entries = [
    [
        FeedEntry(
            "1-1",
            sources[first].rpartition(":")[0],
            1_700_000_000_000 + number,
            ",".join(f"{first % 1000 + i}:{value:.6f}" for i, value in enumerate(values[first : first + mode])),
        )
        for first in range(0, points, mode)
    ]
    for number, values in enumerate(sweeps)
]
began = time.perf_counter()
network = RuleNetwork([Rule(f"r{at}", conditions=(Compare(source, ">", limit),)) for at, source in enumerate(sources)])
network.start({}, 1_699_999_999_999)
built_s = time.perf_counter() - began
changes = 0
fired = []
until = time.perf_counter() + seconds
began = time.perf_counter()
for sweep in entries:
    for entry in sweep:
        network.apply(entry)
    fired += network.take()
    changes += points
    if time.perf_counter() >= until:
        break
took = time.perf_counter() - began
assert network.checks == changes
# Edges say when a value crossed; how long it stayed above follows from the stream.
high: dict[str, bool] = {}
matched = 0
edges = {(each.rule.id, each.verdict.at_ms): each.verdict.edge == "rise" for each in fired}
for number, values in enumerate(sweeps[: changes // points]):
    for at in range(len(values)):
        name = f"r{at}"
        high[name] = edges.get((name, 1_700_000_000_000 + number), high.get(name, False))
        matched += high[name]
print(json.dumps({"checks": changes, "changes": changes, "matched": matched, "seconds": took, "built_s": built_s}))
