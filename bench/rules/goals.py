"""Goals and verdicts: what was found, and whether Tradewind keeps its promises. Pure."""

from __future__ import annotations

import math
import statistics

from backtests import BacktestFigures
from checks import CheckFigures
from latency import LatencyFigures
from listing import ListFigures
from peers import PeerFigures

from parts import Verdict


def of_checks(found: CheckFigures) -> list[Verdict]:
    verdicts = [
        Verdict(f"{found.rules:,} rules, {words}: {kind['name']}", on, kind[pick].rate, 200_000, "checks/s", True)
        for words, pick, on in (("in memory", "memory", "one process"), ("feed to stored", "stored", found.server))
        for kind in found.kinds
    ]
    for words, few, every in (
        ("1,000 points an entry", found.batch_few, found.batch_all),
        ("one point an entry", found.single_few, found.single_all),
    ):
        behind = f"{statistics.median(every):,.0f} against {statistics.median(few):,.0f} ns"
        ratio = found.ratio(few, every)
        text = f"cost of a change with {found.rules:,} rules / with 100, {words}"
        verdicts.append(Verdict(text, "in memory", ratio, 1.2, "×", found=behind))
    return verdicts


def of_latency(found: LatencyFigures) -> list[Verdict]:
    rate = found.changes / found.seconds if found.seconds else 0
    words = f"point change to alarm stored and announced, {found.rules:,} rules, {rate:,.0f} changes/s: "
    return [
        Verdict(words + "p50", found.server, found.p50_ms, 5, "ms"),
        Verdict(words + "p99", found.server, found.p99_ms, 20, "ms"),
        Verdict(words + "alarms not announced", found.server, found.lost, 0, "alarms"),
        Verdict("the changes that were written", found.server, rate, 9_900, "changes/s", True),
    ]


def of_listing(found: ListFigures) -> list[Verdict]:
    words = f"{found.alarms:,} open alarms by level, first page of 100: "
    pairs = [
        ("store, p50", found.store_p50), ("store, p99", found.store_p99),
        ("over HTTP, p50", found.http_p50), ("over HTTP, p99", found.http_p99),
    ]  # fmt: skip
    return [Verdict(words + name, found.server, value, 20, "ms") for name, value in pairs]


def of_peers(found: PeerFigures) -> list[Verdict]:
    best = found.best
    if best is None:
        return [Verdict("checks / the fastest peer", "in memory", math.nan, 5, "×", True, "no peer is installed")]
    words = f"checks / the fastest peer ({best.name})"
    verdicts = []
    for mine, how in ((found.ours[0], ""), (found.ours[1], ", one point an entry")):
        ratio = statistics.median(a / b for a, b in zip(mine.rates, best.rates, strict=True))
        behind = f"{mine.rate:,.0f} against {best.rate:,.0f} checks/s"
        verdicts.append(Verdict(words + how, "in memory", ratio, 5, "×", True, behind))
    return verdicts


def of_backtests(found: BacktestFigures) -> list[Verdict]:
    return [
        Verdict(f"back-test, {case.name}, over {case.over}", "in memory", case.rate.rate, 1e6, "samples/s", True)
        for case in found.cases
        if case.is_vectorised
    ]
