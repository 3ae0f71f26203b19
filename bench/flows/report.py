"""Markdown of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from goals import Row, Verdict
from idle import Idle
from lateness import Lateness
from shared import number, table


def digits(value: float) -> str:
    """Three digits that count."""
    if math.isnan(value):
        return "–"
    return number(value) if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Median and, of more than one, from the least to the most."""
    if not values:
        return "–"
    text = digits(statistics.median(values))
    return text if len(values) == 1 else f"{text} ({digits(min(values))} … {digits(max(values))})"


def cell(row: Row, kind: str, wanted: int) -> str:
    runs = row.of(kind)
    text = spread(row.seconds(kind))
    return text if not runs or runs[0].n == wanted else f"{text}; n = {runs[0].n}"


def hop_cell(row: Row, wanted: int) -> str:
    runs = row.of("chain")
    text = spread([run.seconds * 1000 / run.n for run in runs])
    return text if not runs or runs[0].n == wanted else f"{text}; n = {runs[0].n}"


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    head = ["target", "engine", "verdict", "found", "wanted"]
    lines = []
    for v in verdicts:
        reached = "REACHED" if v.is_reached else "**NOT REACHED**"
        wanted = f"{'≥' if v.is_least else '≤'} {v.limit:g} {v.unit}"
        lines.append([v.words, v.engine, reached, f"{digits(v.value)} {v.unit}", wanted])
    return table(head, lines, words=3)


def engine_table(rows: Sequence[Row], chain: int, fan: int, flows: int) -> str:
    head = ["engine", "how it runs", "what it keeps", f"chain of {chain}, ms a hop", f"fan of {fan}, s"]
    head += [f"{flows} flows, s", "runs"]
    lines = []
    for row in rows:
        many = "/".join(str(len(row.of(kind))) for kind in ("chain", "fan", "flows"))
        cells = [hop_cell(row, chain), cell(row, "fan", fan), cell(row, "flows", flows), many]
        lines.append([row.name, row.note, row.keeps, *cells])
    return table(head, lines, words=3)


def extra_table(rows: Sequence[Row]) -> str:
    """Before and after the clock, of Tradewind: the first registration, and how far behind the record is."""
    head = ["engine", "register chain, s", "register fan, s", "register all single flows, s"]
    head += [f"record behind after {kind}, s" for kind in ("chain", "fan", "flows")]
    lines = []
    for row in rows:
        kinds = ("chain", "fan", "flows")
        first = [spread(row.prepared.get(kind, [])) for kind in kinds]
        behind = [spread([run.behind for run in row.of(kind) if run.behind is not None]) for kind in kinds]
        lines.append([row.name, *first, *behind])
    return table(head, lines)


def late_text(late: Lateness) -> str:
    head = ["lateness, ms", "p50", "p99", "most"]
    lines = [
        ["cycle start − slot", digits(late.cycle_p50), digits(late.cycle_p99), digits(late.cycle_most)],
        ["first node's first line − slot", digits(late.node_p50), digits(late.node_p99), digits(late.node_most)],
    ]
    words = f"A 1 s flow, {late.slots} slots: {late.missed} missed, drift {digits(late.drift)} ms."
    return f"{words}\n\n{table(head, lines)}"


def idle_text(idle: Idle) -> str:
    head = ["% of a core over " + f"{idle.seconds:.0f} s", f"with {idle.flows:,} flows", "without", "difference"]
    pairs = [
        ("station process", idle.station_with, idle.station_without),
        ("its Redis server", idle.server_with, idle.server_without),
    ]
    lines = [[name, f"{a:.2f}", f"{b:.2f}", f"{a - b:.2f}"] for name, a, b in pairs]
    return f"Registering and starting them took {idle.registered_s:.1f} s.\n\n{table(head, lines)}"
