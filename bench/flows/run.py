"""Measures Tradewind's flows beside other flow engines in one run, and says which targets are reached.

chain: 40 no-op nodes in a row. fan: a root, 1,000 no-ops, a join. flows: 100 independent flows of one no-op. Every run
checks its result. Graphs are built and flows registered before the clock starts. Then: lateness of a 1 s flow, and what
10,000 registered flows cost while none is due.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import idle
import lateness
import redis
import report
from engine import SIZES, TINY, Engine, Place
from goals import Row, Verdict, judge
from others import FLOORS, PEERS
from shared import REPO, BenchError, private_redis, slug, url_of, version
from stations import OURS

from tradewind.errors import TradewindError

ENGINES = {slug(kind.name): kind for kind in [*FLOORS, *OURS, *PEERS]}
WATCHES = ("lateness", "idle")
RESULTS = REPO / "bench" / "results"
NOTES = RESULTS / "flows-notes.md"
FAULTS = (BenchError, TradewindError, OSError, subprocess.SubprocessError, redis.RedisError, TimeoutError)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def warm_up(engine: Engine, kind: str, n: int) -> float:
    """Caches, connections and lazy imports; a smaller fan and fewer flows keep it short. Seconds of the preparation."""
    if kind != "chain":
        return engine.ask(kind, max(n // 20, 2)).prepared
    times = 5 if engine.runs.chain >= 10 else 1  # each worker process shall have had a turn
    return max(engine.ask(kind, n).prepared for _ in range(times))


def one_pass(engine: Engine, row: Row, options: argparse.Namespace, is_first: bool) -> None:
    engine.begin()
    for kind in engine.kinds:
        if kind in engine.once and not is_first:
            continue
        n = engine.size(kind, options.sizes)
        prepared = warm_up(engine, kind, n)
        runs = [engine.ask(kind, n) for _ in range(1 if options.quick else getattr(engine.runs, kind))]
        row.runs += runs
        row.prepared.setdefault(kind, []).append(max(prepared, *(run.prepared for run in runs)))


def measure_all(pairs: list[tuple[Engine, Row]], options: argparse.Namespace) -> list[str]:
    """Fills the rows; returns what went wrong. Passes are outermost, so that a slow spell hits all alike."""
    failures = []
    for number in range(options.repeats):
        for engine, row in pairs:
            began, had = time.monotonic(), len(row.runs)
            try:
                one_pass(engine, row, options, number == 0)
            except FAULTS as error:
                failures.append(f"pass {number + 1}, {row.name}: {error}".replace(f"{REPO}/", ""))
                say(f"  {failures[-1]}")
            finally:
                engine.stop()
            runs = row.runs[had:]
            found = ", ".join(f"{kind} {min(r.seconds for r in runs if r.kind == kind):.3g} s" for kind in engine.kinds
                              if any(r.kind == kind for r in runs))  # fmt: skip
            say(f"pass {number + 1} of {options.repeats}, {row.name}: {time.monotonic() - began:.0f} s ({found})")
    return failures


def watch(name: str, folder: Path, options: argparse.Namespace, failures: list[str]) -> Any:
    """The measurement of that name, None when it failed or is not wanted."""
    if options.only and name not in options.only:
        return None
    began, is_quick = time.monotonic(), options.quick
    try:
        if name == "lateness":
            return lateness.measure(folder, 3 if is_quick else 120)
        if is_quick:
            return idle.measure(folder, 50, 2, 1)
        return idle.measure(folder, 10_000)
    except FAULTS as error:
        failures.append(f"{name}: {error}")
        say(f"  {failures[-1]}")
        return None
    finally:
        say(f"{name}: {time.monotonic() - began:.0f} s")


def about(client: redis.Redis, options: argparse.Namespace) -> str:
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores; Python {platform.python_version()}; "
        f"redis-server {version(client)}, AOF off; {options.repeats} pass(es) over all engines; median (least … most) "
        "of the runs in warm processes. Graphs are built and flows registered before the clock starts; every run "
        "checks its result. Tradewind's end is seen by one ZCARD of the set of running cycles every millisecond, from "
        "the process that started them. Temporal is left out: its development server is downloaded when it is run. "
        "What is compared and what is not: `bench/README.md`."
    )


def plain(value: Any) -> Any:
    """The same with null for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*ENGINES, *WATCHES]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=f"of: {', '.join(names)}")
    parser.add_argument("--repeats", type=int, default=2, help="passes over all engines")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: one pass, tiny sizes; its figures mean nothing"
    )
    parser.add_argument("--venvs", type=Path, default=REPO / ".bench-venvs", help="made by bench/flows/setup_peers.sh")
    parser.add_argument("--markdown", type=Path, help="default, for a full run: bench/results/flows.md")
    parser.add_argument("--json", type=Path, help="default, for a full run: bench/results/flows.json")
    options = parser.parse_args()
    options.sizes = SIZES
    if options.quick:
        options.repeats, options.sizes = 1, TINY
    elif not options.only:  # a part or a smoke run must not replace the record
        options.markdown = options.markdown or RESULTS / "flows.md"
        options.json = options.json or RESULTS / "flows.json"
    return options


def chosen(place: Place, options: argparse.Namespace) -> list[tuple[Engine, Row]]:
    """Engines with their empty rows; one whose environment is missing is left out."""
    pairs = []
    for name, kind in ENGINES.items():
        if options.only and name not in options.only:
            continue
        engine = kind(place)
        if not engine.python.exists():
            say(f"{kind.name} is left out: no interpreter at {engine.python}; see bench/flows/setup_peers.sh")
            continue
        pairs.append((engine, Row(kind.name, kind.note, kind.keeps, engine.versions(), kind.is_ours)))
    return pairs


def write(rows: list[Row], verdicts: list[Verdict], late: Any, cost: Any, head: str, failures: list[str],
          options: argparse.Namespace) -> None:  # fmt: skip
    sizes = options.sizes
    notes = NOTES.read_text().strip() if NOTES.exists() and not options.quick else ""
    parts = ["# Flow engines, side by side", head]
    if options.quick:
        parts.append("**A smoke run with tiny sizes: its figures mean nothing.**")
    parts += ["## Targets", report.verdict_table(verdicts)] if verdicts else []
    parts += ["## What explains it", notes] if notes else []
    if rows:
        parts += ["## All engines", report.engine_table(rows, sizes.chain, sizes.fan, sizes.flows)]
    if ours := [row for row in rows if row.is_ours]:
        parts += ["Outside the clock, Tradewind:", report.extra_table(ours)]
    parts += ["## Lateness", report.late_text(late)] if late else []
    parts += ["## Idle cost", report.idle_text(cost)] if cost else []
    if versions := dict.fromkeys(row.versions for row in rows if row.versions):
        parts.append("Versions: " + "; ".join(versions) + ".")
    if failures:
        parts.append("Went wrong: " + "; ".join(failures))
    text = "\n\n".join(parts) + "\n"
    print(text)
    everything = {
        "about": head,
        "rows": [asdict(row) for row in rows],
        "verdicts": [{**asdict(v), "is_reached": v.is_reached} for v in verdicts],
        "lateness": asdict(late) if late else None,
        "idle": {**asdict(cost), "cost": cost.cost} if cost else None,
        "failures": failures,
    }
    for path, content in ((options.markdown, text), (options.json, json.dumps(plain(everything), indent=1) + "\n")):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def main() -> int:
    options = parse()
    if shutil.which("redis-server") is None:
        say("redis-server is not on PATH; install it (Debian: apt install redis-server)")
        return 2
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tw-bench-", ignore_cleanup_errors=True)))
        client = stack.enter_context(private_redis())
        pairs = chosen(Place(folder, url_of(client), client, options.venvs.absolute()), options)
        failures = measure_all(pairs, options)
        late, cost = (watch(name, folder, options, failures) for name in WATCHES)
        head = about(client, options)
    rows = [row for _, row in pairs]
    verdicts = judge(rows, options.sizes.fan, options.sizes.flows, late, cost)
    write(rows, verdicts, late, cost, head, failures, options)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
