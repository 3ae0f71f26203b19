"""Picks the tests that can notice a mutation: those that run its line, the quickest and nearest first."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import coverage

from mutants.sites import Mutation

DEFAULT_S = 1.0
LOOK_BACK = 15


class CoverageMap:
    """What `make mutants-map` recorded: tests by line of a file, and seconds by test."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._parts = [coverage.CoverageData(basename=str(file)) for file in sorted(folder.glob("*/combined"))]
        for part in self._parts:
            part.read()
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        for file in folder.glob("*/durations-*.jsonl"):
            for line in file.read_text().splitlines():
                test, seconds, outcome = json.loads(line)
                self.seconds[test] = seconds
                if outcome == "failed":
                    self.failed.add(test)
        self.tests_of = cache(self.tests_of)  # type: ignore[method-assign]
        self._lines_of = cache(self._lines_of)  # type: ignore[method-assign]

    def _lines_of(self, file: str) -> dict[int, list[str]]:
        found: defaultdict[int, list[str]] = defaultdict(list)
        for part in self._parts:
            for name in part.measured_files():
                if name.endswith(f"/{file}"):
                    for line, tests in part.contexts_by_lineno(name).items():
                        found[line] += tests
        return found

    def tests_of(self, file: str, line: int | None) -> frozenset[str]:
        """Tests that run the statement at `line`, or any line of the file; without those of broken runs."""
        lines = self._lines_of(file)
        chosen: set[str] = set()
        if line is not None:
            for near in range(line, max(0, line - LOOK_BACK), -1):
                chosen = {test for test in lines.get(near, ()) if test}
                if chosen:
                    break
        if not chosen:
            chosen = {test for tests in lines.values() for test in tests if test}
        return frozenset(test for test in chosen if test in self.seconds and test not in self.failed)

    def tests_for(self, mutation: Mutation) -> list[str]:
        """The tests that can notice it, in the order in which to try them."""
        if mutation.file.endswith(".lua"):
            tests = frozenset().union(*(self.tests_of(*place) for place in script_calls(self._root, mutation.file)))
            named = {str(path.relative_to(self._root)) for path in tests_that_name(self._root, mutation.file)}
            tests |= {test for test in self.seconds if test.partition("::")[0] in named and test not in self.failed}
        else:
            tests = self.tests_of(mutation.file, mutation.line)
        return sorted(tests, key=lambda test: (self._cost(test, mutation.file), test))

    def _cost(self, test: str, file: str) -> float:
        """Seconds, made dearer where the test is far from the code or starts more servers."""
        cost = self.seconds.get(test, DEFAULT_S) + 0.05
        room = file.split("/")[2].removesuffix(".py")
        if f"tests/{room}/" not in test:
            cost *= 4
        if Path(file).stem not in test:
            cost *= 2
        if re.search(r"cluster|valkey|postgres|influx|rabbit|amqp|web/", test):
            cost = cost * 2 + 3
        return cost

    def within(self, tests: Iterable[str], budget_s: float, most: int) -> list[str]:
        """The first ones that take `budget_s` together; at least one."""
        chosen: list[str] = []
        for test in tests:
            budget_s -= self.seconds.get(test, DEFAULT_S)
            if chosen and (budget_s < 0 or len(chosen) == most):
                break
            chosen.append(test)
        return chosen


def _quoted(root: Path, file: str) -> re.Pattern[str]:
    """The name of a script, or of one of those that include it, in quotes."""
    room, name = file.split("/")[2], Path(file).stem
    names = {name}
    for script in root.glob("src/tradewind/*/lua/*.lua"):
        if re.search(rf"^-- include: (?:{room}/)?{name}$", script.read_text(), re.M):
            names.add(script.stem)
    return re.compile(rf"[\"'](?:{'|'.join(sorted(names))})[\"']")


@cache
def tests_that_name(root: Path, file: str) -> tuple[Path, ...]:
    """Files of tests that run the script by themselves."""
    pattern = _quoted(root, file)
    return tuple(path for path in sorted(root.glob("tests/**/test_*.py")) if pattern.search(path.read_text()))


@cache
def script_calls(root: Path, file: str) -> tuple[tuple[str, int | None], ...]:
    """Places in Python that name the script, or one of the scripts that include it."""
    pattern = _quoted(root, file)
    return tuple(
        (str(path.relative_to(root)), number)
        for path in sorted(root.glob("src/tradewind/**/*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    )
