"""How long each series is kept: the classes of the policy, and which one a series is of. No I/O."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import translate
from typing import NamedTuple, TypeAlias

from tradewind.history.policy import DEFAULT_CLASS, KINDS, Policy

DAY_MS = 86_400_000
#: Series whose class is remembered; beyond that all are looked up anew.
MAX_KNOWN = 1_000_000


class Days(NamedTuple):
    """Of samples and of the rollups of minutes and hours; 0 is for ever."""

    raw: int = 0
    minute: int = 0
    hour: int = 0

    def cutoff_ms(self, kind: str, now_ms: int) -> int:
        """What begins a day, in UTC: what lies before is no longer kept. 0: all is."""
        days = self[KINDS.index(kind)]
        return max((now_ms // DAY_MS - days) * DAY_MS, 0) if days else 0


class Keeping:
    """A policy with the days of the settings, made ready. Two that say the same are equal."""

    def __init__(self, days: Iterable[int] = (), policy: Policy | None = None) -> None:
        policy = policy or Policy()
        default = _rising(Days(*days))
        self.classes = {DEFAULT_CLASS: default}
        for name, given in policy.classes.items():
            own = (given.raw_days, given.minute_days, given.hour_days)
            self.classes[name] = _rising(
                Days(*(usual if mine is None else mine for mine, usual in zip(own, default, strict=True)))
            )
        self._rules = tuple((item.match, item.series_class) for item in policy.policies)
        self._named = {DEFAULT_CLASS, *(name for _, name in self._rules)}
        self._patterns = [(re.compile(translate(match)), name) for match, name in self._rules]
        self._known: dict[str, str] = {}

    @property
    def default(self) -> Days:
        return self.classes[DEFAULT_CLASS]

    @property
    def is_plain(self) -> bool:
        """Whether every series is of the default class."""
        return self._named == {DEFAULT_CLASS}

    def class_of(self, series: str) -> str:
        """By the first policy that matches, as with all else that policies say."""
        found = self._known.get(series)
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            found = next((name for pattern, name in self._patterns if pattern.match(series)), DEFAULT_CLASS)
            self._known[series] = found
        return found

    def days_of(self, series: str) -> Days:
        return self.classes[self.class_of(series)]

    def longest(self, kind: str) -> int:
        """Days that the most patient class keeps of a kind: the default one, or one that a policy names."""
        days = [self.classes[name][KINDS.index(kind)] for name in self._named]
        return 0 if 0 in days else max(days)

    def shorter(self, kind: str, now_ms: int) -> dict[str, int]:
        """The classes that keep less than the longest, with where they end, by `Days.cutoff_ms`."""
        longest, at = self.longest(kind), KINDS.index(kind)
        return {
            name: cutoff
            for name in sorted(self._named)
            if self.classes[name][at] != longest and (cutoff := self.classes[name].cutoff_ms(kind, now_ms))
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keeping) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @property
    def _said(self) -> tuple[object, ...]:
        return tuple(self.classes.items()), self._rules


#: Asked before each use, since the policy may change. Raises SinkAway when it cannot be told.
KeepingSource: TypeAlias = Callable[[], Awaitable[Keeping]]


def always(keeping: Keeping) -> KeepingSource:
    async def source() -> Keeping:
        return keeping

    return source


def _rising(days: Days) -> Days:
    """Rollups are never kept shorter than what they are made of: a trend would end where its samples do not."""
    minute = 0 if days.raw == 0 or days.minute == 0 else max(days.raw, days.minute)
    return Days(days.raw, minute, 0 if minute == 0 or days.hour == 0 else max(minute, days.hour))
