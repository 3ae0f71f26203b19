"""Back-tests: samples a second over recorded series, vectorised and sample by sample, and reading a CSV.

.venv/bin/python bench/rules/backtests.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

import numpy as np
from shared import Rate

from tradewind.clock import iso
from tradewind.rules.backtest import Series, backtest
from tradewind.rules.backtest_csv import read_csv
from tradewind.rules.spec import Compare, CreateAlarm, Range, Rule, Window

A, B = "comsrv:1:m:1", "comsrv:1:m:2"
ALARM = (CreateAlarm("High", "high"),)
#: Vectorised ones are those that the promise is about.
CASES = {
    "comparison": Rule("r", conditions=(Compare(A, ">", 75.0),), actions=ALARM),
    "comparison with hysteresis, for, off-delay, cool-down": Rule(
        "r", conditions=(Compare(A, ">", 75.0, hysteresis=2.0),), for_ms=3000, off_delay_ms=2000, cooldown_ms=9000,
        actions=ALARM,
    ),
    "range": Rule("r", conditions=(Range(A, 20.0, 75.0, False),), actions=ALARM),
    "two sources": Rule("r", conditions=(Compare(A, ">", 75.0), Compare(B, "<", 50.0)), actions=ALARM),
    "average of a minute, sample by sample": Rule("r", conditions=(Window(A, "avg", 60_000, ">", 75.0),)),
}  # fmt: skip
SERIES = ("a slow wave with noise", "white noise")


@dataclass
class Case:
    name: str
    over: str
    is_vectorised: bool = False
    rises: int = 0
    rate: Rate = field(default_factory=Rate)


@dataclass(frozen=True, slots=True)
class BacktestFigures:
    samples: int
    cases: list[Case]
    csv: dict[str, Rate]


def series_of(name: str, count: int, seed: int) -> Series:
    chance, at = np.random.default_rng(seed), np.arange(count)
    noise = chance.normal(0, 1, count) if name == SERIES[0] else chance.uniform(0, 100, count)
    values = 50 + 40 * np.sin(at / 5000) + noise if name == SERIES[0] else noise
    return Series.of(1_700_000_000_000 + at * 1000, values)


def measure(*, is_quick: bool = False) -> BacktestFigures:
    count, passes = (50_000, 1) if is_quick else (1_000_000, 5)
    found = [Case(name, over) for over in SERIES for name in CASES]
    csv = {"CSV, ms and value": Rate(), "CSV, ISO time, address, value, quality": Rate()}
    for turn in range(passes):
        for case in found:
            rule = CASES[case.name]
            samples = {a: series_of(case.over, count, seed + turn) for seed, a in enumerate(rule.addresses)}
            if "sample by sample" in case.name:
                samples = {a: Series(s.ts_ms[: count // 10], s.values[: count // 10], s.is_known[: count // 10])
                           for a, s in samples.items()}  # fmt: skip
            began = time.perf_counter()
            report = backtest(rule, samples)
            case.rate.rates.append(report.samples / (time.perf_counter() - began))
            case.is_vectorised, case.rises = report.is_vectorised, report.rises
        rows = series_of(SERIES[0], count, turn)
        pairs = list(zip(rows.ts_ms.tolist(), rows.values.tolist(), strict=True))
        texts = (
            "ts,value\n" + "".join(f"{ms},{value:.3f}\n" for ms, value in pairs),
            "ts,address,value,quality\n" + "".join(f"{iso(ms)},{A},{value:.3f},good\n" for ms, value in pairs),
        )
        for rate, text in zip(csv.values(), texts, strict=True):
            began = time.perf_counter()
            read = read_csv(text, [A])
            rate.rates.append(read.rows / (time.perf_counter() - began))
            assert read.rows == count
    return BacktestFigures(count, found, csv)


def main() -> None:
    import goals
    import report

    import parts

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean little")
    found = measure(is_quick=parser.parse_args().quick)
    print(f"{parts.verdict_table(goals.of_backtests(found))}\n\n{report.backtest_text(found)}")


if __name__ == "__main__":
    main()
