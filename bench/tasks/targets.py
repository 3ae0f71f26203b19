"""Rows, targets and verdicts: what was found per system, and whether Tradewind keeps its promises. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from measure import Drain, Latency
from server import PerTask


@dataclass(frozen=True, slots=True)
class Row:
    """One system, medians over the passes; NaN where there is no valid sample."""

    name: str
    note: str
    versions: str
    is_peer: bool
    n: int
    enqueue: float
    drain1: float
    drain2: float
    p50: float
    p99: float
    idle_p50: float
    idle_most: float
    faults: str
    settle_s: float
    worker_cpu_us: float
    service_cpu_us: float
    enqueue_cost: PerTask | None
    drain_cost: PerTask | None
    samples: dict[str, list[float]]


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def valid_rates(drains: Sequence[Drain]) -> list[float]:
    """Rates of the drains in which each id ran exactly once; the others prove nothing."""
    return [d.drain_rate for d in drains if not d.missing and not d.twice]


def faults(drains: Sequence[Drain], waits: Sequence[Latency]) -> str:
    """Empty when every drain ran each id exactly once and no submit was lost."""
    missing, twice = sum(d.missing for d in drains), sum(d.twice for d in drains)
    lost = sum(w.lost for w in waits)
    words = [(missing, "never ran"), (twice, "ran twice"), (lost, "late by more than 10 s")]
    return ", ".join(f"{count} {text}" for count, text in words if count)


@dataclass(frozen=True, slots=True)
class Target:
    """A column, and the ratio to the best peer that Tradewind must reach: at least for rates, at most for times."""

    column: str
    words: str
    ratio: float
    is_rate: bool


TARGETS = (
    Target("enqueue", "W1 bulk enqueue", 8, True),
    Target("drain1", "W2 drain, 1 worker", 10, True),
    Target("drain2", "W2 drain, 2 workers", 6, True),
    Target("p50", "W3 idle latency p50", 1, False),
    Target("p99", "W3 idle latency p99", 1, False),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    system: str
    value: float
    best_peer: str
    best: float

    @property
    def ratio(self) -> float:
        return self.value / self.best

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.target.ratio if self.target.is_rate else self.ratio <= self.target.ratio


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Every target for every Tradewind row, against the best valid peer of that column; NaN is never reached."""
    verdicts = []
    for target in TARGETS:
        peers = [(getattr(r, target.column), r.name) for r in rows if r.is_peer]
        known = [pair for pair in peers if not math.isnan(pair[0])]
        if not known:
            continue
        best, best_name = max(known) if target.is_rate else min(known)
        for row in rows:
            if not row.is_peer:
                value = getattr(row, target.column) if not row.faults else math.nan
                verdicts.append(Verdict(target, row.name, value, best_name, best))
    return verdicts
