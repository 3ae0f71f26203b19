"""One file of the spool: which of its records wait, and the rows that they hold. Who appends to it is the spool."""

from __future__ import annotations

import os
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.history.columns import Columns
from tradewind.history.spool_file import Head, read_payload, unpacked


@dataclass
class Segment:
    """`heads`: of the records that nobody has acknowledged."""

    number: int
    path: Path
    size: int = 0
    heads: deque[Head] = field(default_factory=deque)

    def read(self, upto: int, max_rows: int, end: int | None = None) -> tuple[Columns, int]:
        """Rows of records that follow each other without a hole, from number `upto` on and before `end`, and the
        number of the next one. Raises OSError."""
        rows = Columns()
        try:
            file = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return rows, upto
        try:
            for head in self.heads:
                found = _rows_of(file, head) if head.first == upto else None
                if found is None or (rows and len(rows) + len(found) > max_rows):
                    break
                if rows and end is not None and head.first >= end:
                    break
                rows.extend(found)
                upto = head.next_row
        finally:
            os.close(file)
        return rows, upto


def _rows_of(file: int, head: Head) -> Columns | None:
    payload = read_payload(file, head)
    if payload is None:
        return None
    try:
        return unpacked(payload)
    except (ValueError, zlib.error):  # msgspec's errors are ValueErrors
        return None
