"""Figures of the alarms for a period, from their journal in SQL. Those since ever, and of now: `statistics.py`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select

from tradewind.alarms.journal import AlarmJournal
from tradewind.alarms.journal_entry import SQL_CURSOR
from tradewind.alarms.record import LEVELS
from tradewind.alarms.statistics import PeriodStatistics, Talker
from tradewind.alarms.transitions import OPEN, Status
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.text import stream_id_of
from tradewind.sql.tables import alarm_journal

_ENDED = (Status.RESOLVED.value, Status.CLOSED.value)
_OPEN = tuple(status.value for status in OPEN)
#: The transition that is looked at, and others of the same alarm.
_JOURNAL = alarm_journal.alias("j")
_J, _O = _JOURNAL.c, alarm_journal.alias("o").c
_IS_ANNOUNCEMENT = and_(_O.to_status == Status.NEW.value, _O.from_status != Status.NEW.value)


async def read_period(
    plane: PointPlane, journal: AlarmJournal, from_ms: int, to_ms: int, talkers: int = 10
) -> PeriodStatistics:
    """Raises Unavailable."""
    until_ms = await _recorded_until(plane)  # first: what is recorded meanwhile may be counted, but is not promised
    within = and_(_J.at_ms >= from_ms, _J.at_ms <= to_ms)
    is_raise = and_(within, _J.from_status == "")
    has_ended = exists().where(_O.alarm_id == _J.alarm_id, _is_end(_O), _O.at_ms <= to_ms)
    announced_ms = _before(func.max(_O.at_ms), _IS_ANNOUNCEMENT)
    first_ms = _before(_O.at_ms, _O.version == 1)
    queries: list[Select[Any]] = [
        select(_J.level, func.count()).where(is_raise).group_by(_J.level),
        _times(and_(within, _is_acknowledgement()), func.coalesce(announced_ms, first_ms)),
        _times(and_(within, _is_end(_J)), first_ms),
        select(func.count()).select_from(_JOURNAL).where(is_raise, has_ended),
        select(_J.rule_id, _J.source, func.count().label("raised"))
        .where(is_raise)
        .group_by(_J.rule_id, _J.source)
        .order_by(func.count().desc(), _J.rule_id, _J.source)
        .limit(talkers),
    ]
    async with journal.sql.read("read the figures of alarms") as connection:
        levels, acked, resolved, ended, busiest = [(await connection.execute(query)).all() for query in queries]
    by_level = {level.value: 0 for level in LEVELS} | {level: int(n) for level, n in levels}
    raised = sum(by_level.values())
    return PeriodStatistics(
        from_ms=from_ms,
        to_ms=to_ms,
        raised=raised,
        raised_by_level=by_level,
        acknowledged=int(acked[0][0]),
        resolved=int(resolved[0][0]),
        acknowledge_s=_mean_s(*acked[0][1:]),
        resolve_s=_mean_s(*resolved[0][1:]),
        resolve_rate=int(ended[0][0]) / raised if raised else None,
        talkers=[Talker(rule_id, source, int(n)) for rule_id, source, n in busiest],
        recorded_until_ms=until_ms,
    )


async def _recorded_until(plane: PointPlane) -> int | None:
    """When the first transition happened that is not in SQL."""
    keys = plane.keys
    with translated(plane.link):
        cursor = await plane.redis.hget(keys.cursors(), SQL_CURSOR)
        after = f"({at}" if (at := stream_id_of(cursor)) else "-"
        found = await plane.redis.xrange(keys.alarm_journal(), min=after, count=1)
    return int(found[0][1].get(b"at", found[0][0].partition(b"-")[0])) if found else None


def _times(which: ColumnElement[bool], began: ColumnElement[Any]) -> Any:
    """How many transitions, of how many it is known when the wait began, and the sum of these waits in ms."""
    each = select(_J.at_ms, began.label("began_ms")).where(which).subquery().c
    wait = case((each.at_ms > each.began_ms, each.at_ms - each.began_ms), else_=0)
    return select(func.count(), func.count(each.began_ms), func.sum(wait))


def _is_end(c: Any) -> ColumnElement[bool]:
    return and_(c.from_status.in_(_OPEN), c.to_status.in_(_ENDED))


def _is_acknowledgement() -> ColumnElement[bool]:
    """Also to close an alarm that nobody has acknowledged, or not since it became new or was escalated by hand."""
    acknowledged = _before(func.max(_O.version), _O.event == "acknowledged")
    undone = _before(func.max(_O.version), or_(_O.event == "escalated", _IS_ANNOUNCEMENT))
    is_first = func.coalesce(acknowledged, 0) <= func.coalesce(undone, 0)
    return or_(_J.event == "acknowledged", and_(_J.event == "closed", is_first))


def _before(what: ColumnElement[Any], which: ColumnElement[bool]) -> ColumnElement[Any]:
    """Of the transitions of the same alarm before this one."""
    return select(what).where(_O.alarm_id == _J.alarm_id, _O.version < _J.version, which).scalar_subquery()


def _mean_s(count: Any, total_ms: Any) -> float | None:
    return float(total_ms) / int(count) / 1000 if count else None
