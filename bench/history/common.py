"""What the parts of the history benchmark share: samples, pacing of work, and what the point benchmark already has."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "points"))  # of which only the names that are not here are found

from shared import REPO, cpu_s, number, percentile, quiet_logs, server_of, servers, table  # noqa: E402

from parts import say  # noqa: E402
from tradewind.history.sample import Row  # noqa: E402

__all__ = [
    "HERE", "REPO", "Samples", "cpu_s", "number", "passes", "percentile", "quiet_logs", "say", "server_of", "servers",
    "table",
]  # fmt: skip

_row: Callable[[Any], Row] = partial(tuple.__new__, Row)
#: Different sets of values; after these they repeat.
SETS = 16


def passes(most: int, seconds: float) -> Iterator[int]:
    """0, 1, … Another one begins only if it is likely to end in that time, but for the first."""
    began = time.monotonic()
    for at in range(most):
        spent = time.monotonic() - began
        if at and spent + spent / at > seconds:
            say(f"  stopped after {at} of {most} passes: {spent:.0f} s")
            return
        yield at
        say(f"  pass {at + 1} of {most}: {time.monotonic() - began - spent:.0f} s")


class Samples:
    """Rows of `series` points that all change every `step_ms`, from `start_ms` on. Values have two decimals."""

    def __init__(self, series: int, start_ms: int, step_ms: int) -> None:
        chance = random.Random(1)
        self.addresses = [f"comsrv:{1001 + at // 1000}:m:{10_001 + at % 1000}" for at in range(series)]
        self.start_ms, self.step_ms = start_ms, step_ms
        self._values = [[round(chance.uniform(-1000, 1000), 2) for _ in range(series)] for _ in range(SETS)]

    def rows(self, step: int, steps: int = 1) -> list[Row]:
        """About 0.1 µs each."""
        made: list[Row] = []
        for at in range(step, step + steps):
            values = self._values[at % SETS]
            made += map(_row, zip(self.addresses, repeat(self.time_of(at)), values, repeat(0)))
        return made

    def values(self, step: int) -> Sequence[float]:
        return self._values[step % SETS]

    def time_of(self, step: int) -> int:
        return self.start_ms + step * self.step_ms
