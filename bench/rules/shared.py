"""What the parts of the rule benchmark share: what the point benchmark has, rules and sweeps, figures per pass."""

from __future__ import annotations

import importlib.util
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Its name is the same as this one's.
_spec = importlib.util.spec_from_file_location("points_shared", HERE.parent / "points" / "shared.py")
assert _spec is not None and _spec.loader is not None
_points: Any = importlib.util.module_from_spec(_spec)
sys.modules["points_shared"] = _points
_spec.loader.exec_module(_points)

REPO: Path = _points.REPO
Place, accepts, cpu_s, free_port, number = (
    _points.Place, _points.accepts, _points.cpu_s, _points.free_port, _points.number,
)  # fmt: skip
percentile, quiet_logs, server_cpu_s, server_of, servers, table = (
    _points.percentile, _points.quiet_logs, _points.server_cpu_s, _points.server_of, _points.servers, _points.table,
)  # fmt: skip

RULES, POINTS, A_CHANNEL = 10_000, 100_000, 1_000
LIMIT = 75.0
#: One change in so many crosses the limit.
CROSSING = 1_000
ALARM = [{"type": "create_alarm", "parameters": {"level": "High", "title": "{rule.id} is high"}}]
#: Conditions of a rule by the point it reads, for the kinds of rules that are not one comparison.
MIXED: list[dict[str, Any]] = [
    *({"operator": ">", "value": LIMIT, "hysteresis": 2} for _ in range(4)),
    {"operator": ">", "value": LIMIT, "for_ms": 5_000},
    {"type": "range", "min": 0, "max": LIMIT, "inside": False},
    {"type": "rate", "operator": ">", "value": 1e9},
    {"type": "window", "function": "avg", "window_ms": 60_000, "operator": ">", "value": LIMIT},
    {"type": "change", "to": -1},
    {"type": "expression", "expression": f"x > {LIMIT:g}"},
]


@dataclass
class Rate:
    """Things a second; a figure per pass. `cpu_us` of this process and `server_us` of Redis for one."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates) if self.rates else float("nan")


def address(point: int) -> str:
    return f"comsrv:{point // A_CHANNEL + 1}:m:{point % A_CHANNEL + 10_001}"


def rule(number: int, points: list[int], condition: dict[str, Any] | None = None) -> dict[str, Any]:
    given = condition or {"operator": ">", "value": LIMIT}
    conditions = []
    for point in points:
        each = {**given, "field": f"p{point}"}
        source = {"inputs": {"x": address(point)}} if given.get("type") == "expression" else {"source": address(point)}
        conditions.append(each | source)
    return {"id": f"r{number}", "conditions": conditions, "actions": ALARM}


def ten_each(rules: int) -> list[dict[str, Any]]:
    """Each reads ten points of its own; true when all are above the limit."""
    return [rule(n, list(range(n * 10, n * 10 + 10))) for n in range(rules)]


def one_each(rules: int) -> list[dict[str, Any]]:
    """Each reads one point of ten; the others are read by nobody."""
    return [rule(n, [n * 10]) for n in range(rules)]


def mixed(rules: int) -> list[dict[str, Any]]:
    """Of ten rules four compare with hysteresis, the others are as `MIXED` says: three of them need every sample."""
    return [rule(n, [n], MIXED[n % 10]) for n in range(rules)]


def sweeps(count: int, points: int, start_ms: int) -> Iterator[list[tuple[str, int, dict[str, float]]]]:
    """Channel, time and values of each batch; a sweep changes every point, a millisecond after the one before."""
    chance = random.Random(1)
    names = [str(10_001 + i) for i in range(A_CHANNEL)]
    for sweep in range(count):
        found = []
        for channel in range(-(-points // A_CHANNEL)):
            size = min(A_CHANNEL, points - channel * A_CHANNEL)
            values = {name: round(chance.uniform(0, LIMIT - 1), 3) for name in names[:size]}
            if chance.random() < size / CROSSING:
                values[chance.choice(names[:size])] = LIMIT + 5
            found.append((str(channel + 1), start_ms + sweep, values))
        yield found


def data_of(values: dict[str, float]) -> str:
    """As the feed has it."""
    return ",".join(f"{name}:{value:.6f}" for name, value in values.items())
