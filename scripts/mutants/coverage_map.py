"""Records which test runs which line: coverage with one context per test, in the folder TRADEWIND_MUTANTS_MAP."""

from __future__ import annotations

import os
from pathlib import Path

import coverage

FOLDER = "TRADEWIND_MUTANTS_MAP"
TEST = "TRADEWIND_MUTANTS_TEST"


def folder() -> Path:
    return Path(os.environ[FOLDER])


def start(test: str | None = None) -> coverage.Coverage:
    """Measure this process; all of it in the name of `test` when one is given."""
    measured = coverage.Coverage(
        data_file=str(folder() / "data"), data_suffix=True, source_pkgs=["tradewind"], context=test, config_file=False
    )
    measured.set_option("run:sigterm", True)
    measured.set_option("run:disable_warnings", ["module-not-imported", "no-data-collected"])
    measured.start()
    return measured
