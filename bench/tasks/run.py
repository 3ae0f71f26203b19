"""Measures Tradewind and its peers in one run on one private redis-server, and says which targets are reached.

W1: enqueue n no-ops from one producer, no worker running.
W2: n no-ops queued, then 1 (or 2) workers start; rate from the first execution to the last; each id exactly once.
W3: one idle warm worker, 200 submits one at a time at random gaps; submit call to start of the task.
W3b: the same after 3 to 4 s of idleness, which shows pollers that back off.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ceiling
import redis
import tables
from measure import WARM_UP, Drain, Latency, drain, enqueue_only, latency
from ours import OURS
from peers import PEERS
from server import private_redis, url_of, version
from system import REPO, BenchError, System, slug
from targets import Row, faults, judge, median, valid_rates

KINDS = {slug(kind.name): kind for kind in [*OURS, *PEERS]}
RESULTS = REPO / "bench" / "results"
NOTES = RESULTS / "tasks-notes.md"


@dataclass
class Found:
    """What the passes found for one system."""

    system: System
    drains: dict[int, list[Drain]] = field(default_factory=lambda: {1: [], 2: []})
    enqueues: list[float] = field(default_factory=list)
    waits: list[Latency] = field(default_factory=list)
    idle_waits: list[Latency] = field(default_factory=list)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def one_pass(found: Found, client: redis.Redis, options: argparse.Namespace) -> None:
    system = found.system
    n = system.drain_n(options.n)
    for workers, drains in found.drains.items():
        drains.append(drain(system, client, n, workers))
    if n < options.n:  # a slow drain: its W1 still gets the full n
        found.enqueues.append(enqueue_only(system, client, options.n))
    if system.gap_s < 0.1 or not found.waits:  # a slow poller: once
        found.waits.append(latency(system, client, options.latency_n, (0.002, system.gap_s), WARM_UP))
    if options.idle_n and not found.idle_waits:
        found.idle_waits.append(latency(system, client, options.idle_n, (3.0, 4.0), 1))


def summary(found: Found, options: argparse.Namespace) -> Row:
    system, one, two = found.system, found.drains[1], found.drains[2]
    enqueues = found.enqueues or [d.enqueue_rate for d in one + two]
    return Row(
        name=system.name,
        note=system.note,
        versions=system.versions(),
        is_peer=system.is_peer,
        n=system.drain_n(options.n),
        enqueue=median(enqueues),
        drain1=median(valid_rates(one)),
        drain2=median(valid_rates(two)),
        p50=median([w.p50 for w in found.waits]),
        p99=median([w.p99 for w in found.waits]),
        idle_p50=median([w.p50 for w in found.idle_waits]),
        idle_most=median([w.most for w in found.idle_waits]),
        faults=faults(one + two, found.waits + found.idle_waits),
        settle_s=median([d.settle_s for d in one]),
        worker_cpu_us=median([d.worker_cpu_us for d in one]),
        service_cpu_us=median([d.service_cpu_us for d in one]),
        enqueue_cost=one[-1].enqueue_cost if one else None,
        drain_cost=one[-1].drain_cost if one else None,
        samples={
            "enqueue": enqueues,
            "drain1": [d.drain_rate for d in one],
            "drain2": [d.drain_rate for d in two],
            "drain1_middle": [d.middle_rate for d in one],
            "drain2_middle": [d.middle_rate for d in two],
            "p50": [w.p50 for w in found.waits],
            "p99": [w.p99 for w in found.waits],
        },
    )


def measure_all(everyone: list[Found], client: redis.Redis, options: argparse.Namespace) -> list[str]:
    """Fills `everyone`; returns what went wrong. Passes are outermost, so that a slow spell hits all alike."""
    failures = []
    for number in range(options.repeats):
        for found in everyone:
            name, began = found.system.name, time.monotonic()
            try:
                one_pass(found, client, options)
            except (BenchError, OSError, subprocess.SubprocessError, redis.RedisError) as error:
                failures.append(f"pass {number + 1}, {name}: {error}".replace(f"{REPO}/", ""))
                say(f"  {failures[-1]}")
            finally:
                found.system.stop()
            say(f"pass {number + 1} of {options.repeats}, {name}: {time.monotonic() - began:.0f} s")
    return failures


def plain(value: Any) -> Any:
    """The same with null for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def about(client: redis.Redis, options: argparse.Namespace) -> str:
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores; Python {platform.python_version()}; "
        f"redis-server {version(client)}, AOF off; medians over {options.repeats} pass(es) over all systems. "
        "Tradewind's scheduler is a process of its own and runs during W1 as well. "
        "W1 and W2 of Tradewind use more tasks than those of the peers (see drain n), so that the drain lasts long "
        "enough to be measured; all rates are from the first execution to the last. What is compared and what is "
        "not: `bench/README.md`."
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=KINDS, help=f"of: {', '.join(KINDS)}")
    parser.add_argument("--n", type=int, default=5000, help="tasks of W1 and W2 (Tradewind: ten times as many)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a smoke run: one pass, few tasks, no W3b")
    parser.add_argument("--skip-ceilings", action="store_true")
    parser.add_argument("--venvs", type=Path, default=REPO / ".bench-venvs", help="made by bench/setup_peers.sh")
    parser.add_argument("--markdown", type=Path, help="default, for a full run: bench/results/tasks.md")
    parser.add_argument("--json", type=Path, help="default, for a full run: bench/results/tasks.json")
    options = parser.parse_args()
    options.latency_n, options.idle_n = 200, 5
    if options.quick:
        options.repeats, options.n = 1, min(options.n, 500)
        options.latency_n, options.idle_n = 30, 0
    elif not options.only:  # a part or a smoke run must not replace the record
        options.markdown = options.markdown or RESULTS / "tasks.md"
        options.json = options.json or RESULTS / "tasks.json"
    return options


def main() -> int:
    options = parse()
    kinds = [kind for name, kind in KINDS.items() if not options.only or name in options.only]
    for tool in ("redis-server", "redis-benchmark"):
        if shutil.which(tool) is None:
            say(f"{tool} is not on PATH; install redis-server (Debian: apt install redis-server redis-tools)")
            return 2
    with tempfile.TemporaryDirectory() as folder, private_redis() as client:
        everyone = [Found(kind(Path(folder), url_of(client), options.venvs.absolute())) for kind in kinds]
        missing = [str(f.system.python) for f in everyone if not f.system.python.exists()]
        if missing:
            say("no interpreter at " + ", ".join(missing) + "; run make setup and bench/setup_peers.sh")
            return 2
        ceilings = [] if options.skip_ceilings else ceiling.measure(client, options.repeats, options.quick)
        failures = measure_all(everyone, client, options)
        rows = [summary(found, options) for found in everyone]
        head = about(client, options)
    verdicts = judge(rows)
    notes = NOTES.read_text().strip() if NOTES.exists() and not options.quick else ""
    text = tables.report(rows, verdicts, ceilings, head, notes)
    if failures:
        text += "\nWent wrong: " + "; ".join(failures) + "\n"
    print(text)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(text)
    if options.json:
        judged = [{**asdict(v), "ratio": v.ratio, "is_reached": v.is_reached} for v in verdicts]
        everything = {"about": head, "rows": [asdict(r) for r in rows], "verdicts": judged, "ceilings": ceilings}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(plain({**everything, "failures": failures}), indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
