"""Lists of tasks, page by page: first what lives in Redis, then what has ended, newest first.

There is no index over queued tasks (it would cost more than the queue), so a page is read from the places where tasks
stand: running, assigned, delayed, queued, parked, ended but not archived yet, archived. A task that moves while the
pages are read, or before which others come and go, may be met twice or not at all; else it is met exactly once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.ids import TASK_ID
from tradewind.redis.connection import translated
from tradewind.tasks.record import DEAD_LETTERS, TERMINAL, Status, Task
from tradewind.tasks.store import TaskStore

CHUNK = 200
#: Tasks that are read with one call: each may have megabytes of arguments and results.
READ_COUNT = 40
MAX_LIMIT = 1000
#: How many tasks one page may look at; a filter that matches little ends the page early, with a cursor to go on.
MAX_LOOKED_AT = 20_000
_LIVE = {
    "inflight": {Status.PROCESSING},
    "assigned": {Status.ASSIGNED},
    "delayed": {Status.PENDING, Status.RETRYING},
    "high": {Status.QUEUED},
    "normal": {Status.QUEUED},
    "parked": {Status.QUEUED},
}
_ORDER = (*_LIVE, "outbox", "archive", "dead")


class Filter(msgspec.Struct, frozen=True):
    statuses: frozenset[Status] | None = None
    type: str | None = None
    tag: str | None = None

    def fits(self, task: Task) -> bool:
        return (
            (self.statuses is None or task.status in self.statuses)
            and (self.type is None or task.type == self.type)
            and (self.tag is None or self.tag in task.request.tags)
        )


class Page(msgspec.Struct, frozen=True):
    items: list[Task]
    next_cursor: str | None


_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Cursor(msgspec.Struct, array_like=True):
    """Named by place, not by its number: workers and parking lists come and go between two pages."""

    place: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    offset: _Whole = 0
    before_ms: _Whole = 0
    before_id: Annotated[str, msgspec.Meta(pattern=f"^({TASK_ID.pattern})?$")] = ""

    def __post_init__(self) -> None:
        if self.place and self.place.partition(":")[0] not in _ORDER:
            raise ValueError("no such place")


class TaskListing:
    def __init__(self, store: TaskStore) -> None:
        self.store = store
        self.plane = store.plane

    async def page(self, wanted: Filter, cursor: str | None = None, limit: int = 50) -> Page:
        """Up to `limit` tasks and the cursor of the next page (None at the end). Raises Invalid."""
        _check_limit(limit)
        at = _read_cursor(cursor)
        items: list[Task] = []
        looked = 0
        for place in await self._places(wanted):
            if _rank(place) < _rank(at.place):
                continue
            if place != at.place:
                at = _Cursor(place)
            if place == "archive":
                return await self._archived(wanted, at, items, limit)
            is_more = True
            while is_more:
                if looked >= MAX_LOOKED_AT:
                    return Page(items, _write_cursor(at))
                ids = await self._ids(place, at.offset)
                for start in range(0, len(ids), READ_COUNT):
                    read = await self.store.read_live(ids[start : start + READ_COUNT])
                    for index, task in enumerate(read, start):
                        if task is not None and _belongs(task, place) and wanted.fits(task):
                            items.append(task)
                            if len(items) == limit:
                                return Page(items, _write_cursor(_Cursor(place, at.offset + index + 1)))
                looked += len(ids)
                at = _Cursor(place, at.offset + len(ids))
                is_more = len(ids) == CHUNK
        return Page(items, None)

    async def _archived(self, wanted: Filter, at: _Cursor, items: list[Task], limit: int) -> Page:
        """Fill the page from the archive, without what was brought back since: that stands in its new place."""
        assert self.store.archive is not None
        before = (at.before_ms, at.before_id) if at.before_id else None
        room = limit - len(items)
        found = await self.store.archive.page(
            statuses=wanted.statuses, type=wanted.type, tag=wanted.tag, before=before, limit=room
        )
        with translated():
            pipe = self.plane.redis.pipeline(transaction=False)
            for task in found:
                pipe.hmget(self.plane.keys.task(task.id), "status", "end")
            live = await pipe.execute()
        for task, (status, end) in zip(found, live, strict=True):
            if status is None or end == b"%d" % task.finished_ms:
                items.append(task)
        last = _Cursor("archive", 0, found[-1].finished_ms, found[-1].id) if len(found) == room else None
        return Page(items, _write_cursor(last) if last else None)

    async def walk(self, wanted: Filter) -> AsyncIterator[Task]:
        cursor: str | None = None
        while True:
            page = await self.page(wanted, cursor, MAX_LIMIT)
            for task in page.items:
                yield task
            cursor = page.next_cursor
            if cursor is None:
                return

    async def dead(self, cursor: str | None = None, limit: int = 50) -> Page:
        """Dead letters, newest first; with an archive also those that have left Redis."""
        if self.store.archive is not None:
            return await self.page(Filter(statuses=frozenset(DEAD_LETTERS)), cursor, limit)
        _check_limit(limit)
        start = _read_cursor(cursor).offset
        with translated():
            ids = await self.plane.redis.zrange(self.plane.keys.dead(), start, start + limit - 1, desc=True)
        tasks = await self.store.read_live([i.decode(errors="replace") for i in ids])
        after = _write_cursor(_Cursor("dead", start + limit)) if len(ids) == limit else None
        return Page([t for t in tasks if t is not None and t.status in DEAD_LETTERS], after)

    async def _places(self, wanted: Filter) -> list[str]:
        """Names of the places to look at, in order: `inflight:{worker}`, `assigned:{worker}`, `delayed`, …"""
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            known = set(await client.zrange(keys.workers(), 0, -1))
            types = await client.smembers(keys.worker_types())
            if types:  # also those that were registered by hand
                known |= await client.sunion([keys.worker_type(t.decode(errors="replace")) for t in types])
            workers = sorted(w.decode(errors="replace") for w in known)
            parked = sorted(p.decode(errors="replace") for p in await client.smembers(keys.parked()))
        places = [f"inflight:{w}" for w in workers] + [f"assigned:{w}" for w in workers]
        places += ["delayed", "high", "normal", *(f"parked:{p}" for p in parked)]
        if wanted.statuses is not None:
            places = [p for p in places if _LIVE[p.partition(":")[0]] & wanted.statuses]
        if wanted.statuses is None or wanted.statuses & TERMINAL:
            places += ["outbox", "archive"] if self.store.archive is not None else ["dead"]
        return places

    async def _ids(self, place: str, offset: int) -> list[str]:
        keys, client = self.plane.keys, self.plane.redis
        name, _, rest = place.partition(":")
        last = offset + CHUNK - 1
        with translated():
            if name == "inflight":
                raw = await client.zrange(keys.worker_inflight(rest), offset, last)
            elif name == "assigned":
                raw = await client.lrange(keys.worker_queue(rest), offset, last)
            elif name == "delayed":
                raw = await client.zrange(keys.delayed(), offset, last)
            elif name == "dead":
                raw = await client.zrange(keys.dead(), offset, last, desc=True)
            elif name == "parked":
                raw = await client.lrange(keys.parking(*rest.split(":", 1)), offset, last)
            elif name == "outbox":
                entries = await client.xrevrange(keys.outbox(), count=5000)
                ids = dict.fromkeys(i for _, fields in entries for i in reversed(fields[b"ids"].split()))
                raw = list(ids)[offset : last + 1]  # each once, also one that ended twice
            else:
                raw = await client.lrange(keys.queue(name), offset, last)
        return [i.decode(errors="replace") for i in raw]


def _belongs(task: Task, place: str) -> bool:
    """A tombstone in a list, or a task that has moved on, is not shown there."""
    name = place.partition(":")[0]
    return task.status in _LIVE.get(name, TERMINAL)


def _rank(place: str) -> tuple[int, str]:
    """Where a place stands in the order of pages; the empty one before all."""
    name, _, rest = place.partition(":")
    return _ORDER.index(name) if name else -1, rest


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise Invalid("the page size is not valid", problems=[Problem("out_of_range", "limit", f"1 to {MAX_LIMIT}")])


def _read_cursor(text: str | None) -> _Cursor:
    if not text:
        return _Cursor()
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Cursor)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        problem = Problem("bad_cursor", "cursor", "use next_cursor of the page before")
        raise Invalid("the cursor is not valid", hint=problem.hint, problems=[problem]) from error


def _write_cursor(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")
