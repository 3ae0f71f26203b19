"""Logs, signals and cycles of flows out of SQL, page by page. What runs right now may be ahead of it: see Redis.

Every method raises Unavailable when the database cannot be used now, and Invalid for a filter that cannot be.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Row, Select, or_, select, tuple_

from tradewind import codec
from tradewind.errors import Invalid, Problem
from tradewind.sql import Sql
from tradewind.sql.tables import flow_cycles, flow_logs, flow_signals

T = TypeVar("T")

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_LIMIT = 1000
MAX_SEARCH = 200
_MAX_INT = 2**63 - 1
_EDGE = (
    flow_signals.c.source_node,
    flow_signals.c.source_handle,
    flow_signals.c.target_node,
    flow_signals.c.target_handle,
)


class LogEntry(msgspec.Struct, frozen=True):
    """`seq` counts the lines as they were recorded; as a string it is the cursor that goes on after this line."""

    seq: int
    flow_id: str
    cycle: int
    node_id: str | None
    log_level: str
    log_source: str
    message: str
    log_metadata: Any
    created_ms: int


class SignalEntry(msgspec.Struct, frozen=True):
    """A signal on one edge; both targets are empty for an output that leads nowhere."""

    flow_id: str
    cycle: int
    source_node: str
    source_handle: str
    target_node: str
    target_handle: str
    signal_id: str
    type: str
    payload: Any
    created_ms: int


class CycleEntry(msgspec.Struct, frozen=True):
    """Times are 0 if they did not happen. `nodes`: node id → [status, started_ms, finished_ms, error]; None in lists,
    and while the cycle runs."""

    flow_id: str
    cycle: int
    status: str
    trigger: str
    slot_ms: int
    start_ms: int
    end_ms: int
    counts: dict[str, int]
    stopped_by: str
    error: str
    nodes: dict[str, list[Any]] | None = None


class RecordPage(msgspec.Struct, Generic[T], frozen=True):
    """`next_cursor` is None on the last page."""

    items: list[T]
    next_cursor: str | None = None


class FlowRecords:
    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def logs(
        self,
        flow_id: str,
        *,
        cycle: int | None = None,
        node_id: str | None = None,
        level: str | None = None,
        source: str | None = None,
        search: str | None = None,
        after: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> RecordPage[LogEntry]:
        """Lines in the order of their recording, which a line that comes later never disturbs.

        `level` is the lowest one wanted; `search` is a part of the message, in whatever case. `after` is `next_cursor`,
        or the `seq` of the last line seen, to follow what comes.
        """
        _check_limit(limit)
        columns = flow_logs.c
        query = select(flow_logs).where(columns.flow_id == flow_id)
        if cycle is not None:
            query = query.where(columns.cycle == _number(cycle, "cycle"))
        if node_id is not None:
            query = query.where(columns.node_id == node_id)
        if level is not None:
            query = _at_least(query, level)
        if source is not None:
            query = query.where(columns.log_source == source)
        if search:
            query = query.where(columns.message.icontains(_search(search), autoescape=True))
        if after:
            seq = _number(after, "cursor")
            query = query.where(columns.seq < seq if newest_first else columns.seq > seq)
        query = query.order_by(columns.seq.desc() if newest_first else columns.seq)
        rows, is_more = await self._page(query, limit, "read logs")
        return RecordPage([_log(row) for row in rows], str(rows[-1].seq) if is_more else None)

    async def signals(
        self, flow_id: str, cycle: int, *, node: str | None = None, after: str | None = None, limit: int = 100
    ) -> RecordPage[SignalEntry]:
        """Signals of a cycle in the order of their edges, one per edge; those that `node` sent or was sent."""
        _check_limit(limit)
        columns = flow_signals.c
        query = select(flow_signals).where(columns.flow_id == flow_id, columns.cycle == _number(cycle, "cycle"))
        if node is not None:
            query = query.where(or_(columns.source_node == node, columns.target_node == node))
        if after:
            query = query.where(tuple_(*_EDGE) > tuple_(*_read_edge(after)))
        rows, is_more = await self._page(query.order_by(*_EDGE), limit, "read signals")
        items = [SignalEntry(**{**row._mapping, "payload": _value(row.payload)}) for row in rows]
        return RecordPage(items, _write_edge(items[-1]) if is_more else None)

    async def cycles(
        self, flow_id: str, *, status: str | None = None, before: int | str | None = None, limit: int = 100
    ) -> RecordPage[CycleEntry]:
        """Newest first, without their nodes; `before` is a cycle's number, or `next_cursor`."""
        _check_limit(limit)
        columns = flow_cycles.c
        query = select(*(column for column in columns if column is not columns.nodes)).where(columns.flow_id == flow_id)
        if status is not None:
            query = query.where(columns.status == status)
        if before is not None and before != "":
            query = query.where(columns.cycle < _number(before, "cursor"))
        rows, is_more = await self._page(query.order_by(columns.cycle.desc()), limit, "list cycles")
        return RecordPage([_cycle(row) for row in rows], str(rows[-1].cycle) if is_more else None)

    async def cycle(self, flow_id: str, cycle: int) -> CycleEntry | None:
        """With its nodes; None if the record does not have it (any more)."""
        columns = flow_cycles.c
        query = select(flow_cycles).where(columns.flow_id == flow_id, columns.cycle == _number(cycle, "cycle"))
        async with self._sql.read("read a cycle") as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _cycle(row, _value(row.nodes) if row.nodes else None)

    async def _page(self, query: Select[Any], limit: int, doing: str) -> tuple[list[Row[Any]], bool]:
        async with self._sql.read(doing) as connection:
            rows = list(await connection.execute(query.limit(limit + 1)))
        return rows[:limit], len(rows) > limit


def _value(text: str) -> Any:
    """JSON was checked for its form only when it was stored (1e999 passes): then the text is shown."""
    try:
        return codec.decode(text)
    except Invalid:
        return text


def _log(row: Row[Any]) -> LogEntry:
    return LogEntry(
        row.seq,
        row.flow_id,
        row.cycle,
        row.node_id,
        row.log_level,
        row.log_source,
        row.message,
        None if row.log_metadata is None else _value(row.log_metadata),
        row.created_ms,
    )


def _cycle(row: Row[Any], nodes: dict[str, list[Any]] | None = None) -> CycleEntry:
    return CycleEntry(
        row.flow_id,
        row.cycle,
        row.status,
        row.trigger,
        row.slot_ms,
        row.start_ms,
        row.end_ms,
        {name: row._mapping[name] for name in ("total", "completed", "failed", "skipped", "terminated")},
        row.stopped_by,
        row.error,
        nodes,
    )


def _at_least(query: Select[Any], level: str) -> Select[Any]:
    name = level.upper()
    if name not in LEVELS:
        raise _invalid("bad_level", "level", f"one of {', '.join(LEVELS)}")
    if name == LEVELS[0]:
        return query  # also the levels that nobody knows
    return query.where(flow_logs.c.log_level.in_(LEVELS[LEVELS.index(name) :]))


def _search(text: str) -> str:
    if len(text) > MAX_SEARCH or "\0" in text:
        raise _invalid("bad_search", "search", f"at most {MAX_SEARCH} characters, no NUL")
    return text


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise _invalid("out_of_range", "limit", f"1 to {MAX_LIMIT}")


def _number(value: int | str, path: str) -> int:
    try:
        number = int(value) if isinstance(value, int) or value.isascii() else None
    except ValueError:
        number = None
    if number is None or abs(number) > _MAX_INT:
        code = "bad_cursor" if path == "cursor" else "out_of_range"
        raise _invalid(code, path, "use next_cursor of the page before" if path == "cursor" else "not that large")
    return number


def _write_edge(entry: SignalEntry) -> str:
    edge = [entry.source_node, entry.source_handle, entry.target_node, entry.target_handle]
    return base64.urlsafe_b64encode(codec.encode(edge)).decode().rstrip("=")


def _read_edge(cursor: str) -> tuple[str, str, str, str]:
    try:
        edge = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        found = msgspec.json.decode(edge, type=tuple[str, str, str, str])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise _invalid("bad_cursor", "cursor", "use next_cursor of the page before") from error
    if "\0" in "".join(found):
        raise _invalid("bad_cursor", "cursor", "use next_cursor of the page before")
    return found


def _invalid(code: str, path: str, hint: str) -> Invalid:
    return Invalid(f"{path} is not valid", hint=hint, problems=[Problem(code, path, hint)])
