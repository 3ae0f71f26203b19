"""Markdown of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from backtests import BacktestFigures
from checks import CheckFigures
from latency import LatencyFigures
from listing import ListFigures
from peers import PeerFigures
from shared import number, table

from parts import digits


def spread(values: Sequence[float]) -> str:
    """Median and, of more than one, from the least to the most."""
    if not values:
        return "–"
    text = digits(statistics.median(values))
    return text if len(values) == 1 else f"{text} ({digits(min(values))} … {digits(max(values))})"


def check_text(found: CheckFigures) -> str:
    head = [f"{found.rules:,} rules", "points a sweep", "in memory, checks/s", "CPU µs a check"]
    head += ["feed to stored, checks/s", "engine CPU µs", "Redis CPU µs", "edges"]
    lines: list[list[str]] = []
    for kind in found.kinds:
        memory, stored = kind["memory"], kind["stored"]
        cells: list[Any] = [kind["name"], f"{kind['points']:,}", spread(memory.rates), _median(memory.cpu_us)]
        cells += [spread(stored.rates), _median(stored.cpu_us), _median(stored.server_us), f"{kind['fired']:,}"]
        lines.append(cells)
    costs = table(
        ["ns a change", "100 rules", f"{found.rules:,} rules"],
        [
            ["1,000 points an entry", spread(found.batch_few), spread(found.batch_all)],
            ["one point an entry", spread(found.single_few), spread(found.single_all)],
        ],
    )
    passes = len(found.kinds[0]["memory"].rates)
    return f"On {found.server}; {passes} pass(es).\n\n{table(head, lines)}\n\n{costs}"


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else "–"


def latency_text(found: LatencyFigures) -> str:
    head = ["ms", "p50", "p99", "most"]
    lines = [
        [
            "before the write to the announcement heard",
            digits(found.p50_ms),
            digits(found.p99_ms),
            digits(found.most_ms),
        ],
        ["the write by itself", digits(found.write_p50_ms), "–", "–"],
        ["the writer late with a batch", "–", digits(found.late_p99_ms), "–"],
    ]
    shares = [
        ("rule engine", found.engine_share),
        ("Redis", found.server_share),
        ("the writer", found.writer_share),
    ]
    cost = table(["process", "% of a core"], [[name, f"{share * 100:.1f}"] for name, share in shares])
    words = (
        f"On {found.server}; {found.rules:,} rules, {found.changes:,} changes in {found.seconds:.1f} s, "
        f"{found.raised:,} alarms raised and heard, {found.lost} not heard."
    )
    return f"{words}\n\n{table(head, lines)}\n\n{cost}"


def listing_text(found: ListFigures) -> str:
    head = ["first page of 100, ms", "p50", "p99"]
    lines = [
        ["AlarmStore.list", digits(found.store_p50), digits(found.store_p99)],
        ["GET /api/v1/alarms", digits(found.http_p50), digits(found.http_p99)],
    ]
    rate = found.alarms / found.raised_s if found.raised_s else math.nan
    words = f"On {found.server}; {found.alarms:,} open alarms, raised at {number(rate)} a second."
    return f"{words}\n\n{table(head, lines)}"


def peer_text(found: PeerFigures) -> str:
    head = ["engine", "what it is asked", "checks/s", "Tradewind / it", "made ready in s"]
    mine = found.ours[0]
    lines = []
    for peer in [*found.ours, *found.others]:
        if peer.failure:
            lines.append([peer.name, peer.how, f"failed: {peer.failure}", "–", "–"])
            continue
        ratio = statistics.median(a / b for a, b in zip(mine.rates, peer.rates, strict=True))
        lines.append([peer.name, peer.how, spread(peer.rates), number(ratio, 1), spread(peer.built_s)])
    words = f"{found.rules:,} rules of one comparison, each on a point of its own, {len(mine.rates)} pass(es)."
    return f"{words}\n\n{table(head, lines, words=2)}"


def backtest_text(found: BacktestFigures) -> str:
    head = ["rule", "over", "how", "samples/s", "rises"]
    lines = [
        [c.name, c.over, "vectorised" if c.is_vectorised else "sample by sample", spread(c.rate.rates), f"{c.rises:,}"]
        for c in found.cases
    ]
    csv = table(["reading", "rows/s"], [[name, spread(rate.rates)] for name, rate in found.csv.items()])
    words = f"{found.samples:,} samples a source (a tenth of it sample by sample)."
    return f"{words}\n\n{table(head, lines, words=3)}\n\n{csv}"
