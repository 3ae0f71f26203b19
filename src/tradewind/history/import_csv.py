"""Samples out of a CSV text, line by line: `ts,address,value[,quality]`, or wide, a column for each address. No I/O.

Takes what an export gives, also with semicolons or tabs; lines that begin with # are comments. Every bad row is named
with its line; what is done about it is for the caller.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from tradewind.clock import from_iso
from tradewind.errors import Invalid, Problem
from tradewind.history.sample import BAD, GOOD, SUBSTITUTED, UNCERTAIN, Row, is_series, refusal
from tradewind.history.times import SECONDS, SECONDS_HINT
from tradewind.numerals import read_number

_NAMES = {"ts": "ts", "time": "ts", "timestamp": "ts", "address": "address", "series": "address"}
_NAMES |= {"value": "value", "quality": "quality"}
_QUALITY = {"": GOOD, "0": GOOD, "good": GOOD, "1": UNCERTAIN, "uncertain": UNCERTAIN, "2": BAD, "bad": BAD}
_QUALITY |= {"4": SUBSTITUTED, "substituted": SUBSTITUTED}
_REASONS = {
    "not_finite": "the value is not finite: give a number",
    "not_a_number": "the value is too large",
    "bad_time": "the time lies before 1970 or after 2262",
}
#: Between columns: the first of them that the header has.
MARKS = (",", ";", "\t")
HEAD_HINT = "begin with a line such as ts,address,value,quality, or ts and an address for each column"

#: Called with what is wrong with a line; the line is left out then.
OnProblem = Callable[[Problem], None]
#: The samples of a line, all or none. Raises ValueError.
RowsOf: TypeAlias = Callable[[Sequence[str]], Sequence[Row]]


def read_csv(lines: Iterable[str], on_problem: OnProblem) -> Iterator[Row]:
    """The samples in the order of the lines. Raises Invalid when the header is none, since then nothing can be read."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if not line.startswith("#"))
    _, first = next(numbered, (1, ""))
    first = first.removeprefix("\ufeff")
    if any("\udc80" <= sign <= "\udcff" or sign == "\0" for sign in first):
        raise _bad_head("it is no text in UTF-8")
    mark = next((each for each in MARKS if each in first), MARKS[0])
    try:
        names = [name.strip().removeprefix("\ufeff") for name in _cells(first, mark)]
    except csv.Error as error:
        raise _bad_head("a quote is not closed, or stands at a wrong place") from error
    if not any(names):
        raise _bad_head("there is no header")
    known = [_NAMES.get(name.lower(), "") for name in names]
    if len(set(names)) < len(names):
        raise _bad_head("a column stands twice")
    if "ts" not in known:
        raise _bad_head("there is no column ts")
    if "address" in known:
        strange = [name for name, meant in zip(names, known, strict=True) if not meant]
        if "value" not in known or strange:
            raise _bad_head(f"{strange[0][:64]!r} is no column" if strange else "there is no column value")
        rows_of = _long(known)
    else:
        at = known.index("ts")
        bad = [name for index, name in enumerate(names) if index != at and not is_series(name)]
        if bad or len(names) < 2:
            raise _bad_head(f"{bad[0][:64]!r} is no address" if bad else "there is no column but ts")
        rows_of = _wide(names, at)
    for number, line in numbered:
        if line.isspace() or not line:
            continue
        try:
            cells = _cells(line, mark)
            if len(cells) != len(names):
                raise ValueError(f"it has {len(cells)} columns, the header {len(names)}")
            rows = rows_of(cells)
        except (ValueError, csv.Error) as error:
            on_problem(Problem("bad_row", f"line {number}", str(error)))
        else:
            yield from rows


def _cells(line: str, mark: str) -> list[str]:
    """A line stands for itself: a quote that nobody closes costs one row, not all that follow."""
    if '"' not in line:
        return line.rstrip("\r\n").split(mark)
    return next(csv.reader([line], delimiter=mark, strict=True), [])


def _long(columns: Sequence[str]) -> RowsOf:
    ts_at, address_at, value_at = (columns.index(name) for name in ("ts", "address", "value"))
    quality_at = columns.index("quality") if "quality" in columns else -1
    sound: set[str] = set()

    def rows_of(cells: Sequence[str]) -> Sequence[Row]:
        address = cells[address_at].strip()
        if address not in sound:
            if not is_series(address):
                raise ValueError(f"{address[:64]!r} is no address such as comsrv:1001:m:10001")
            sound.add(address)
        quality = _quality(cells[quality_at]) if quality_at >= 0 else GOOD
        return (_row(address, cells[ts_at], cells[value_at], quality),)

    return rows_of


def _wide(names: Sequence[str], ts_at: int) -> RowsOf:
    def rows_of(cells: Sequence[str]) -> Sequence[Row]:
        _time(cells[ts_at].strip())  # also of a line without values
        return [
            _row(name, cells[ts_at], cell, GOOD)
            for at, (name, cell) in enumerate(zip(names, cells, strict=True))
            if at != ts_at and cell.strip()
        ]

    return rows_of


def _row(address: str, ts: str, value: str, quality: int) -> Row:
    row = Row(address, _time(ts.strip()), _value(value.strip()), quality)
    reason = refusal(row)
    if reason is not None:
        raise ValueError(_REASONS.get(reason, reason))
    return row


def _time(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        if int(text) in SECONDS:
            raise ValueError(f"{text!r}: {SECONDS_HINT}")
        return int(text)
    try:
        return from_iso(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is no time: give milliseconds since the epoch, or ISO") from None


def _value(text: str) -> float:
    try:
        return read_number(text)
    except ValueError:
        hint = ": write it with a decimal point" if "," in text else ""
        raise ValueError(f"{text[:40]!r} is no number{hint}" if text else "the value is missing") from None


def _quality(text: str) -> int:
    found = _QUALITY.get(text.strip().lower())
    if found is None:
        raise ValueError(f"{text[:40]!r} is no quality: use good, uncertain or bad (0, 1, 2)")
    return found


def _bad_head(what: str) -> Invalid:
    problem = Problem("bad_header", "line 1", f"{what}: {HEAD_HINT}")
    return Invalid(f"the CSV cannot be read: {what}", code=problem.code, hint=HEAD_HINT, problems=[problem])
