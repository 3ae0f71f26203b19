"""Lists of alarms, newest first, page by page; filters combine. A page looks at a bounded number of alarms."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind import codec
from tradewind.alarms.record import ALARM_ID, LEVELS, Alarm, Level, from_redis, level_of
from tradewind.alarms.transitions import OPEN, Status
from tradewind.errors import Invalid, Problem
from tradewind.points.plane import PointPlane
from tradewind.redis.scripts import Arg, Scripts
from tradewind.redis.text import text_of

if TYPE_CHECKING:
    from tradewind.alarms.store import AlarmStore

#: Alarms that one script and one page look at. A page that found less than asked within that says where it stands.
LOOK, LOOK_MOST = 2_000, 50_000
MAX_LIMIT = 1_000
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
#: Closed, whether Redis still has it or not.
ARCHIVED = "archived"
_ENDED = (Status.RESOLVED, Status.CLOSED)
_STATUS_WORDS: dict[str, tuple[Status, ...]] = {status.lower(): (status,) for status in Status}
_STATUS_WORDS |= {"active": (Status.NEW, Status.ESCALATED), ARCHIVED: (Status.CLOSED,), "open": OPEN}
COLUMNS = (
    "id",
    "title",
    "description",
    "level",
    "status",
    "category",
    "priority",
    "tags",
    "source_point",
    "threshold_value",
    "actual_value",
    "created_at",
    "updated_at",
    "acknowledged_by",
    "acknowledged_at",
    "resolved_at",
    "data",
    "rule_id",
    "count",
    "first_seen",
    "last_seen",
    "shelved_until",
    "note",
)


class AlarmQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Empty = any. `source` may end in `*`. Times in ms of `created_at`, both included. `after`: `next` of a page.
    `archived`: also those that have left Redis, from SQL."""

    status: Sequence[Status] = ()
    level: Sequence[Level] = ()
    category: Sequence[str] = ()
    source: str = ""
    rule_id: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = 100
    after: str = ""
    archived: bool = False

    @classmethod
    def of_words(
        cls,
        *,
        status: Sequence[str] = (),
        level: Sequence[str] = (),
        category: Sequence[str] = (),
        archived: bool = False,
        **more: Any,
    ) -> AlarmQuery:
        """From what people write: any case, `active`, `open`, `archived`, Major, Minor, Warning. Raises Invalid."""
        problems = []
        statuses: list[Status] = []
        for word in (each.strip().lower() for each in status):
            found = _STATUS_WORDS.get(word, ())
            statuses += found
            archived = archived or word == ARCHIVED
            if not found:
                problems.append(Problem("bad_status", "status", f"one of {', '.join(Status)}, open, active, archived"))
        levels = [level_of(word) for word in level]
        if None in levels:
            problems.append(Problem("bad_level", "level", f"one of {', '.join(LEVELS)}"))
        if not 1 <= more.get("limit", 1) <= MAX_LIMIT:
            problems.append(Problem("bad_limit", "limit", f"1 to {MAX_LIMIT}"))
        if problems:
            hint = problems[0].hint
            raise Invalid(f"{problems[0].path}: {hint}", code="bad_query", hint="see problems", problems=problems)
        known = [found for found in levels if found is not None]
        chosen = tuple(dict.fromkeys(statuses))
        return cls(status=chosen, level=known, category=tuple(category), archived=archived, **more)


class AlarmPage(msgspec.Struct, frozen=True):
    """`next` is `` at the end; a page may be short and still have a next one."""

    alarms: list[Alarm]
    next: str


async def read_page(plane: PointPlane, scripts: Scripts, query: AlarmQuery) -> AlarmPage:
    """Of those that Redis has. Raises Invalid for a bad `after`."""
    keys, (order, filters) = plane.keys, _way(query)
    high = "+inf" if query.to_ms is None else str(query.to_ms)
    low = "-inf" if query.from_ms is None else str(query.from_ms)
    last_ms, place = place_of(query.after)
    last_id = place.encode()
    found: list[Alarm] = []
    looked = 0
    packed = codec.encode(filters)
    while True:
        want = query.limit - len(found)
        look = LOOK if filters else want
        args: list[Arg] = [keys.p, high, low, last_ms, last_id, want, look, packed]
        ms, alarm_id, rows = await scripts.run("alarm_page", [keys.alarm_order(order)], args)
        last_ms, last_id = text_of(ms), alarm_id
        found += (alarm for alarm in map(from_redis, rows) if alarm is not None)
        looked += look
        if not last_id or len(found) >= query.limit or looked >= LOOK_MOST:
            return AlarmPage(found, f"{last_ms}-{text_of(last_id)}" if last_id else "")


async def export_rows(store: AlarmStore, query: AlarmQuery) -> AsyncIterator[list[str]]:
    """The header, then a row per alarm, for a CSV file. `limit` is the size of the pages, not the end."""
    yield list(COLUMNS)
    while True:
        page = await store.list(query)
        for alarm in page.alarms:
            fields = alarm.to_json()
            yield [_cell(fields[name]) for name in COLUMNS]
        if not page.next:
            return
        query = msgspec.structs.replace(query, after=page.next)


def _way(query: AlarmQuery) -> tuple[str, dict[str, list[str]]]:
    """The order to walk along, and what it does not answer by itself."""
    filters: dict[str, list[str]] = {}
    statuses, levels = set(query.status), set(query.level)
    order = "all"
    if statuses and statuses <= set(OPEN):
        order = "open"
        if len(levels) == 1:
            order, levels = f"open:{next(iter(levels)).value}", set()
        if statuses == set(OPEN):
            statuses = set()
    elif statuses and statuses <= set(_ENDED):
        order = "ended"
        if len(statuses) == len(_ENDED):
            statuses = set()
    for name, words in (("status", statuses), ("level", levels), ("category", query.category)):
        if words:
            filters[name] = sorted(str(word) for word in words)
    if query.source:
        filters["source"] = [query.source]
    if query.rule_id:
        filters["rule_id"] = [query.rule_id]
    return order, filters


def place_of(after: str) -> tuple[str, str]:
    """Ms and id of the last one seen, both `` for the beginning. Raises Invalid."""
    if not after:
        return "", ""
    ms, _, alarm_id = after.partition("-")
    if not (ms.isascii() and ms.isdigit() and len(ms) < 16 and ALARM_ID.fullmatch(alarm_id)):
        raise Invalid(f"{after[:80]!r} is no place in a list", code="bad_after", hint="use `next` of the page before")
    return ms, alarm_id


def _cell(value: Any) -> str:
    """As text; what a spreadsheet would take for a formula is quoted, what a terminal would obey is struck out."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return codec.encode(value).decode()
    text = _CONTROL.sub("\ufffd", value)
    if text[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and not _is_number(text):
        return f"'{text}"
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
