"""How fast a trend is answered by the embedded sink: a day and 30 days of series with a sample a second.

    .venv/bin/python bench/history/trend.py [--quick]

The questions go the way of the REST API (`HistoryQuery.ask`), mean, min and max, up to the JSON of the answer. The
series are asked in turn. The last hours lie in files that are still written to, the others are packed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop
from common import Samples, percentile, quiet_logs

from tradewind.clock import now_ms
from tradewind.history.query import HistoryQuery
from tradewind.history.question import Limits, Words
from tradewind.history.sqlite import SqliteSink
from tradewind.history.sqlite_upkeep import BUDGET_S

DAY_MS = 86_400_000
AGGS = ("mean", "min", "max")
STEPS = 2000


@dataclass(frozen=True, slots=True)
class Kind:
    """A question: so many days, in buckets as a caller writes them."""

    name: str
    days: int
    bucket: str
    limit_ms: float


KINDS = (
    Kind("one day, 86,400 samples, 1,000 buckets (from samples)", 1, "86400ms", 30),
    Kind("one day, bucket=auto", 1, "auto", 30),
    Kind("30 days, bucket=43m (1,005 buckets, from rollups of minutes)", 30, "43m", 60),
    Kind("30 days, bucket=auto", 30, "auto", 60),
)


@dataclass(frozen=True, slots=True)
class Asked:
    kind: Kind
    buckets: int
    p50_ms: float
    p99_ms: float
    first_ms: float


@dataclass(frozen=True, slots=True)
class TrendFigures:
    series: int
    days: int
    bytes_each: float
    asked: list[Asked]


async def fill(folder: Path, samples: Samples, steps: int) -> float:
    """Bytes a sample when all upkeep is done."""
    async with SqliteSink(folder) as sink:
        for step in range(0, steps, STEPS):
            await sink.write(samples.rows(step, min(STEPS, steps - step)))
        await sink.keep_up()
        took = BUDGET_S
        while took >= BUDGET_S:  # or there was no more to do
            began = time.monotonic()
            await sink.retain(now_ms())
            took = time.monotonic() - began
        await sink.write(samples.rows(steps, 5))  # some lie in the tail, as always
        stats = await sink.stats()
        if stats.rows != (steps + 5) * len(samples.addresses):
            raise RuntimeError(f"{stats.rows} samples in the sink, {(steps + 5) * len(samples.addresses)} were written")
        return stats.bytes / stats.rows


async def ask(folder: Path, kind: Kind, addresses: Sequence[str], to_ms: int, count: int) -> Asked:
    async def no_units(series: Sequence[str]) -> dict[str, str]:
        return {}

    took, buckets = [], 0
    async with SqliteSink(folder) as sink:
        query = HistoryQuery(sink, no_units, Limits())
        for at in range(count + 1):
            name = addresses[at % len(addresses)]
            began = time.perf_counter()
            words = Words([name], to_ms - kind.days * DAY_MS, to_ms, kind.bucket, AGGS)
            _, answers = await query.ask(words)
            msgspec.json.encode(answers)
            took.append((time.perf_counter() - began) * 1000)
            buckets = len(answers[0].samples)
    return Asked(kind, buckets, percentile(took[1:], 0.5), percentile(took[1:], 0.99), took[0])


async def run(folder: Path, series: int, days: int, count: int) -> TrendFigures:
    to_ms = now_ms() // 1000 * 1000
    start_ms = to_ms - days * DAY_MS
    samples = Samples(series, start_ms, 1000)
    size = await fill(folder, samples, (to_ms - start_ms) // 1000 - 5)
    asked = [await ask(folder, kind, samples.addresses, to_ms, count) for kind in KINDS if kind.days <= days]
    return TrendFigures(series, days, size, asked)


def measure(*, is_quick: bool = False) -> TrendFigures:
    quiet_logs()
    with tempfile.TemporaryDirectory(prefix="tw-bench-") as folder:
        return uvloop.run(run(Path(folder) / "history", *((1, 30, 40) if is_quick else (3, 31, 100))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    options = parser.parse_args()
    import goals
    import report

    import parts

    found = measure(is_quick=options.quick)
    print(f"{parts.verdict_table(goals.of_trend(found))}\n\n{report.trend_text(found)}")


if __name__ == "__main__":
    main()
