"""When a flow's cycles are due: reading an interval, and the arithmetic of slots. Pure; milliseconds, UTC.

Slot k of an interval is anchor + k·interval for k ≥ 0, so lateness never adds up. A cron has its minutes from the
anchor on, `once` the anchor alone, `manual` none. The anchor is the schedule's own, else the moment when the flow was
started: `anchor_ms` of these functions is that moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim

from tradewind.cron import read_cron
from tradewind.errors import Invalid, Problem
from tradewind.flows.spec import ScheduleSpec
from tradewind.tasks.periodic import parse_every

INTERVAL_HINT = 'give 0 or "once", seconds (at least 0.1), "500ms", "30s", "5m", "1h", "1d", or a cron of five fields'
DURATION_HINT = 'give seconds, or "500ms", "30s", "5m", "1h", "1d"; 0, or from 0.1 s to 366 days'
#: So many missed slots are made up for, or counted, at a time.
LIMIT = 1000


def parse_duration(value: Any) -> int:
    """Milliseconds of `30`, `"30s"`, `"500ms"`, …; 0 is 0. Raises Invalid."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
        return 0
    if isinstance(value, int | float | str):
        try:
            return parse_every(value)
        except Invalid:
            pass
    raise _invalid("bad_duration", f"{_short(value)} is not a duration", DURATION_HINT)


def parse_interval(value: Any) -> ScheduleSpec:
    """A schedule with only its interval or cron set; neither: once. Raises Invalid."""
    if isinstance(value, str):
        text = value.strip()
        if text in ("0", "once"):
            return ScheduleSpec()
        if len(text.split()) == 5:
            return ScheduleSpec(cron=parse_cron(text))
        if text.isdecimal():
            hint = f'for seconds leave out the quotes, or give "{text[:20]}s"'
            raise _invalid("bad_interval", f"{_short(value)} is not an interval", hint)
    try:
        return ScheduleSpec(interval_ms=parse_duration(value))
    except Invalid:
        raise _invalid("bad_interval", f"{_short(value)} is not an interval", INTERVAL_HINT) from None


def parse_cron(value: Any) -> str:
    """The five fields, with single spaces. Raises Invalid, also for a moment that never comes."""
    try:
        return read_cron(value if isinstance(value, str) else "")
    except ValueError as error:
        hint = f'minute hour day month weekday, such as "*/5 8-17 * * 1-5" (UTC): {error}'
        raise _invalid("bad_cron", f"{_short(value)} is not a cron", hint) from None


def first_slot(schedule: ScheduleSpec, start_ms: int) -> int | None:
    """The first slot of a flow started at `start_ms`, that moment included; None: it has none (manual)."""
    return next_slot(schedule, start_ms - 1, start_ms)


def next_slot(schedule: ScheduleSpec, after_ms: int, anchor_ms: int) -> int | None:
    """The first slot strictly after `after_ms`; None: there is none any more."""
    if schedule.manual:
        return None
    if schedule.interval_ms:
        anchor = schedule.anchor_ms or anchor_ms
        return anchor + max(0, (after_ms - anchor) // schedule.interval_ms + 1) * schedule.interval_ms
    start = max(schedule.anchor_ms, anchor_ms)
    if schedule.cron:
        return next(_cron_slots(schedule.cron, max(after_ms, start - 1)), None)
    return start if start > after_ms else None


def latest_slot(schedule: ScheduleSpec, now_ms: int, anchor_ms: int) -> int | None:
    """The last slot up to `now_ms`, that moment included; None: there was none yet."""
    if schedule.manual:
        return None
    if schedule.interval_ms:
        anchor = schedule.anchor_ms or anchor_ms
        k = (now_ms - anchor) // schedule.interval_ms
        return anchor + k * schedule.interval_ms if k >= 0 else None
    start = max(schedule.anchor_ms, anchor_ms)
    if schedule.cron:
        # Going backwards leaves out the moment itself, so it begins one step later.
        slot = next(_cron_slots(schedule.cron, now_ms + 1, reverse=True), None)
        return slot if slot is not None and slot >= start else None
    return start if start <= now_ms else None


def missed_between(
    schedule: ScheduleSpec, after_ms: int, until_ms: int, anchor_ms: int, limit: int = LIMIT
) -> list[int]:
    """The slots in (after, until], oldest first, at most `limit`; ask again after the last one for more."""
    slots: list[int] = []
    while len(slots) < limit:
        slot = next_slot(schedule, after_ms, anchor_ms)
        if slot is None or slot > until_ms:
            break
        slots.append(slot)
        after_ms = slot
    return slots


def grace_ms(schedule: ScheduleSpec) -> int:
    """How late a slot may start before it counts as missed."""
    if schedule.grace_s:
        return round(schedule.grace_s * 1000)
    return min(60_000, max(1000, schedule.interval_ms or 60_000))


@dataclass(frozen=True, slots=True)
class Due:
    """`run`: slots to start a cycle for now, oldest first. `skipped`: how many are given up (of a cron, at most LIMIT
    are counted). `next_ms`: when to look again, None: never."""

    run: tuple[int, ...]
    skipped: int
    next_ms: int | None


def take_due(schedule: ScheduleSpec, slot_ms: int, now_ms: int, anchor_ms: int, limit: int = LIMIT) -> Due:
    """What the misfire policy makes of the slots from `slot_ms` (the one that is due next) up to now.

    `latest` runs the last of them however late it is, `skip` only within its grace, `all` each, `limit` at a time.
    """
    if slot_ms > now_ms:
        return Due((), 0, slot_ms)
    if schedule.misfire == "all":
        slots = [slot_ms, *missed_between(schedule, slot_ms, now_ms, anchor_ms, limit - 1)]
        return Due(tuple(slots), 0, next_slot(schedule, slots[-1], anchor_ms))
    latest = max(slot_ms, latest_slot(schedule, now_ms, anchor_ms) or slot_ms)
    if schedule.interval_ms:
        skipped = -(-(latest - slot_ms) // schedule.interval_ms)  # rounded up: slot_ms may be off a new raster
    else:
        skipped = len(missed_between(schedule, slot_ms, latest, anchor_ms))
    following = next_slot(schedule, max(now_ms, latest), anchor_ms)
    if schedule.misfire == "skip" and now_ms - latest > grace_ms(schedule):
        return Due((), skipped + 1, following)
    return Due((latest,), skipped, following)


def _cron_slots(cron: str, moment_ms: int, *, reverse: bool = False) -> Iterator[int]:
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    for slot in CronSim(cron, moment, reverse=reverse):
        yield round(slot.timestamp() * 1000)


def _invalid(code: str, message: str, hint: str) -> Invalid:
    return Invalid(message, code=code, hint=hint, problems=[Problem(code, "", hint)])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
