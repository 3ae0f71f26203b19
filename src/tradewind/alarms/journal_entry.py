"""A transition of an alarm, as the stream `alarm:journal` and SQL have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

from tradewind.points.plane import PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.text import stream_id_of

if TYPE_CHECKING:
    from tradewind.alarms.journal import AlarmJournal  # SQL is heavy, and not every role needs it

#: The recorder's field in `station:cursors`; other readers of the stream have fields with the same beginning.
READERS = "alarm:journal@"
SQL_CURSOR = f"{READERS}sql"
#: Entries on their way to SQL that are read together, the newest first: what is asked for is mostly young.
_AT_ONCE = 5_000


async def read_leaving(plane: PointPlane) -> dict[str, bytes]:
    """Records (JSON) of alarms that have left Redis and are on their way to SQL, by id. Raises Unavailable.

    To miss none, read what Redis has before, and SQL after: an alarm moves from the one to the stream in one step, and
    leaves the stream when SQL has it.
    """
    keys = plane.keys
    with translated(plane.link):
        cursor = await plane.redis.hget(keys.cursors(), SQL_CURSOR)
    found: dict[str, bytes] = {}
    after = f"({at}" if (at := stream_id_of(cursor)) else "-"
    while after:
        with translated(plane.link):
            rows = await plane.redis.xrange(keys.alarm_journal(), after, "+", count=_AT_ONCE)
        found |= {
            fields[b"id"].decode(errors="replace"): fields[b"record"]
            for _, fields in rows
            if b"record" in fields and b"id" in fields
        }
        after = f"({rows[-1][0].decode()}" if len(rows) == _AT_ONCE else ""
    return found


class JournalEntry(NamedTuple):
    """One transition. `from_status` is empty for the first; `version` counts them per alarm."""

    alarm_id: str
    version: int
    event: str
    from_status: str
    to_status: str
    at_ms: int
    who: str
    note: str
    rule_id: str
    source: str
    level: str
    category: str
    raised: int
    actual_value: str
    title: str

    @classmethod
    def of_stream(cls, fields: Mapping[bytes, bytes]) -> Self:
        """Raises KeyError, ValueError for what is no entry."""

        def text(name: bytes) -> str:
            # PostgreSQL takes no NUL in a text.
            return fields[name].decode(errors="replace").replace("\0", "\ufffd")

        words = [text(name) for name in (b"who", b"note", b"rule_id", b"source", b"level", b"category")]
        head = (text(b"id")[:64], int(fields[b"version"]), text(b"event"), text(b"from"), text(b"to"))
        return cls._make((*head, int(fields[b"at"]), *words, int(fields[b"count"]), text(b"actual"), text(b"title")))

    @classmethod
    async def read(cls, plane: PointPlane, journal: AlarmJournal | None, alarm_id: str) -> list[Self]:
        """Of one alarm, oldest first: from SQL, if it is given, and from the stream."""
        keys = plane.keys
        with translated(plane.link):
            cursor = await plane.redis.hget(keys.cursors(), SQL_CURSOR) if journal is not None else None
        found: dict[int, Self] = {}
        before, after = "+", f"({at}" if (at := stream_id_of(cursor)) else "-"
        while before and 1 not in found:
            with translated(plane.link):
                rows = await plane.redis.xrevrange(keys.alarm_journal(), before, after, count=_AT_ONCE)
            for entry in (cls.of_stream(fields) for _, fields in rows if fields.get(b"id") == alarm_id.encode()):
                found[entry.version] = entry
            before = f"({rows[-1][0].decode()}" if len(rows) == _AT_ONCE else ""
        if journal is not None:
            found |= {entry.version: cls(*entry) for entry in await journal.read(alarm_id)}
        return [found[version] for version in sorted(found)]
