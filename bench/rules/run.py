"""Measures rules and alarms, one part after the other, and says which targets are reached.

    .venv/bin/python bench/rules/run.py [--quick] [--only PART …]

Parts: judging (in memory, from the feed to Redis, with few and many rules), the way from a change to its alarm, lists
of alarms, other rule engines, back-tests. Each runs in a fresh process, with a server of its own.
"""

from __future__ import annotations

import sys

import backtests
import checks
import goals
import latency
import listing
import peers
import report

from parts import Bench, Part

BENCH = Bench(
    __doc__ or "",
    "Rules and alarms",
    "rules",
    {
        "checks": Part("Judging", checks.measure, goals.of_checks, report.check_text),
        "latency": Part("From a change to its alarm", latency.measure, goals.of_latency, report.latency_text),
        "listing": Part("Lists of alarms", listing.measure, goals.of_listing, report.listing_text),
        "peers": Part("Other rule engines", peers.measure, goals.of_peers, report.peer_text),
        "backtests": Part("Back-tests", backtests.measure, goals.of_backtests, report.backtest_text),
    },
    ("tradewind", "redis", "hiredis", "uvloop", "msgspec", "numpy"),
    "Servers on TCP of the same machine, nothing on disk. Medians over the passes; ratios are taken pass by pass.",
    {"redis-server": "redis-server"},
)

if __name__ == "__main__":
    sys.exit(BENCH.main())
