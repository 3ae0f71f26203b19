"""Entries of the feed made into rows for a sink, gathered until they make a batch. Pure; the clock is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from math import inf, isfinite
from typing import Any

import msgspec
import structlog

from tradewind.history.policy import NOT_RECORDED, Choice, Chooser, Policy
from tradewind.history.sample import BAD, GOOD, UNCERTAIN, Row
from tradewind.history.thinning import Thinner
from tradewind.points.feed import FeedEntry

log = structlog.get_logger(__name__)
_QUALITY = {"uncertain": UNCERTAIN, "bad": BAD}
#: Row from a tuple, without a Python frame per row.
_row: Callable[[Any], Row] = partial(tuple.__new__, Row)
#: Points whose choice is remembered; beyond that a new hash makes all be chosen anew.
MAX_KNOWN = 1_000_000
#: Entries without a row after which the cursor moves all the same.
MAX_ENTRIES = 5000


class Batch(msgspec.Struct):
    """Rows in the order of the feed; when they are stored, so may be the cursor."""

    rows: list[Row] = []
    cursor: dict[str, str] = {}
    entries: int = 0


class Tally(msgspec.Struct):
    """`not_finite`: values left out since no sink takes them; `unreadable`: entries that are none of ours."""

    samples: int = 0
    not_finite: int = 0
    unreadable: int = 0


class _Plan(msgspec.Struct):
    """What is known of the points of one hash. `is_plain`: all of them are recorded, and every change."""

    is_wanted: bool
    is_plain: bool = True
    addresses: dict[str, str] = {}
    choices: dict[str, Choice] = {}


class Batcher:
    def __init__(self, policy: Policy) -> None:
        self.tally = Tally()
        self.thinner = Thinner()
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
        for entry in entries:
            before = len(batch.rows)
            try:
                self._add(entry, batch.rows, now_s)
            except ValueError as error:
                del batch.rows[before:]
                self.tally.unreadable += 1
                log.error("an entry of the feed cannot be read", entry=entry.id, key=entry.key, error=str(error))
            self.tally.samples += len(batch.rows) - before
        batch.entries += len(entries)
        batch.cursor.update(zip(cursor[::2], cursor[1::2], strict=True))

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
        batch.rows += held
        if self.thinner.is_holding:
            self._since = now_s  # so that what is held back is looked at again
        return batch if batch.rows or batch.cursor else None

    def _add(self, entry: FeedEntry, rows: list[Row], now_s: float) -> None:
        plan = self._plan(entry.key)
        if not plan.is_wanted or not entry.data:
            return
        flat = entry.data.replace(":", ",").split(",")
        points, values = flat[::2], list(map(float, flat[1::2]))
        times = self._times(entry, len(points))
        if len(values) != len(points):
            raise ValueError(f"{len(points)} points and {len(values)} values")
        addresses = list(map(plan.addresses.get, points))
        if None in addresses:
            for point in points:
                self._choice(plan, entry.key, point)
            addresses = list(map(plan.addresses.get, points))
        qualities: Iterable[int] = repeat(GOOD)
        if entry.qualities:
            words = entry.quality()
            qualities = [_QUALITY.get(words.get(point, ""), GOOD) for point in points]
        made = map(_row, zip(addresses, times, values, qualities))  # noqa: B905 - two of them may have no end
        if plan.is_plain and isfinite(sum(values)):
            rows.extend(made)
            return
        for row, point in zip(made, points, strict=True):
            self._add_row(row, plan.choices[point], rows, entry.is_late, now_s)

    def _add_row(self, row: Row, choice: Choice, rows: list[Row], is_late: bool, now_s: float) -> None:
        if choice.address is None:
            return
        if not isfinite(row.value):
            self.tally.not_finite += 1
        elif choice.thinning is None or is_late or self.thinner.take(row, choice.thinning, now_s):
            rows.append(row)

    def _times(self, entry: FeedEntry, count: int) -> Iterable[int]:
        if not entry.each_ts:
            return repeat(entry.ts_ms)
        times = list(map(int, entry.each_ts.split(",")))
        if len(times) != count:
            raise ValueError(f"{count} points and {len(times)} times")
        return times

    def _plan(self, key: str) -> _Plan:
        plan = self._plans.get(key)
        if plan is None:
            if self._known >= MAX_KNOWN:
                self._plans.clear()
                self._known = 0
            plan = self._plans[key] = _Plan(self._chooser.is_wanted(key))
        return plan

    def _choice(self, plan: _Plan, key: str, point: str) -> Choice:
        choice = plan.choices.get(point)
        if choice is None:
            choice = plan.choices[point] = self._chooser.choose(key, point)
            plan.addresses[point] = choice.address or ""
            plan.is_plain = plan.is_plain and choice is not NOT_RECORDED and choice.thinning is None
            self._known += 1
        return choice
