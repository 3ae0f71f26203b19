"""Samples for a back-test from CSV: `ts,address,value[,quality]`, or `ts,value[,quality]` for a rule with one source.

The first line names the columns, in any order; others are ignored. `ts` in milliseconds or ISO, `quality` good,
uncertain, bad or stale (or 0 to 3; empty is good), an empty value is unknown. Every bad row is named.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from tradewind.clock import from_iso
from tradewind.errors import Invalid, Problem
from tradewind.numerals import NUMBER_CHARACTERS, read_number, read_whole
from tradewind.rules.backtest_series import MAX_TS_MS, Series
from tradewind.rules.verdict import BAD, GOOD, STALE, SUBSTITUTED, UNCERTAIN

#: Rows read at once, and how many bad ones are named at most.
PIECE = 50_000
MAX_PROBLEMS = 100
_WORDS = {"": GOOD, "good": GOOD, "uncertain": UNCERTAIN, "bad": BAD, "stale": STALE, "substituted": SUBSTITUTED}
_WORDS |= {str(word): word for word in (GOOD, UNCERTAIN, BAD, STALE, SUBSTITUTED)}
_HINTS = {
    "bad_time": "milliseconds since the epoch, or ISO such as 2024-01-01T10:00:00Z",
    "bad_value": "a finite number, or nothing where it is unknown",
    "bad_quality": "good, substituted, uncertain, bad or stale",
    "bad_row": "as many cells as the first line has",
}
Columns = list[Sequence[str]]


class CsvSamples(msgspec.Struct, frozen=True, eq=False):
    """`rows`: that the file has; `ignored`: those of sources that the rule does not read."""

    series: dict[str, Series]
    rows: int
    ignored: int


def read_csv(text: str | bytes, addresses: Sequence[str]) -> CsvSamples:
    """Rows may be in any order. Raises Invalid that names the line of every bad row (up to 1,000)."""
    try:
        found = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _refused([Problem("bad_encoding", "line 1", "write it as UTF-8")], 1) from error
    reading = _Reading(addresses)
    try:
        reading.run(csv.reader(io.StringIO(found, newline="")))
    except csv.Error as error:
        raise _refused([Problem("bad_csv", "file", str(error))], 1) from error
    if reading.bad:
        raise _refused(reading.problems, reading.bad)
    return CsvSamples(reading.series(), reading.rows, reading.ignored)


class _Reading:
    def __init__(self, addresses: Sequence[str]) -> None:
        self.rows = self.ignored = self.bad = 0
        self.problems: list[Problem] = []
        self._addresses = addresses
        self._places = {address: place for place, address in enumerate(addresses)}
        self._parts: list[tuple[Any, Any, Any, Any]] = []

    def run(self, lines: Any) -> None:
        """`lines`: a csv.reader."""
        names = [name.strip().lower() for name in next(lines, [])]
        self._check(names)
        while True:
            before = lines.line_num
            rows = list(islice(lines, PIECE))
            if not rows:
                return
            # A quoted cell may span lines; then, and with empty lines, each row says where it stands.
            is_plain = lines.line_num - before == len(rows) and all(rows)
            numbers: Sequence[int] = range(before + 1, before + 1 + len(rows))
            if not is_plain:
                numbers = list(_line_numbers(rows, before + 1))
                kept = [(number, row) for number, row in zip(numbers, rows, strict=True) if row]
                numbers, rows = [number for number, _ in kept], [row for _, row in kept]
            self.rows += len(rows)
            self._take(names, numbers, rows)

    def series(self) -> dict[str, Series]:
        if not self._parts:
            return {}
        places, times, values, words = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        found: dict[str, Series] = {}
        for address, place in self._places.items():
            at = places == place
            if at.all():
                return {address: Series.of(times, values, words)}
            if at.any():
                found[address] = Series.of(times[at], values[at], words[at])
        return found

    def _check(self, names: list[str]) -> None:
        problems = [
            Problem("no_column", "line 1", f"the first line names the columns: `{wanted}` is missing")
            for wanted in ("ts", "value")
            if wanted not in names
        ]
        known = [name for name in names if name in ("ts", "address", "value", "quality")]
        if len(set(known)) < len(known):
            problems.append(Problem("column_twice", "line 1", "name each column once"))
        if "address" not in names and len(self._addresses) != 1:
            hint = f"the rule reads {len(self._addresses)} sources: add a column `address`"
            problems.append(Problem("no_column", "line 1", hint))
        if problems:
            raise _refused(problems, len(problems))

    def _take(self, names: list[str], numbers: Sequence[int], rows: list[list[str]]) -> None:
        width = len(names)
        if any(len(row) != width for row in rows):
            for number, row in zip(numbers, rows, strict=True):
                if len(row) != width:
                    self._say("bad_row", number)
            kept = [(number, row) for number, row in zip(numbers, rows, strict=True) if len(row) == width]
            numbers, rows = [number for number, _ in kept], [row for _, row in kept]
        if not rows:
            return
        column = dict(zip(names, zip(*rows, strict=True), strict=True))
        places = np.zeros(len(rows), np.int64)
        if "address" in column:
            find = self._places.get
            places = np.array([find(address.strip(), -1) for address in column["address"]], np.int64)
            if (places < 0).any():
                own = np.flatnonzero(places >= 0).tolist()
                self.ignored += len(rows) - len(own)
                numbers = [numbers[at] for at in own]
                column = {name: tuple(cells[at] for at in own) for name, cells in column.items()}
                places = places[own]
        times = self._each(_times, _time, "bad_time", column["ts"], numbers)
        values = self._each(_values, _value, "bad_value", column["value"], numbers)
        words: Any = np.zeros(len(places), np.uint8)
        if "quality" in column:
            words = self._each(_words, _word, "bad_quality", column["quality"], numbers)
        if not self.bad:
            self._parts.append((places, times, values, words))

    def _each(
        self,
        fast: Callable[[Sequence[str]], Any],
        slow: Callable[[str], Any],
        code: str,
        cells: Sequence[str],
        numbers: Sequence[int],
    ) -> Any:
        """All at once; when that fails, one by one, to name those that are bad."""
        try:
            return fast(cells)
        except (ValueError, KeyError, OverflowError):
            found = []
        for number, cell in zip(numbers, cells, strict=True):
            try:
                found.append(slow(cell))
            except (ValueError, KeyError, OverflowError):
                self._say(code, number, cell)
        return np.array(found)

    def _say(self, code: str, line: int, cell: str | None = None) -> None:
        self.bad += 1
        if len(self.problems) < MAX_PROBLEMS:
            given = "" if cell is None else f"{cell[:60]!r}: "
            self.problems.append(Problem(code, f"line {line}", f"{given}{_HINTS[code]}"))


def _line_numbers(rows: Iterable[list[str]], first: int) -> Iterator[int]:
    """Where each row begins: one further for each line break in a quoted cell before it."""
    for row in rows:
        yield first
        first += 1 + sum(cell.count("\n") for cell in row)


def _times(cells: Sequence[str]) -> Any:
    found = _iso_times(cells)
    if found is None:
        try:
            found = np.array(list(map(int, cells)), np.int64)
        except ValueError:
            found = np.array(list(map(_time, cells)), np.int64)
    if len(found) and (found.min() < 0 or found.max() > MAX_TS_MS):
        raise ValueError
    return found


def _iso_times(cells: Sequence[str]) -> Any:
    """All at once if each is written as 2024-01-01T10:00:00Z, or each with three decimals; else None. Raises
    ValueError."""
    if not cells or len(cells[0]) not in (20, 24):
        return None
    texts, shape = np.array(cells), "0000-00-00T00:00:00.000Z" if len(cells[0]) == 24 else "0000-00-00T00:00:00Z"
    if texts.dtype != np.dtype(f"<U{len(shape)}"):
        return None
    letters = texts.view(np.uint32).reshape(len(texts), len(shape))
    for at, wanted in enumerate(shape):
        column = letters[:, at]
        is_good = (column >= ord("0")) & (column <= ord("9")) if wanted == "0" else column == ord(wanted)
        if not is_good.all():
            return None
    return texts.astype(f"<U{len(shape) - 1}").astype("datetime64[ms]").astype(np.int64)


def _time(cell: str) -> int:
    try:
        found = read_whole(cell.strip())
    except ValueError:
        found = from_iso(cell.strip())
    if not 0 <= found <= MAX_TS_MS:
        raise ValueError
    return found


def _values(cells: Sequence[str]) -> Any:
    try:
        if not NUMBER_CHARACTERS.issuperset("".join(cells)):
            raise ValueError
        found = np.array(list(map(float, cells)), np.float64)
    except ValueError:
        found = np.array(list(map(_value, cells)), np.float64)
    if np.isinf(found).any():
        raise ValueError
    return found


def _value(cell: str) -> float:
    word = cell.strip()
    return read_number(word) if word and word.lower() != "nan" else float("nan")  # the word for unknown


def _words(cells: Sequence[str]) -> Any:
    return np.array(list(map(_word, cells)), np.uint8)


def _word(cell: str) -> int:
    return _WORDS[cell.strip().lower()]


def _refused(problems: Sequence[Problem], count: int) -> Invalid:
    more = f"; the first {len(problems)} are named" if count > len(problems) else ""
    first = problems[0]
    message = f"the CSV cannot be used: {count} problem{'s' if count > 1 else ''}{more}"
    return Invalid(message, code="bad_csv", hint=f"{first.path}: {first.hint}", problems=problems)
