"""What of a poll is worth writing: scaled values that changed, qualities that changed, and a sign of life now and then.

Pure; the clock is an argument. It remembers what was written last, so tell it when a write failed (`forget`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set

from tradewind.points.address import Address
from tradewind.points.batch import Batch
from tradewind.points.convert import is_change, to_engineering
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality, Reading

READ_KINDS = (Kind.MEASUREMENT, Kind.SIGNAL)
WRITTEN_KINDS = (Kind.CONTROL, Kind.ADJUSTMENT)
_GOOD, _UNCERTAIN, _BAD = Quality.GOOD, Quality.UNCERTAIN, Quality.BAD
_UNSEEN = math.nan


class _Known:
    """A point and what was written of it last; `raw` is NaN (equal to nothing) when that is not known."""

    __slots__ = ("point", "quality", "raw", "refresh_s", "value", "written_s")

    def __init__(self, point: PointSpec, refresh_s: float) -> None:
        self.point = point
        self.refresh_s = refresh_s if point.max_age_s is None else point.max_age_s / 2
        self.forget()

    def forget(self) -> None:
        self.raw = _UNSEEN
        self.value: float | None = None
        self.quality: Quality | None = None
        self.written_s = -math.inf


class Samples:
    """An unchanged value is written again after `refresh_s` (half a point's `max_age_s`), or it would look stale."""

    def __init__(self, channel: ChannelSpec, refresh_s: float) -> None:
        self._channel = channel.id
        self._known: dict[str, dict[str, _Known]] = {kind: {} for kind in Kind}
        for point in channel.points:
            self._known[point.kind][point.id] = _Known(point, refresh_s)
        self.count = sum(len(self._known[kind]) for kind in READ_KINDS)
        self._is_back = True
        #: Points whose last command left their state unknown.
        self.unsure: Set[Address] = frozenset()

    def changes(self, readings: Iterable[Reading], now_s: float) -> list[Batch]:
        """One batch per kind that has news. Readings of points that the channel does not have are left out."""
        values: dict[str, dict[str, float]] = {}
        times: dict[str, dict[str, int]] = {}
        qualities: dict[str, dict[str, str]] = {}
        known_by_kind = self._known
        for reading in readings:
            known = known_by_kind[reading.kind].get(reading.id)
            if known is None:
                continue
            raw, quality = reading.raw, reading.quality
            # Unchanged by far the most often, so this comes first; its age counts so that it never looks stale.
            if raw == known.raw and quality is known.quality and now_s - known.written_s < known.refresh_s:
                continue
            point = known.point
            value = math.nan if quality is _BAD else to_engineering(point, raw)
            if not math.isfinite(value):
                if known.quality is not _BAD:
                    known.quality, known.raw = _BAD, _UNSEEN
                    qualities.setdefault(point.kind, {})[point.id] = _BAD.value
                continue
            if quality is _GOOD and not _is_plausible(point, value):
                quality = _UNCERTAIN
            is_due = now_s - known.written_s >= known.refresh_s
            if not is_due and quality is known.quality and not is_change(point, known.value, value):
                continue
            known.raw = raw if quality is reading.quality else _UNSEEN
            known.value, known.quality, known.written_s = value, quality, now_s
            values.setdefault(point.kind, {})[point.id] = value
            if reading.ts_ms:
                times.setdefault(point.kind, {})[point.id] = reading.ts_ms
            if quality is not _GOOD:
                qualities.setdefault(point.kind, {})[point.id] = quality.value
        return self._restored() + [
            Batch.of_channel(
                self._channel, kind, values.get(kind, {}), times.get(kind, 0), qualities.get(kind), is_lenient=True
            )
            for kind in {**values, **qualities}
        ]

    def all_bad(self) -> list[Batch]:
        """The device is gone: every point keeps its value and its time, and is bad."""
        batches = []
        self._is_back = False
        for kind in Kind:
            marked = {}
            for known in self._known[kind].values():
                if known.quality is not _BAD:
                    known.quality, known.raw = _BAD, _UNSEEN
                    marked[known.point.id] = _BAD.value
            if marked:
                batches.append(Batch.of_channel(self._channel, kind, {}, quality=marked))
        return batches

    def back(self) -> None:
        """The device answers again, so what it was told last counts again; what it says is told by `changes`."""
        self._is_back = True

    def _restored(self) -> list[Batch]:
        """Take the marks of a gone device from points that are only written, which no reading would do."""
        if not self._is_back:
            return []
        self._is_back = False
        batches = []
        for kind in WRITTEN_KINDS:
            points = self._known[kind]
            for known in points.values():
                known.quality = None
            if points:
                good = dict.fromkeys(points, _GOOD.value)
                good |= {a.field: _UNCERTAIN.value for a in self.unsure if a.kind == kind and a.field in points}
                batches.append(Batch.of_channel(self._channel, kind, {}, quality=good))
        return batches

    def forget(self) -> None:
        """What the board shows is not known any more: all is written again."""
        self._is_back = True
        for points in self._known.values():
            for known in points.values():
                known.forget()


def _is_plausible(point: PointSpec, value: float) -> bool:
    if point.kind is not Kind.MEASUREMENT:
        return True
    return (point.min is None or value >= point.min) and (point.max is None or value <= point.max)
