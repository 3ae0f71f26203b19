"""The promise of history at full size: 1,000,000 numbered samples, both sinks, outages of a minute, three kills, one
restart of Redis. Nothing may be lost or doubled.

    .venv/bin/python bench/history/soak.py [--samples N] [--outage S] [--write S] [--sink embedded|influx|both]

Takes about five minutes per sink, writes nothing that stays, and ends with 1 when a sample is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests import servers
from tests.history.soak import Plan, soak

POINTS = 1000


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--outage", type=float, default=60.0, help="seconds that the sink is away, twice")
    parser.add_argument("--write", type=float, default=240.0, help="seconds that the writing takes")
    parser.add_argument("--sink", choices=("embedded", "influx", "both"), default="both")
    options = parser.parse_args()
    plan = Plan(POINTS, options.samples // POINTS, options.outage, options.write, settle_s=300.0)
    is_good = True
    for name in ("embedded", "influx") if options.sink == "both" else (options.sink,):
        is_good = run(name, plan) and is_good
    return 0 if is_good else 1


def run(name: str, plan: Plan) -> bool:
    with ExitStack() as stack:
        influx = stack.enter_context(servers.influx_server()) if name == "influx" else None
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-soak-"))
        found = asyncio.run(soak(plan, Path(folder), influx))
    expected, total = plan.points * plan.steps, plan.points * plan.steps * (plan.steps - 1) / 2
    is_good = not found.wrong and found.count == expected and found.total == total
    shown = {field: found.status[field] for field in ("written", "spooled", "dropped", "missed", "refused")}
    print(f"{name}: {'nothing lost, nothing doubled' if is_good else 'NOT AS PROMISED'} in {found.seconds:.0f} s")
    print(f"  count {found.count:,} of {expected:,}; sum {found.total:,.0f} of {total:,.0f}; {shown}")
    for line in found.wrong[:20]:
        print(f"  {line}")
    return is_good


if __name__ == "__main__":
    sys.exit(main())
