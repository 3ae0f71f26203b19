"""How fast the embedded sink takes samples, over a midnight, with all of its upkeep.

    .venv/bin/python bench/history/embedded.py [--quick]

1,000 series, a sample each every 10 s. The clock runs until everything lies in the files of its days and the rollups
of all hours that are over are made. Every write is on the disk (fsync) when it returns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from common import Samples, passes, percentile, quiet_logs

from tradewind.clock import now_ms
from tradewind.history.sqlite import SqliteSink

SERIES = 1000
STEP_MS = 10_000
DAY_MS = 86_400_000
#: Of the first day: the last of the 5,000,000 samples are of the next one.
START_MS = 16 * 3_600_000
BATCHES = (1000, 5000, 20_000)
#: What all passes together may take.
SECONDS = 110


@dataclass
class Size:
    """One size of batches; a figure per pass. `write_*`: milliseconds of a call."""

    batch: int
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    write_p50_ms: list[float] = field(default_factory=list)
    write_p99_ms: list[float] = field(default_factory=list)
    bytes_each: list[float] = field(default_factory=list)
    files: int = 0

    @property
    def rate(self) -> float:
        """Samples a second."""
        return statistics.median(self.rates)


@dataclass(frozen=True, slots=True)
class EmbeddedFigures:
    samples: int
    sizes: list[Size]


async def one_pass(size: Size, count: int, folder: Path) -> None:
    samples = Samples(SERIES, (now_ms() // DAY_MS - 10) * DAY_MS + START_MS, STEP_MS)
    steps = size.batch // SERIES
    took = []
    async with SqliteSink(folder) as sink:
        began, cpu = time.perf_counter(), time.process_time()
        for step in range(0, count // SERIES, steps):
            rows = samples.rows(step, steps)
            at = time.perf_counter()
            await sink.write(rows)
            took.append((time.perf_counter() - at) * 1000)
        await sink.keep_up()
        size.rates.append(count / (time.perf_counter() - began))
        size.cpu_us.append(1e6 * (time.process_time() - cpu) / count)
        stats = await sink.stats()
        if stats.rows != count:
            raise RuntimeError(f"{stats.rows} samples in the sink, {count} were written")
        size.bytes_each.append(stats.bytes / count)
    size.write_p50_ms.append(percentile(took, 0.5))
    size.write_p99_ms.append(percentile(took, 0.99))


def measure(*, is_quick: bool = False) -> EmbeddedFigures:
    quiet_logs()
    most, count = (1, 1_000_000) if is_quick else (3, 5_000_000)
    sizes = [Size(batch) for batch in BATCHES]
    for _ in passes(most, SECONDS):
        for size in sizes:
            with tempfile.TemporaryDirectory(prefix="tw-bench-") as folder:
                uvloop.run(one_pass(size, count, Path(folder) / "history"))
                size.files = len(list(Path(folder).glob("history/raw-*.db")))
    return EmbeddedFigures(count, sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    options = parser.parse_args()
    import goals
    import report

    import parts

    found = measure(is_quick=options.quick)
    print(f"{parts.verdict_table(goals.of_embedded(found))}\n\n{report.embedded_text(found)}")


if __name__ == "__main__":
    main()
