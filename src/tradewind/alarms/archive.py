"""Lists of alarms with those that have left Redis: SQL has them as they were last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, func, or_, select

from tradewind import codec
from tradewind.alarms.journal import AlarmJournal
from tradewind.alarms.listing import AlarmPage, AlarmQuery, place_of
from tradewind.alarms.record import Alarm, from_fields
from tradewind.alarms.transitions import Status
from tradewind.sql.tables import alarms_closed

_C = alarms_closed.c
Place = tuple[int, str]


async def with_archived(
    journal: AlarmJournal, query: AlarmQuery, page: AlarmPage, leaving: Iterable[Alarm] = ()
) -> AlarmPage:
    """A page of both. `page`: what Redis has for the same query, and `leaving`: what is on its way, read before in this
    order, so that none is missed that moves meanwhile. Raises Unavailable."""
    is_wanted = not query.status or Status.CLOSED in query.status
    rows = await _rows(journal, query) if is_wanted else []
    # Down to where each of the two has been looked through; further down the other one may have what comes first.
    floors: list[Place] = []
    if page.next:
        ms, alarm_id = place_of(page.next)
        floors.append((int(ms), alarm_id))
    if len(rows) == query.limit:
        floors.append((rows[-1].created_ms, rows[-1].id))
    floor = max(floors, default=None)
    found = {alarm.id: alarm for alarm in page.alarms}
    found |= {alarm.id: alarm for alarm in leaving if is_wanted and _fits(query, alarm)}
    for row in rows:
        if (alarm := from_fields(codec.decode(row.record))) is not None:
            found[alarm.id] = alarm
    listed = sorted((a for a in found.values() if floor is None or _place(a) >= floor), key=_place, reverse=True)
    if len(listed) > query.limit:
        listed = listed[: query.limit]
        floor = _place(listed[-1])
    return AlarmPage(listed, "" if floor is None else f"{floor[0]}-{floor[1]}")


def _fits(query: AlarmQuery, alarm: Alarm) -> bool:
    """As `_rows` chooses."""
    source = query.source
    return (
        (not query.after or _place(alarm) < _place_before(query.after))
        and (query.from_ms is None or alarm.first_seen >= query.from_ms)
        and (query.to_ms is None or alarm.first_seen <= query.to_ms)
        and (not query.level or alarm.level in query.level)
        and (not query.category or alarm.category in query.category)
        and (not query.rule_id or alarm.rule_id == query.rule_id)
        and (
            not source
            or alarm.source_point == source
            or (source.endswith("*") and alarm.source_point.startswith(source[:-1]))
        )
    )


def _place_before(after: str) -> Place:
    ms, alarm_id = place_of(after)
    return int(ms), alarm_id


def _place(alarm: Alarm) -> Place:
    return alarm.first_seen, alarm.id


async def _rows(journal: AlarmJournal, query: AlarmQuery) -> Sequence[Row[Any]]:
    wanted: list[ColumnElement[bool]] = []
    if query.after:
        ms, alarm_id = place_of(query.after)
        wanted.append(or_(_C.created_ms < int(ms), and_(_C.created_ms == int(ms), _C.id < alarm_id)))
    if query.from_ms is not None:
        wanted.append(_C.created_ms >= query.from_ms)
    if query.to_ms is not None:
        wanted.append(_C.created_ms <= query.to_ms)
    if query.level:
        wanted.append(_C.level.in_([level.value for level in query.level]))
    if query.category:
        wanted.append(_C.category.in_(query.category))
    if query.rule_id:
        wanted.append(_C.rule_id == query.rule_id)
    if query.source.endswith("*"):
        head = query.source[:-1]
        wanted.append(func.substr(_C.source, 1, len(head)) == head)  # not LIKE: SQLite takes a for A there
    elif query.source:
        wanted.append(_C.source == query.source)
    columns = select(_C.created_ms, _C.id, _C.record).where(*wanted)
    return await journal.rows(columns.order_by(_C.created_ms.desc(), _C.id.desc()).limit(query.limit))
