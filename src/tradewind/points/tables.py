"""CSV tables with one row per point: cells become typed values, every bad row is named and the others are read.

UTF-8 with or without a byte order mark, any line ends; the delimiter is a comma, a semicolon or a tab, whichever the
header has most of. Empty lines and lines that begin with `#` are skipped, as are columns that begin with `x-` or `#`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind.documents import list_folder, read_bytes
from tradewind.errors import Invalid, Problem
from tradewind.points.table_columns import IGNORED_COLUMNS, BadCell, Column, any_scalar
from tradewind.problems import closest

#: More lines than that in one cell are a quotation mark that somebody forgot.
MAX_CELL_LINES = 20
MAX_TABLE_BYTES = 512_000_000
_MAX_SEEN = 200
_NO_TEXT = re.compile("[\0\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class FileProblem(Problem):
    """`path` is `file:line:column`; the column is its name, and both may be absent (line 0)."""

    file: str
    line: int
    column: str


class Findings:
    """What is wrong with the files of a folder, in the order found."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, code: str, hint: str, file: str, line: int = 0, column: str = "") -> None:
        path = ":".join(part for part in (file, str(line) if line else "", column) if part)
        self.problems.append(FileProblem(code, path, hint, file, line, column))

    def listed(self, folder: Path, shown: str) -> list[Path]:
        """What is in a folder; when it cannot be listed, that is a problem and it counts as empty."""
        try:
            return list_folder(folder, shown=shown)
        except Invalid as error:
            self.problems.extend(error.problems)
            return []


@dataclass(slots=True)
class Table:
    """`rows` by point id: line and values by field. `left_out`: ids of rows with something wrong. `headers`: how the
    file spells a field."""

    name: str
    rows: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    headers: dict[str, str] = field(default_factory=dict)

    def leave_out(self, point_id: str) -> None:
        self.rows.pop(point_id, None)
        self.left_out.add(point_id)


def did_you_mean(word: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """`did you mean "scale"? `, or nothing."""
    close = closest(word.lower(), sorted(known), cutoff)
    return f'did you mean "{close}"? ' if close else ""


def read_table(
    file: Path, name: str, columns: Mapping[str, Column], findings: Findings, *, is_open: bool = False
) -> Table:
    """`name`: how problems call the file. `is_open`: columns that are not known are kept as they are."""
    table = Table(name)
    text = _read(file, name, findings)
    if text is None:
        return table
    lines = _Lines(text)
    is_dirty = _NO_TEXT.search(text) is not None
    cells: list[_Cell] = []
    for line, row in _rows(lines, name, findings):
        if cells:
            _take(table, cells, line, row, findings, is_dirty)
            continue
        cells = _header(table, row, line, columns, findings, is_open)
        lines.width = len(row)
        if "id" not in table.headers:
            hint = 'the first line names the columns and has "point_id"'
            findings.add("missing_column", hint, name, line, "point_id")
            return table
    if not cells:
        findings.add("empty_table", "the first line names the columns", name)
    return table


@dataclass(slots=True)
class _Cell:
    """What to do with a column. No parser: a misspelt one, whose rows are wrong when it says something.

    `seen`: what some cells of it have become; scales, units and types are the same in most rows.
    """

    header: str
    column: Column | None
    is_skipped: bool = False
    seen: dict[str, Any] = field(default_factory=dict)
    field: str = ""


def _header(
    table: Table, row: list[str], line: int, columns: Mapping[str, Column], findings: Findings, is_open: bool
) -> list[_Cell]:
    cells = []
    for position, raw in enumerate(row):
        header = raw.strip()
        word = header.lower()
        column = columns.get(word)
        if not word or word in IGNORED_COLUMNS or word.startswith(("x-", "#")):
            cells.append(_Cell(header, None, is_skipped=True))
            continue
        if column is None:
            guess = did_you_mean(word, columns, 0.85 if is_open else 0.6)
            if not guess and is_open:
                column = Column(header, any_scalar)
            else:
                rows = "rows that use it are left out" if guess else f"known: {', '.join(columns)}"
                findings.add("unknown_column", f"{guess}{rows}", table.name, line, header or str(position + 1))
                cells.append(_Cell(header, None, is_skipped=not guess))
                continue
        if column.field in table.headers:
            hint = f"{table.headers[column.field]} and {header} are the same column; keep one"
            findings.add("doubled_column", hint, table.name, line, header)
            cells.append(_Cell(header, None, is_skipped=True))
            continue
        table.headers[column.field] = header
        cells.append(_Cell(header, column, field=column.field))
    return cells


def _take(table: Table, cells: list[_Cell], line: int, row: list[str], findings: Findings, is_dirty: bool) -> None:
    values: dict[str, Any] = {}
    is_good = True
    for cell, raw in zip(cells, row, strict=False):
        if raw in cell.seen:
            values[cell.field] = cell.seen[raw]
            continue
        value = raw.strip()
        if not value or cell.is_skipped:
            continue
        if cell.column is None:  # misspelt, and named once already
            is_good = False
            continue
        try:
            made = values[cell.field] = cell.column.parse(value)
        except BadCell as error:
            findings.add(error.code, error.hint, table.name, line, cell.header)
            is_good = False
        else:
            if len(cell.seen) < _MAX_SEEN:
                cell.seen[raw] = made
    if any(raw.strip() for raw in row[len(cells) :]):
        hint = f"{len(row)} cells, but {len(cells)} columns; put text with a delimiter into quotation marks"
        findings.add("too_many_cells", hint, table.name, line)
        is_good = False
    if is_dirty and any(map(_NO_TEXT.search, row)):
        findings.add("bad_text", "not UTF-8 text; save the file as UTF-8", table.name, line)
        is_good = False
    point_id = values.get("id")
    if point_id is None:
        if is_good:
            findings.add("missing_id", "every row has a point id", table.name, line, table.headers["id"])
    elif point_id in table.rows:
        hint = f"{point_id} stands in line {table.rows[point_id][0]} already; this row is left out"
        findings.add("duplicate_id", hint, table.name, line, table.headers["id"])
    elif is_good:
        table.rows[point_id] = (line, values)
    else:
        table.left_out.add(point_id)


class _Lines:
    """Physical lines for the csv reader, never more than a few per row, so that a lost quotation mark costs one row."""

    def __init__(self, text: str) -> None:
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.position = 0
        self.limit = 0
        self.width = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.position >= self.limit:
            raise StopIteration
        line = self.lines[self.position]
        self.position += 1
        return f"{line}\n"


def _rows(lines: _Lines, name: str, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row that says something."""
    first = next((line for line in lines.lines if line.strip() and not line.startswith("#")), "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(lines, delimiter=delimiter)
    while lines.position < len(lines.lines):
        start = lines.position
        line = lines.lines[start]
        if not line or line.startswith("#") or not line.strip(f"{delimiter} \t"):
            lines.position += 1
            continue
        lines.limit = min(start + MAX_CELL_LINES, len(lines.lines))
        try:
            row = next(reader)
        except csv.Error:
            row = []
        # A file that ends inside quotation marks leaves the line end in the last cell.
        is_closed = bool(row) and not ('"' in line and row[-1].endswith("\n"))
        is_whole = is_closed and (lines.position == start + 1 or len(row) == lines.width)
        if is_whole:
            yield start + 1, row
        else:
            findings.add("bad_quotes", "a quotation mark is not closed; the row is left out", name, start + 1)
            lines.position = start + 1


def _read(file: Path, name: str, findings: Findings) -> str | None:
    try:
        data = read_bytes(file, max_bytes=MAX_TABLE_BYTES, shown=name)
    except Invalid as error:
        findings.problems.extend(error.problems)
        return None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        findings.add("bad_text", "this is UTF-16; save the file as UTF-8", name)
        return None
    # surrogateescape: only the rows with bytes that are not UTF-8 are lost
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
