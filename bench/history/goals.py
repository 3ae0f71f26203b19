"""Goals and verdicts: what was found, and whether Tradewind keeps its promises. Pure."""

from __future__ import annotations

import math

from embedded import EmbeddedFigures
from endtoend import EndFigures
from influx import BODIES, CALLS, PEER, InfluxFigures, bare, ours
from trend import TrendFigures

from parts import Verdict

#: By how much the lag may differ between "at 10 s" and "at the end" without counting as growing, in ms.
GROWTH_MS = 250


def of_embedded(found: EmbeddedFigures) -> list[Verdict]:
    return [
        Verdict(f"sustained writes, batches of {size.batch:,}", "embedded", size.rate, 200_000, "samples/s",
                is_least=True)
        for size in found.sizes
    ]  # fmt: skip


def of_influx(found: InfluxFigures) -> list[Verdict]:
    def against(mine: str, other: str) -> str:
        return f"{found.ways[mine].rate:,.0f} against {found.ways[other].rate:,.0f} samples/s"

    verdicts = []
    for body in BODIES:
        for each in CALLS:
            mine, other = found.ways[ours(each, body)], found.ways[bare(body)]
            ratios = mine.ratios(other)
            words = f"{against(mine.name, other.name)}; pass by pass {min(ratios):.2f} to {max(ratios):.2f}"
            name = f"{mine.name} / {other.name}"
            verdicts.append(Verdict(name, found.server, mine.ratio(other), 0.8, "×", is_least=True, found=words))
    best = max((found.ways[ours(each, "plain")] for each in CALLS), key=lambda way: way.rate)
    for name, way in found.ways.items():
        if name == PEER:
            ratio = best.rate / way.rate
            verdicts.append(
                Verdict(
                    f"{best.name} / {name}", found.server, ratio, 3, "×", is_least=True, found=against(best.name, name)
                )
            )
    for name in {PEER}.intersection(found.missing):
        verdicts.append(Verdict(f"sink / {name}: not installed", found.server, math.nan, 3, "×", is_least=True))
    return verdicts


def of_end(found: EndFigures) -> list[Verdict]:
    where = f"{found.server} to {found.sink}"
    words = f"board write → feed → recorder → sink, {found.seconds:.0f} s"
    lag = f"{found.early_ms:,.0f} ms at 10 s, {found.end_ms:,.0f} ms at the end"
    return [
        Verdict(f"{words}: points stored", where, found.rate, 100_000, "points/s", is_least=True),
        Verdict(f"{words}: growth of the lag", where, found.end_ms - found.early_ms, GROWTH_MS, "ms", found=lag),
        Verdict(f"{words}: samples that had to wait on disk", where, found.spooled, 0, "samples"),
    ]


def of_trend(found: TrendFigures) -> list[Verdict]:
    return [
        Verdict(f"trend of a 1 Hz series, {each.kind.name}, p50", "embedded", each.p50_ms, each.kind.limit_ms, "ms")
        for each in found.asked
    ]
