"""Samples of points, and outputs that know what was last written to them. Pure."""

from __future__ import annotations

import msgspec

from tradewind.models.program import GOOD
from tradewind.models.spec import Output


class Sample(msgspec.Struct, frozen=True, gc=False):
    """Where a point stands: quality 0 good, 1 uncertain, 2 bad, 4 substituted."""

    value: float
    ts_ms: int
    quality: int = GOOD


class Change(msgspec.Struct, gc=False):
    """Outputs of one model to be written: samples by field."""

    model: str
    fields: dict[str, Sample]


class Port:
    """An output with what was last written to it, the time of the data that it came of, and the slots of models that
    read it."""

    __slots__ = ("data_ms", "deadband", "field", "last", "slots")

    def __init__(self, output: Output, slots: tuple[int, ...]) -> None:
        self.field = output.field
        self.deadband = output.deadband
        self.slots = slots
        self.last: Sample | None = None
        self.data_ms = 0

    def news(self, value: float | None, quality: int, ts_ms: int, data_ms: int, refresh_ms: int) -> Sample | None:
        """What is to be written; None when that stands there already, or there is nothing to show. `ts_ms`: when it
        became so, which is later than its data when they grew old."""
        last = self.last
        if value is None:
            if last is None or quality == GOOD:
                return None
            value = last.value
        if last is None:
            return Sample(value, ts_ms, quality)
        ts_ms = max(ts_ms, last.ts_ms)
        if quality == last.quality:
            change = abs(value - last.value)
            if ts_ms == last.ts_ms and data_ms == self.data_ms and not change:
                return None
            if change < self.deadband and ts_ms - last.ts_ms < refresh_ms:
                return None
        return Sample(value, ts_ms, quality)
