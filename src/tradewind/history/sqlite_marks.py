"""Where retention has come to in the embedded sink, in `main.db`: a mark for all series, and later ones for some.

A mark is on the disk before what it speaks of goes, and never moves back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from tradewind.history.columns import Columns
from tradewind.history.policy import KINDS
from tradewind.history.sample import Refused
from tradewind.history.sink import KeptFrom

_RAISE = """
INSERT INTO kept (kind, series, from_ms) VALUES (?, ?, ?)
ON CONFLICT (kind, series) DO UPDATE SET from_ms = max(from_ms, excluded.from_ms)
"""


class RawMarks:
    """Of samples, as the writer remembers them."""

    def __init__(self) -> None:
        self._all_ms = self._newest_ms = 0
        self._of: dict[int, int] = {}

    def load(self, main: sqlite3.Connection) -> None:
        row = main.execute("SELECT value FROM meta WHERE key = 'raw_from_ms'").fetchone()
        self._all_ms = int(row[0]) if row else 0
        self._of = dict(main.execute("SELECT series, from_ms FROM kept WHERE kind = 'raw'"))
        self._newest_ms = max(self._all_ms, max(self._of.values(), default=0))

    def raise_all(self, from_ms: int) -> None:
        self._all_ms = max(from_ms, self._all_ms)
        self._newest_ms = max(from_ms, self._newest_ms)

    def part(self, rows: Columns, ids: Mapping[str, int]) -> tuple[Columns, list[Refused]]:
        """Those that can be taken, and those that are too old: of their day only rollups are left, and one of these
        cannot take a sample without the others that it was made of."""
        if not rows or min(rows.ts) >= self._newest_ms:
            return rows, []
        late = [Refused(row, "too_old") for row in rows if row.ts_ms < self._from_ms(ids.get(row.series, 0))]
        if not late:
            return rows, []
        return Columns(row for row in rows if row.ts_ms >= self._from_ms(ids.get(row.series, 0))), late

    def raise_some(self, main: sqlite3.Connection, marks: Iterable[tuple[int, int]]) -> None:
        """(series id, from_ms); written with the transaction of `main`."""
        marks = list(marks)
        raise_marks(main, "raw", marks)
        for id_, from_ms in marks:
            self._of[id_] = max(from_ms, self._of.get(id_, 0))
            self._newest_ms = max(from_ms, self._newest_ms)

    def forget(self, main: sqlite3.Connection, id_: int) -> None:
        main.execute("DELETE FROM kept WHERE series = ?", (id_,))
        self._of.pop(id_, None)

    def _from_ms(self, id_: int) -> int:
        return max(self._all_ms, self._of.get(id_, 0))


def raise_marks(main: sqlite3.Connection, kind: str, marks: Iterable[tuple[int, int]]) -> None:
    main.executemany(_RAISE, [(kind, id_, from_ms) for id_, from_ms in marks])


def read_marks(main: sqlite3.Connection | None, series: Sequence[str]) -> dict[str, KeptFrom]:
    """Of each series, as a reader finds them."""
    if main is None:
        return dict.fromkeys(series, KeptFrom())
    meta = dict(main.execute("SELECT key, value FROM meta"))
    whole = [meta.get(f"{kind}_from_ms") for kind in KINDS]
    found = {name: list(whole) for name in series}
    if main.execute("SELECT 1 FROM sqlite_master WHERE name = 'kept'").fetchone():  # not in files of older versions
        for at in range(0, len(series), 500):
            some = list(series[at : at + 500])
            rows = main.execute(
                "SELECT s.address, k.kind, k.from_ms FROM series s JOIN kept k ON k.series = s.id"
                f" WHERE s.address IN ({','.join('?' * len(some))})",
                some,
            )
            for address, kind, from_ms in rows:
                place = KINDS.index(kind)
                found[address][place] = max(from_ms, found[address][place] or 0)
    return {name: KeptFrom(*marks) for name, marks in found.items()}
