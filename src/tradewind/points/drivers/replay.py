"""A recorded table as a source of values: a CSV with a column `time` and one column per point."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tradewind.clock import from_iso
from tradewind.documents import bounded_lines, open_file
from tradewind.errors import Invalid, Problem
from tradewind.numerals import read_number

MAX_ROWS = 2_000_000


@dataclass(frozen=True, slots=True)
class Replay:
    """`times` in seconds from the first row, rising; `columns`: values by heading, None where the cell is empty."""

    times: list[float]
    columns: dict[str, list[float | None]]

    def at(self, seconds: float, *, is_loop: bool) -> int:
        """The row that holds so long after the start: the last one that is not later. A loop begins again one step
        after its last row, the step being that before it."""
        last = self.times[-1]
        if is_loop and last > 0:
            seconds %= last + (last - self.times[-2])
        return max(0, bisect_right(self.times, seconds) - 1)


def read_replay(path: Path) -> Replay:
    """Times are seconds or ISO dates. An empty cell means that the value before it goes on. Raises Invalid with every
    bad line (the first 100)."""
    problems: list[Problem] = []
    times: list[float] = []
    try:
        with open_file(path) as file:
            rows = csv.reader(_text(bounded_lines(file, str(path))))
            head = [name.strip() for name in next(rows, [])]
            if "time" not in head:
                hint = f"the first line of {path} must name a column time"
                raise Invalid(f"{path} is no table to replay", code="bad_replay", hint=hint)
            clock = head.index("time")
            cells: list[list[float | None]] = [[] for _ in head]
            for line, row in enumerate(rows, 2):
                if not any(row):
                    continue
                if len(problems) >= 100 or len(times) >= MAX_ROWS:
                    break
                _take(row, line, clock, times, cells, problems)
    except (UnicodeDecodeError, csv.Error) as error:
        raise Invalid(f"cannot read {path}: {error}", code="bad_replay", hint="name a CSV file in UTF-8") from error
    if not times and not problems:
        problems.append(Problem("empty", str(path), "there is no line of values"))
    if problems:
        raise Invalid(f"{path} cannot be replayed", code="bad_replay", hint=problems[0].hint, problems=problems)
    first = times[0]
    columns = {name: column for name, column in zip(head, cells, strict=True) if name != "time"}
    return Replay([time - first for time in times], columns)


def _text(lines: Iterator[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8")


def _take(
    row: list[str], line: int, clock: int, times: list[float], cells: list[list[float | None]], problems: list[Problem]
) -> None:
    try:
        time = _seconds(row[clock].strip())
        if times and time <= times[-1]:
            raise ValueError("time does not rise")
        values = [read_number(cell.strip()) if cell.strip() and at != clock else None for at, cell in enumerate(row)]
        if len(values) > len(cells):
            raise ValueError("more cells than headings")
    except (ValueError, IndexError) as error:
        problems.append(Problem("bad_row", f"line {line}", f"line {line}: {error}"))
        return
    times.append(time)
    for at, column in enumerate(cells):
        given = values[at] if at < len(values) else None
        column.append(given if given is not None or not column else column[-1])


def _seconds(text: str) -> float:
    try:
        return read_number(text)
    except ValueError:
        return from_iso(text) / 1000
