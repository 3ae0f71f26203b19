"""What of a poll is worth writing: scaled values that changed, qualities that changed, and a sign of life now and then.
A reading with its own time is an event: all of them are written, in the order of their times.

Pure; the clock is an argument. It remembers what was written last, so tell it when a write failed (`forget`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from operator import attrgetter

from tradewind.points.address import Address
from tradewind.points.batch import Batch
from tradewind.points.convert import is_change, to_engineering
from tradewind.points.spec import ChannelSpec, Kind, PointSpec, Quality, Reading
from tradewind.points.values import FUTURE_MS, is_timestamp

READ_KINDS = (Kind.MEASUREMENT, Kind.SIGNAL)
WRITTEN_KINDS = (Kind.CONTROL, Kind.ADJUSTMENT)
_GOOD, _UNCERTAIN, _BAD = Quality.GOOD, Quality.UNCERTAIN, Quality.BAD
_UNSEEN = math.nan
_own_time = attrgetter("ts_ms")


class _Known:
    """A point and what was written of it last; `raw` is NaN (equal to nothing) when that is not known. `ts_ms`: the
    time that the device gave to it, 0: none."""

    __slots__ = ("point", "quality", "raw", "refresh_s", "ts_ms", "value", "written_s")

    def __init__(self, point: PointSpec, refresh_s: float) -> None:
        self.point = point
        self.refresh_s = refresh_s if point.max_age_s is None else point.max_age_s / 2
        self.forget()

    def forget(self) -> None:
        self.raw = _UNSEEN
        self.value: float | None = None
        self.quality: Quality | None = None
        self.ts_ms = 0
        self.written_s = -math.inf


class Samples:
    """An unchanged value is written again after `refresh_s` (half a point's `max_age_s`), or it would look stale.
    `future_ms`: a clock that is behind what it was by more than this was set back, and a time that lies ahead by more
    is from before that."""

    def __init__(self, channel: ChannelSpec, refresh_s: float, future_ms: int = FUTURE_MS) -> None:
        self._future_ms = future_ms
        self._channel = channel.id
        self._known: dict[str, dict[str, _Known]] = {kind: {} for kind in Kind}
        for point in channel.points:
            self._known[point.kind][point.id] = _Known(point, refresh_s)
        self.count = sum(len(self._known[kind]) for kind in READ_KINDS)
        self._is_back = True
        self._now_ms = 0
        #: Points whose last command left their state unknown.
        self.unsure: Set[Address] = frozenset()

    def changes(self, readings: Sequence[Reading], now_s: float, now_ms: int | None = None) -> list[Batch]:
        """What is news, in the order in which it is to be written; no batch has a point twice. Readings of points that
        the channel does not have are left out, and so is what a deadband covers. `now_ms`: by the clock of the world,
        which may be set back: what lies after it is not newer than what comes now."""
        found = self._restored()
        if now_ms is not None:
            self._set_back(now_ms)
        for part in runs(readings):
            found += self._news(part, now_s)
        return found

    def _news(self, readings: Sequence[Reading], now_s: float) -> list[Batch]:
        """One batch per kind that has news. Of several readings of a point the last counts."""
        values: dict[str, dict[str, float]] = {}
        times: dict[str, dict[str, int]] = {}
        qualities: dict[str, dict[str, str]] = {}
        marked_ms: dict[str, int] = {}
        known_by_kind = self._known
        for reading in readings:
            known = known_by_kind[reading.kind].get(reading.id)
            if known is None:
                continue
            raw, quality, ts_ms = reading.raw, reading.quality, reading.ts_ms
            # Unchanged by far the most often, so this comes first; its age counts so that it never looks stale.
            if (
                raw == known.raw
                and quality is known.quality
                and now_s - known.written_s < known.refresh_s
                and (not ts_ms or ts_ms == known.ts_ms)
            ):
                continue
            if ts_ms and not is_timestamp(ts_ms):  # of a clock that was never set: as one that is ahead
                ts_ms, quality = 0, quality if quality is _BAD else _UNCERTAIN
            point = known.point
            value = math.nan if quality is _BAD else to_engineering(point, raw)
            is_late = 0 < ts_ms < known.ts_ms
            if not math.isfinite(value):
                if known.quality is not _BAD and not is_late:
                    known.quality, known.raw = _BAD, _UNSEEN
                    qualities.setdefault(point.kind, {})[point.id] = _BAD.value
                    marked_ms[point.kind] = max(ts_ms, marked_ms.get(point.kind, 0))
                continue
            if quality is _GOOD and not _is_plausible(point, value):
                quality = _UNCERTAIN
            is_due = now_s - known.written_s >= known.refresh_s
            is_event = ts_ms not in (0, known.ts_ms) and point.deadband <= 0
            if not (is_due or is_event) and quality is known.quality and not is_change(point, known.value, value):
                continue
            if not is_late:  # the board goes on showing what is newer
                known.raw = raw if quality is reading.quality else _UNSEEN
                known.value, known.quality, known.written_s, known.ts_ms = value, quality, now_s, ts_ms
            values.setdefault(point.kind, {})[point.id] = value
            if ts_ms:
                times.setdefault(point.kind, {})[point.id] = ts_ms
            if quality is not _GOOD:
                qualities.setdefault(point.kind, {})[point.id] = quality.value
        return [
            Batch.of_channel(
                self._channel,
                kind,
                values.get(kind, {}),
                times.get(kind) or (0 if kind in values else marked_ms.get(kind, 0)),
                qualities.get(kind),
                is_lenient=True,
            )
            for kind in {**values, **qualities}
        ]

    def _set_back(self, now_ms: int) -> None:
        if now_ms > self._now_ms - self._future_ms:
            self._now_ms = max(now_ms, self._now_ms)
            return
        self._now_ms = now_ms
        for points in self._known.values():
            for known in points.values():
                if known.ts_ms > now_ms + self._future_ms:
                    known.ts_ms = now_ms

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


def runs(readings: Sequence[Reading]) -> Iterator[Sequence[Reading]]:
    """The readings in parts that may be written together: all of them, unless a point has several and they have times
    of their own. Then in the order of time, a new part where a point comes again or the kind changes; what has no time
    stays behind what came before it."""
    if not any(map(_own_time, readings)) or len({(one.kind, one.id) for one in readings}) == len(readings):
        yield readings
        return
    latest, placed = 0, []
    for reading in readings:
        latest = max(latest, reading.ts_ms)
        placed.append((reading.ts_ms or latest, reading))
    placed.sort(key=lambda item: (item[0], item[1].kind))
    part: list[Reading] = []
    seen: set[str] = set()
    for _, reading in placed:
        if part and (reading.id in seen or reading.kind is not part[0].kind):
            yield part
            part, seen = [], set()
        part.append(reading)
        seen.add(reading.id)
    yield part


def _is_plausible(point: PointSpec, value: float) -> bool:
    if point.kind is not Kind.MEASUREMENT:
        return True
    return (point.min is None or value >= point.min) and (point.max is None or value <= point.max)
