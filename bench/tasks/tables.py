"""Markdown of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from server import PerTask
from targets import Row, Verdict


def number(value: float, digits: int = 0) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """The first `words` columns are text, the others are numbers."""
    align = ["---" if at < words else "---:" for at in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, align, *rows])


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    head = ["target", "system", "verdict", "found", "best peer", "ratio", "wanted"]
    rows = []
    for v in verdicts:
        digits = 0 if v.target.is_rate else 2
        rows.append(
            [
                v.target.words,
                v.system,
                "REACHED" if v.is_reached else "**NOT REACHED**",
                number(v.value, digits),
                f"{number(v.best, digits)} ({v.best_peer})",
                number(v.ratio, 2),
                f"{'≥' if v.target.is_rate else '≤'} {v.target.ratio:g}",
            ]
        )
    return table(head, rows, words=3)


def rate_table(rows: Sequence[Row]) -> str:
    head = ["system", "one worker is", "drain n", "W1 enqueue/s", "W2 drain/s, 1 worker", "W2 drain/s, 2 workers"]
    head += ["W3 p50 ms", "W3 p99 ms", "W3b median ms", "W3b most ms", "each task ran once"]
    lines = []
    for r in rows:
        rates = [number(value) for value in (r.n, r.enqueue, r.drain1, r.drain2)]
        times = [number(value, 2) for value in (r.p50, r.p99, r.idle_p50, r.idle_most)]
        lines.append([r.name, r.note, *rates, *times, r.faults or "yes"])
    return table(head, lines, words=2)


def cost_table(rows: Sequence[Row]) -> str:
    """Who pays: the profile behind the rates, one worker."""
    head = ["system", "Redis commands", "socket reads", "Redis CPU µs", "worker CPU µs", "scheduler CPU µs"]
    head += ["archive behind, s"]
    lines = []
    for r in rows:
        settle = "–" if r.is_peer else number(r.settle_s, 1)
        service = "–" if r.is_peer else number(r.service_cpu_us)
        redis = [_both(r, "commands", 1), _both(r, "reads", 2), _both(r, "cpu_us", 0)]
        lines.append([r.name, *redis, number(r.worker_cpu_us), service, settle])
    return table(head, lines)


def _both(row: Row, name: str, digits: int) -> str:
    def one(cost: PerTask | None) -> str:
        return number(getattr(cost, name), digits) if cost else "–"

    return f"{one(row.enqueue_cost)} + {one(row.drain_cost)}"


def report(
    rows: Sequence[Row], verdicts: Sequence[Verdict], ceilings: Sequence[tuple[str, float]], about: str, notes: str
) -> str:
    parts = ["# Task queues on Redis, side by side", about]
    if verdicts:
        parts += ["## Tradewind against the best peer of each column", verdict_table(verdicts)]
    if notes:
        parts += ["## What explains it", notes]
    parts += ["## All systems", rate_table(rows)]
    parts += ["Cost per task (enqueue + drain), one worker; commands inside scripts count too.", cost_table(rows)]
    if ceilings:
        parts.append(table(["ceiling", "per second"], [[name, number(rate)] for name, rate in ceilings]))
    parts.append("Versions: " + "; ".join(dict.fromkeys(r.versions for r in rows)) + ".")
    return "\n\n".join(parts) + "\n"
