"""Rows, goals and verdicts: what was found per engine, and whether Tradewind keeps its promises. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine import Run
from idle import Idle
from lateness import Lateness
from others import Celery, Prefect, RedisFloor
from stations import Embedded, EmbeddedNoArchive, OverRabbit, TwoWorkers


@dataclass
class Row:
    """One engine and all of its runs."""

    name: str
    note: str
    keeps: str
    versions: str
    is_ours: bool
    runs: list[Run] = field(default_factory=list)
    #: Seconds before the clock, by kind, one a pass: building or registering what was run for the first time.
    prepared: dict[str, list[float]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Run]:
        return [run for run in self.runs if run.kind == kind]

    def seconds(self, kind: str) -> list[float]:
        return [run.seconds for run in self.of(kind)]

    def median(self, kind: str) -> float:
        """Seconds; NaN when nothing was measured."""
        found = self.seconds(kind)
        return statistics.median(found) if found else math.nan

    @property
    def hop_ms(self) -> float:
        return self.median("chain") * 1000 / self.of("chain")[0].n if self.of("chain") else math.nan

    def full(self, kind: str, n: int) -> float:
        """The median of runs of that size, NaN when they were smaller."""
        found = [run.seconds for run in self.of(kind) if run.n == n]
        return statistics.median(found) if found else math.nan


@dataclass(frozen=True, slots=True)
class Verdict:
    words: str
    engine: str
    value: float
    limit: float
    unit: str
    is_least: bool = False

    @property
    def is_reached(self) -> bool:
        """Never of NaN: what was not measured is not reached."""
        return self.value >= self.limit if self.is_least else self.value <= self.limit


def judge(rows: Sequence[Row], fan: int, flows: int, late: Lateness | None, idle: Idle | None) -> list[Verdict]:
    """A goal whose other side (a floor, a peer) is not in this run is left out."""
    by_name = {row.name: row for row in rows}
    verdicts = []
    for kind in (Embedded, EmbeddedNoArchive):
        if row := by_name.get(kind.name):
            verdicts += _against(by_name, row, 2.5)
            verdicts.append(Verdict(f"fan-out and join of {fan}", row.name, row.full("fan", fan), 0.5, "s"))
            verdicts.append(Verdict(f"{flows} flows of one node", row.name, row.full("flows", flows), 0.2, "s"))
    if row := by_name.get(TwoWorkers.name):
        verdicts += _against(by_name, row, 5, peers=False)
    if row := by_name.get(OverRabbit.name):
        verdicts.append(Verdict("chain, a hop", row.name, row.hop_ms, 8, "ms"))
    if idle is not None:
        words = f"{idle.flows:,} started flows, none due: share of a core"
        verdicts.append(Verdict(words, Embedded.name, idle.cost, 0.5, "%"))
    if late is not None:
        words = f"1 s flow over {late.slots} slots: "
        verdicts.append(Verdict(words + "slots missed", Embedded.name, late.missed, 0, "slots"))
        verdicts.append(Verdict(words + "drift", Embedded.name, abs(late.drift), 1, "ms"))
        verdicts.append(Verdict(words + "cycle starts late, p99", Embedded.name, late.cycle_p99, 15, "ms"))
        verdicts.append(Verdict(words + "first node starts late, p99", Embedded.name, late.node_p99, 15, "ms"))
    return verdicts


def _against(by_name: Mapping[str, Row], row: Row, most: float, *, peers: bool = True) -> list[Verdict]:
    found = []
    if floor := by_name.get(RedisFloor.name):
        ratio = row.hop_ms / floor.hop_ms
        found.append(Verdict("chain, a hop against the redis-py hop", row.name, ratio, most, "×"))
    for peer, least in ((Prefect.name, 50), (Celery.name, 3)) if peers else ():
        if other := by_name.get(peer):
            ratio = other.hop_ms / row.hop_ms
            found.append(Verdict(f"chain, faster a node than {peer}", row.name, ratio, least, "×", is_least=True))
    return found
