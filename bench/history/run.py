"""Measures history, one part after the other, and says which targets are reached.

    .venv/bin/python bench/history/run.py [--quick] [--only PART …]

Parts: the embedded sink, InfluxDB with its peers, end to end into both, trends. Each runs in a fresh process, with
servers of its own. The promise that nothing is lost is another program: soak.py.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import embedded
import endtoend
import goals
import influx
import report
import trend
from common import REPO, say

RESULTS = REPO / "bench" / "results"
NOTES = RESULTS / "history-notes.md"
PACKAGES = ("tradewind", "redis", "hiredis", "uvloop", "msgspec", "numpy", "httpx2")


class Part(NamedTuple):
    """How a part is measured, judged, and shown."""

    title: str
    measure: Callable[..., Any]
    options: dict[str, Any]
    judge: Callable[[Any], list[goals.Verdict]]
    text: Callable[[Any], str]


PARTS = {
    "embedded": Part("Embedded sink", embedded.measure, {}, goals.of_embedded, report.embedded_text),
    "influx": Part("InfluxDB", influx.measure, {}, goals.of_influx, report.influx_text),
    "end": Part("End to end, embedded sink", endtoend.measure, {}, goals.of_end, report.end_text),
    "end-influx": Part("End to end, InfluxDB", endtoend.measure, {"is_influx": True}, goals.of_end, report.end_text),
    "trend": Part("Trends", trend.measure, {}, goals.of_trend, report.trend_text),
}


def measure_all(names: list[str], is_quick: bool) -> tuple[dict[str, Any], list[str]]:
    """Figures by part, and what went wrong."""
    found: dict[str, Any] = {}
    failures = []
    for at, name in enumerate(names, 1):
        part, began = PARTS[name], time.monotonic()
        say(f"{at} of {len(names)}, {name} …")
        try:
            # In a process of its own: what one part leaves in memory must not slow the next one down.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[name] = pool.submit(part.measure, is_quick=is_quick, **part.options).result()
        except Exception as error:  # noqa: BLE001 - the other parts are worth having
            failures.append(f"{name}: {type(error).__name__}: {error}".replace(f"{REPO}/", ""))
            say(f"  {failures[-1]}")
            continue
        say(f"  {time.monotonic() - began:.0f} s")
        for verdict in part.judge(found[name]):
            word = "reached    " if verdict.is_reached else "NOT reached"
            say(f"  {word} {verdict.words}: {report.digits(verdict.value)} {verdict.unit}")
    return found, failures


def about() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores; Python {platform.python_version()}; "
        f"{versions}, SQLite {sqlite3.sqlite_version}. Servers on TCP of the same machine; Redis keeps nothing on "
        "disk, the sinks do. Medians over the passes. What is compared and what is not: `bench/README.md`."
    )


def plain(value: Any) -> Any:
    """The same with null for what JSON does not have."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="PART", choices=list(PARTS), help=f"of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a smoke run: small sizes; its figures mean little")
    parser.add_argument("--markdown", type=Path, help="default, for a full run: bench/results/history.md")
    parser.add_argument("--json", type=Path, help="default, for a full run: bench/results/history.json")
    options = parser.parse_args()
    if not options.quick and not options.only:  # a part or a smoke run must not replace the record
        options.markdown = options.markdown or RESULTS / "history.md"
        options.json = options.json or RESULTS / "history.json"
    return options


def write(found: dict[str, Any], failures: list[str], options: argparse.Namespace) -> None:
    head = about()
    verdicts = [verdict for name, figures in found.items() for verdict in PARTS[name].judge(figures)]
    notes = NOTES.read_text().strip() if NOTES.exists() and not options.quick else ""
    parts = ["# History", head]
    if options.quick:
        parts.append("**A smoke run with small sizes: its figures mean little.**")
    parts += ["## Targets", report.verdict_table(verdicts)] if verdicts else []
    parts += ["## What explains it", notes] if notes else []
    for name, figures in found.items():
        parts += [f"## {PARTS[name].title}", PARTS[name].text(figures)]
    if failures:
        parts.append("Went wrong: " + "; ".join(failures))
    text = "\n\n".join(parts) + "\n"
    print(text)
    everything = {
        "about": head,
        "verdicts": [{**asdict(v), "ratio": v.ratio, "is_reached": v.is_reached} for v in verdicts],
        "figures": {name: asdict(figures) for name, figures in found.items()},
        "failures": failures,
    }
    for path, content in ((options.markdown, text), (options.json, json.dumps(plain(everything), indent=1) + "\n")):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def main() -> int:
    options = parse()
    names = [name for name in PARTS if not options.only or name in options.only]
    for program, package in (("redis-server", "redis-server"), ("influxd", "influxdb")):
        if shutil.which(program) is None:
            say(f"{program} is not on PATH; install it (Debian: apt install {package})")
            return 2
    found, failures = measure_all(names, options.quick)
    write(found, failures, options)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
