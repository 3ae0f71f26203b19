"""Who is told what, when: targets, routes, quiet hours, escalation. Pure data and what follows from it."""

from __future__ import annotations

import bisect
import fnmatch
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tradewind.notify.message import Message, Word, rank

Text = Annotated[str, Meta(max_length=200)]
Words = tuple[Text, ...]
Names = Annotated[tuple[str, ...], Meta(max_length=100)]
Wait = Annotated[float, Meta(ge=0, le=86_400)]
TOLD: tuple[Word, ...] = ("raised", "escalated", "cleared", "message")


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """`url`: http(s) for a webhook, else one of apprise. `headers` are for webhooks. `events`: what it is told of."""

    url: Annotated[str, Meta(min_length=1, max_length=4000)]
    headers: Annotated[dict[str, Annotated[str, Meta(max_length=4000)]], Meta(max_length=50)] = {}
    enabled: bool = True
    events: tuple[Word, ...] = TOLD
    group_wait_s: Wait | None = None
    group_interval_s: Wait | None = None


class Match(msgspec.Struct, frozen=True, omit_defaults=True):
    """Each part that is given must fit, by one of its words; `*` in `source` is any text, `?` a character."""

    level: Words = ()
    category: Words = ()
    rule_id: Words = ()
    source: Words = ()

    def fits(self, message: Message) -> bool:
        return (
            (not self.level or message.level in self.level)
            and (not self.category or message.category in self.category)
            and (not self.rule_id or message.rule_id in self.rule_id)
            and (not self.source or any(fnmatch.fnmatchcase(message.source, one) for one in self.source))
        )


class QuietHours(msgspec.Struct, frozen=True, omit_defaults=True, rename={"start": "from", "end": "to"}):
    """Local times `HH:MM`; over midnight when `to` is not after `from`. From `except_level` on messages pass."""

    start: str
    end: str
    timezone: str = "UTC"
    except_level: str | None = "Critical"

    def until_ms(self, level: str, now_ms: int) -> int:
        """When a message of that level may go: the end of the quiet hours, or 0 for at once."""
        if self.except_level is not None and rank(level) >= rank(self.except_level):
            return 0
        zone = ZoneInfo(self.timezone)
        local = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone)
        start, end, clock = time.fromisoformat(self.start), time.fromisoformat(self.end), local.time()
        if start < end:
            is_quiet, day = start <= clock < end, local.date()
        else:
            is_quiet, day = clock >= start or clock < end, local.date() + timedelta(days=clock >= start)
        if not is_quiet:
            return 0
        over = datetime.combine(day, end, zone)
        first_ms, second_ms = (round(over.replace(fold=fold).timestamp() * 1000) for fold in (0, 1))
        if second_ms < first_ms:  # clocks go forward over it: it is over when they do
            first_ms = second_ms = _change_ms(zone, second_ms, first_ms)
        # In the night when clocks go back this time of day comes twice.
        return first_ms if first_ms > now_ms else max(now_ms + 1, second_ms)


def _change_ms(zone: ZoneInfo, from_ms: int, to_ms: int) -> int:
    """When the clocks of that zone change between the two."""
    before = datetime.fromtimestamp(from_ms / 1000, zone).utcoffset()
    seconds = range(from_ms // 1000, to_ms // 1000)
    at = bisect.bisect_left(seconds, True, key=lambda s: datetime.fromtimestamp(s, zone).utcoffset() != before)
    return (from_ms // 1000 + at) * 1000


class Route(msgspec.Struct, frozen=True, omit_defaults=True):
    """`quiet_hours`: those of the policy when absent, none when null."""

    targets: Names
    match: Match = Match()
    min_level: str = "Info"
    quiet_hours: QuietHours | UnsetType | None = UNSET

    def fits(self, message: Message) -> bool:
        return rank(message.level) >= rank(self.min_level) and self.match.fits(message)


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """`after_s` counts from when the alarm was raised."""

    after_s: Annotated[float, Meta(gt=0, le=30 * 86_400)]
    targets: Names
    min_level: str = "Info"


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """`group_wait_s`, `group_interval_s`: for targets without their own; None takes those of the settings."""

    targets: dict[str, Target] = {}
    routes: tuple[Route, ...] = ()
    quiet_hours: QuietHours | None = None
    escalation: tuple[Step, ...] = ()
    group_wait_s: Wait | None = None
    group_interval_s: Wait | None = None
    version: int = 0

    def routed(self, message: Message) -> Iterator[tuple[str, QuietHours | None]]:
        """Every target of every route that fits, with the quiet hours of that route; a target may come twice."""
        for route in self.routes:
            if route.fits(message):
                quiet = self.quiet_hours if route.quiet_hours is UNSET else route.quiet_hours
                for name in route.targets:
                    yield name, quiet

    def next_step(self, level: str, first: int) -> int | None:
        """The first step of the escalation chain from that one on that concerns this level."""
        for index in range(first, len(self.escalation)):
            if rank(level) >= rank(self.escalation[index].min_level):
                return index
        return None
