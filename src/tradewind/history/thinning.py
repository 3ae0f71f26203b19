"""Deadband and minimum interval: which changes of a point are recorded. Pure; the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tradewind.history.policy import Thinning
from tradewind.history.sample import Row


class _Held(msgspec.Struct):
    row: Row
    due_s: float


class Thinner:
    """Remembers what was last recorded of each thinned series. What follows too fast is held back, and goes when its
    time has come (`due`) unless a newer value takes its place."""

    def __init__(self) -> None:
        self.left_out = 0
        self._last: dict[str, Row | None] = {}
        self._held: dict[str, _Held] = {}

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def is_known(self, series: str) -> bool:
        return series in self._last

    def newest_ms(self, series: str) -> int:
        """Of what was recorded or is held back; -1: nothing."""
        found = self._held[series].row if series in self._held else self._last.get(series)
        return found.ts_ms if found is not None else -1

    def seed(self, series: str, last: Row | None) -> None:
        """What the sink has of a series; None: nothing."""
        self._last.setdefault(series, last)

    def forget(self) -> None:
        """The feed is read again from an earlier place: what was decided since may not be stored."""
        self._last.clear()
        self._held.clear()

    def set_back(self, series: str, to_ms: int) -> None:
        """The clock was set back to that: what has a later time is no measure for what comes."""
        last = self._last.get(series)
        if last is not None and last.ts_ms > to_ms:
            self._last[series] = None
        self.left_out += self._held.pop(series, None) is not None

    def take(self, row: Row, thinning: Thinning, now_s: float) -> bool:
        """Whether a row that is not late is recorded now."""
        last = self._last.get(row.series)
        if last is None or row.ts_ms == last.ts_ms or row.quality != last.quality:
            self._record(row)
            return True
        if row.ts_ms < last.ts_ms:  # the board began anew: not ours to judge
            return True
        if thinning.deadband and abs(row.value - last.value) < thinning.deadband:
            self.left_out += 1 + (self._held.pop(row.series, None) is not None)
            return False
        if row.ts_ms - last.ts_ms < thinning.min_interval_ms:
            self.left_out += row.series in self._held
            self._held[row.series] = _Held(row, now_s + thinning.min_interval_ms / 1000)
            return False
        self.left_out += row.series in self._held
        self._record(row)
        return True

    def due(self, now_s: float) -> list[Row]:
        """Rows that were held back long enough."""
        return self._release(series for series, held in self._held.items() if held.due_s <= now_s)

    def all_held(self) -> list[Row]:
        return self._release(self._held)

    def _release(self, names: Iterable[str]) -> list[Row]:
        rows = [self._held[series].row for series in tuple(names)]
        for row in rows:
            self._record(row)
        return rows

    def _record(self, row: Row) -> None:
        self._last[row.series] = row
        self._held.pop(row.series, None)
