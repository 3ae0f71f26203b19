"""Lists of tasks, page by page: first what lives in Redis, then what has ended, newest first.

There is no index over queued tasks (it would cost more than the queue), so a page is read from the places where tasks
stand: running, assigned, delayed, queued, parked, ended but not archived yet, archived. A task that moves while the
pages are read may be met twice or be found in its next place; one that stands still is met exactly once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.redis.connection import translated
from tradewind.tasks.record import DEAD_LETTERS, TERMINAL, Status, Task
from tradewind.tasks.store import TaskStore

CHUNK = 200
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


class _Cursor(msgspec.Struct, array_like=True):
    place: int = 0
    offset: int = 0
    before_ms: int = 0
    before_id: str = ""


class TaskListing:
    def __init__(self, store: TaskStore) -> None:
        self.store = store
        self.plane = store.plane

    async def page(self, wanted: Filter, cursor: str | None = None, limit: int = 50) -> Page:
        """Up to `limit` tasks and the cursor of the next page (None at the end). Raises Invalid."""
        if not 1 <= limit <= MAX_LIMIT:
            raise Invalid(
                "the page size is not valid", problems=[Problem("out_of_range", "limit", f"1 to {MAX_LIMIT}")]
            )
        at, places = _read_cursor(cursor), await self._places(wanted)
        items: list[Task] = []
        looked = 0
        while at.place < len(places):
            name = places[at.place]
            if name == "archive":
                room = limit - len(items)
                assert self.store.archive is not None
                before = (at.before_ms, at.before_id) if at.before_id else None
                found = await self.store.archive.page(
                    statuses=wanted.statuses, type=wanted.type, tag=wanted.tag, before=before, limit=room
                )
                items += found
                if len(found) < room:
                    return Page(items, None)
                at = _Cursor(at.place, 0, found[-1].finished_ms, found[-1].id)
                return Page(items, _write_cursor(at))
            ids = await self._ids(name, at.offset)
            tasks = await self.store.read_live(ids)
            for index, task in enumerate(tasks):
                if task is not None and _belongs(task, name) and wanted.fits(task):
                    items.append(task)
                    if len(items) == limit:
                        return Page(items, _write_cursor(_Cursor(at.place, at.offset + index + 1)))
            looked += len(ids)
            at = _Cursor(at.place, at.offset + len(ids)) if len(ids) == CHUNK else _Cursor(at.place + 1)
            if looked >= MAX_LOOKED_AT:
                return Page(items, _write_cursor(at))
        return Page(items, None)

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
        start = _read_cursor(cursor).offset
        with translated():
            ids = await self.plane.redis.zrange(self.plane.keys.dead(), start, start + limit - 1, desc=True)
        tasks = await self.store.read_live([i.decode() for i in ids])
        after = _write_cursor(_Cursor(0, start + limit)) if len(ids) == limit else None
        return Page([t for t in tasks if t is not None and t.status in DEAD_LETTERS], after)

    async def _places(self, wanted: Filter) -> list[str]:
        """Names of the places to look at, in order: `inflight:{worker}`, `assigned:{worker}`, `delayed`, …"""
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            workers = sorted(w.decode() for w in await client.zrange(keys.workers(), 0, -1))
            parked = sorted(p.decode() for p in await client.smembers(keys.parked()))
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
                raw = [i for _, fields in entries for i in reversed(fields[b"ids"].split())][offset : last + 1]
            else:
                raw = await client.lrange(keys.queue(name), offset, last)
        return [i.decode() for i in raw]


def _belongs(task: Task, place: str) -> bool:
    """A tombstone in a list, or a task that has moved on, is not shown there."""
    name = place.partition(":")[0]
    return task.status in _LIVE.get(name, TERMINAL)


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
