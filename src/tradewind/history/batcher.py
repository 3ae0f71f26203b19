"""Entries of the feed made into rows for a sink, gathered until they make a batch. Pure; the clock is an argument."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import inf, isfinite

import msgspec
import structlog

from tradewind.errors import error_text
from tradewind.history.columns import Columns
from tradewind.history.policy import NOT_RECORDED, Choice, Chooser, Policy
from tradewind.history.sample import BAD, GOOD, SUBSTITUTED, UNCERTAIN, Row
from tradewind.history.thinning import Thinner
from tradewind.points.board_point import PointValue
from tradewind.points.feed import FeedEntry

log = structlog.get_logger(__name__)
_QUALITY = {"substituted": SUBSTITUTED, "uncertain": UNCERTAIN, "bad": BAD}
#: Points whose choice is remembered; beyond that a new hash makes all be chosen anew.
MAX_KNOWN = 1_000_000
#: Entries without a row after which the cursor moves all the same.
MAX_ENTRIES = 5000


class Batch(msgspec.Struct):
    """Rows in the order of the feed; when they are stored, so may be the cursor."""

    rows: Columns = msgspec.field(default_factory=Columns)
    cursor: dict[str, str] = {}
    entries: int = 0

    def join(self, later: Batch) -> None:
        self.rows.extend(later.rows)
        self.cursor.update(later.cursor)
        self.entries += later.entries


class Tally(msgspec.Struct):
    """`not_finite`: values left out since no sink takes them; `unreadable`: entries that are none of ours."""

    samples: int = 0
    not_finite: int = 0
    unreadable: int = 0


class _Plan(msgspec.Struct):
    """What is known of the points of one hash. `is_plain`: all of them are recorded, and every change. `points` and
    their `series`: of the last entry, since the next one mostly has the same."""

    is_wanted: bool
    is_plain: bool = True
    addresses: dict[str, str] = {}
    choices: dict[str, Choice] = {}
    points: list[str] = []
    series: list[str] = []


class Batcher:
    def __init__(self, policy: Policy) -> None:
        self.tally = Tally()
        self.thinner = Thinner()
        #: Times of the newest rows by series, if somebody wants to know; begun and ended by setting it.
        self.newest: dict[str, int] | None = None
        self._batch = Batch()
        self._since = inf
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Another policy, from the next entry on; what was recorded last stays known."""
        self.policy = policy
        self._chooser = Chooser(policy)
        self._is_thinning = any(item.deadband or item.min_interval_ms for item in policy.policies)
        self._plans: dict[str, _Plan] = {}
        self._known = 0

    def restart(self) -> None:
        """The feed is read again from the stored cursor."""
        self.thinner.forget()
        self._batch, self._since = Batch(), inf

    def unseeded(self, entries: Iterable[FeedEntry]) -> list[str]:
        """Thinned series of which it is not known what was recorded last."""
        if not self._is_thinning:
            return []
        found: dict[str, None] = {}
        for entry in entries:
            plan = self._plan(entry.key)
            if not plan.is_wanted:
                continue
            for point in entry.fields():
                choice = self._choice(plan, entry.key, point)
                if choice.thinning is not None and choice.address is not None:
                    found[choice.address] = None
        return [address for address in found if not self.thinner.is_known(address)]

    def add(self, entries: Sequence[FeedEntry], cursor: Sequence[str], now_s: float) -> None:
        batch = self._batch
        if self._since == inf:
            self._since = now_s
        before = len(batch.rows)
        for entry in entries:
            start = len(batch.rows)
            try:
                self._add(entry, batch.rows, now_s)
            except (ValueError, OverflowError) as error:
                self.tally.unreadable += 1
                log.error("an entry of the feed cannot be read", entry=entry.id, key=entry.key, error=error_text(error))
            if entry.is_back and self.newest is not None:
                for series in batch.rows.series[start:]:
                    self.newest.pop(series, None)
        self.tally.samples += len(batch.rows) - before
        if self.newest is not None:
            for series, ts_ms in zip(batch.rows.series[before:], batch.rows.ts[before:], strict=True):
                if ts_ms > self.newest.get(series, -1):
                    self.newest[series] = ts_ms
        batch.entries += len(entries)
        batch.cursor.update(zip(cursor[::2], cursor[1::2], strict=True))

    def shown(self, points: Iterable[PointValue], *, is_whole: bool) -> list[Row]:
        """What the board shows of points that are recorded; unless `is_whole`, of those with a minimum interval."""
        rows = []
        for point in points:
            key, _, field = point.address.rpartition(":")
            plan = self._plan(key)
            choice = self._choice(plan, key, field) if plan.is_wanted else NOT_RECORDED
            is_held = choice.thinning is not None and choice.thinning.min_interval_ms > 0
            if choice.address is None or point.value is None or point.ts is None or not (is_whole or is_held):
                continue
            quality = GOOD if point.is_stale else _QUALITY.get(point.quality, GOOD)  # what it was when it came
            rows.append(Row(choice.address, point.ts, point.value, quality))
        return rows

    def add_shown(self, row: Row, now_s: float) -> None:
        """A row of the board that is newer than all of its series that is stored or was read."""
        key, _, field = row.series.rpartition(":")
        if self._is_taken(row, self._choice(self._plan(key), key, field), False, now_s):
            self._batch.rows.append(row)
            self.tally.samples += 1
        self._since = min(self._since, now_s)

    def wait_s(self, now_s: float) -> float:
        """How long it is until the batch is due; 0 when it is."""
        config = self.policy.batch_config
        if len(self._batch.rows) >= config.size or self._batch.entries >= MAX_ENTRIES:
            return 0.0
        return max(0.0, min(self._since + config.timeout_ms / 1000 - now_s, config.timeout_ms / 1000))

    def take(self, now_s: float, *, is_last: bool = False) -> Batch | None:
        """The batch, with what was held back and is due; None when there is nothing."""
        held = self.thinner.all_held() if is_last else self.thinner.due(now_s)
        self.tally.samples += len(held)
        batch, self._batch, self._since = self._batch, Batch(), inf
        batch.rows.extend(held)
        if self.thinner.is_holding:
            self._since = now_s  # so that what is held back is looked at again
        return batch if batch.rows or batch.cursor else None

    def _add(self, entry: FeedEntry, rows: Columns, now_s: float) -> None:
        """Adds all that is to be recorded of it, or raises ValueError or OverflowError."""
        plan = self._plan(entry.key)
        if not plan.is_wanted or not entry.data:
            return
        flat = entry.data.replace(":", ",").split(",")
        points, values = flat[::2], array("d", map(float, flat[1::2]))
        if len(values) != len(points):
            raise ValueError(f"{len(points)} points and {len(values)} values")
        if points != plan.points:
            plan.series, plan.points = self._series(plan, entry.key, points), points
        times, qualities = _times(entry, len(points)), _qualities(entry, points)
        if plan.is_plain and isfinite(sum(values)):
            rows.add(plan.series, times, values, qualities)
            return
        made = Columns()
        made.add(plan.series, times, values, qualities)
        if entry.is_back:
            for row in made:
                self.thinner.set_back(row.series, row.ts_ms)
        choices = map(plan.choices.__getitem__, points)
        rows.extend(
            [
                row
                for row, choice in zip(made, choices, strict=True)
                if self._is_taken(row, choice, entry.is_late, now_s)
            ]
        )

    def _is_taken(self, row: Row, choice: Choice, is_late: bool, now_s: float) -> bool:
        if choice.address is None:
            return False
        if not isfinite(row.value):
            self.tally.not_finite += 1
            return False
        return choice.thinning is None or is_late or self.thinner.take(row, choice.thinning, now_s)

    def _plan(self, key: str) -> _Plan:
        plan = self._plans.get(key)
        if plan is None:
            if self._known >= MAX_KNOWN:
                self._plans.clear()
                self._known = 0
            plan = self._plans[key] = _Plan(self._chooser.is_wanted(key))
        return plan

    def _series(self, plan: _Plan, key: str, points: Sequence[str]) -> list[str]:
        """The address of each; empty when it is not recorded."""
        try:
            return [plan.addresses[point] for point in points]
        except KeyError:
            return [self._choice(plan, key, point).address or "" for point in points]

    def _choice(self, plan: _Plan, key: str, point: str) -> Choice:
        choice = plan.choices.get(point)
        if choice is None:
            choice = plan.choices[point] = self._chooser.choose(key, point)
            plan.addresses[point] = choice.address or ""
            plan.is_plain = plan.is_plain and choice is not NOT_RECORDED and choice.thinning is None
            self._known += 1
        return choice


def _times(entry: FeedEntry, count: int) -> array[int]:
    if not entry.each_ts:
        return array("q", (entry.ts_ms,)) * count
    times = array("q", map(int, entry.each_ts.split(",")))
    if len(times) != count:
        raise ValueError(f"{count} points and {len(times)} times")
    return times


def _qualities(entry: FeedEntry, points: Sequence[str]) -> bytes:
    words = entry.quality()
    return bytes(_QUALITY.get(words.get(point, ""), GOOD) for point in points) if words else bytes(len(points))
