"""The live picture of the station: one poller per process, once a second, and only while somebody watches.

Each part carries `{data, at, state}`: when it was last answered, and whether that is now. One that was never answered
has no data: an empty list means that there is nothing, never that nobody could be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import structlog

from tradewind import codec
from tradewind.alarms.listing import AlarmQuery
from tradewind.alarms.transitions import OPEN
from tradewind.api.channel_book import ChannelBook
from tradewind.api.commands import command_view
from tradewind.api.health import ask_health
from tradewind.api.models import model_glance
from tradewind.api.point_room import substitution_view
from tradewind.api.workers import worker_view
from tradewind.clock import iso, now_ms
from tradewind.errors import Overloaded, TradewindError
from tradewind.flows.overview import overview
from tradewind.ids import short_random
from tradewind.tasks.listing import Filter
from tradewind.tasks.record import TERMINAL, Status, Task

if TYPE_CHECKING:
    from tradewind.api.app import ApiStation

logger = structlog.get_logger("tradewind.api")

EVERY_S = 1.0
#: How long one snapshot waits for a part of the station.
PATIENCE_S = 2.0
MAX_WATCHERS = 500
NEWEST = 20
MAX_FLOWS = 200
MAX_CHANNELS = 100
MAX_MODELS = 100
MAX_ALARMS = 100
MAX_SUBSTITUTIONS = 100
#: A value of a task view with more JSON than this is shown as null: the picture is for the eye.
MAX_VALUE_BYTES = 2000
_LONG_VALUES = ("args", "kwargs", "result", "progress", "error")
#: Parts that show some of many: they have a total.
_COUNTED = frozenset(("flows", "channels", "models", "alarms", "substitutions"))
_PARTS = (
    "queues", "counts", "workers", "tasks", "flows", "channels", "models", "commands", "alarms", "substitutions",
)  # fmt: skip
_GROUPS = (
    frozenset({Status.PROCESSING}),
    frozenset({Status.ASSIGNED}),
    frozenset({Status.QUEUED}),
    frozenset({Status.PENDING, Status.RETRYING}),
    TERMINAL,
)


class PartState(StrEnum):
    """Of a part of a snapshot: answered for this one, answered earlier, never answered."""

    CURRENT = "current"
    STALE = "stale"
    UNKNOWN = "unknown"


class Snapshots:
    """`number` counts snapshots; a watcher asks for one newer than it has seen, so a slow one skips what it missed."""

    def __init__(self, station: ApiStation, book: ChannelBook) -> None:
        self._station = station
        self._book = book
        self._watchers = 0
        self._poller: asyncio.Task[None] | None = None
        self._number = 0
        self._text = b""
        self._news = asyncio.Event()
        self._is_closed = False
        self._parts: dict[str, dict[str, Any]] = {name: _unknown(name) for name in _PARTS}

    @property
    def is_polling(self) -> bool:
        return self._poller is not None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """The poller runs from the first watcher to the last. Raises Overloaded."""
        if self._watchers >= MAX_WATCHERS:
            raise Overloaded(f"{MAX_WATCHERS} watchers already", code="too_many_watchers", hint="close some pages")
        self._watchers += 1
        if self._poller is None:
            self._text = b""  # of an earlier life
            self._poller = asyncio.create_task(self._poll(), name="api-snapshots")
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._stop()

    async def newer_than(self, number: int) -> tuple[int, bytes] | None:
        """The event of the newest snapshot, one text for all watchers, once it is newer; None when the server stops."""
        while not self._is_closed:
            if self._text and self._number > number:
                return self._number, self._text
            await self._news.wait()
        return None

    def close(self) -> None:
        self._is_closed = True
        self._news.set()
        self._stop()

    def _stop(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                data = codec.encode(await self._take())
                self._number += 1
                self._text = b"event: snapshot\nid: %d\ndata: %s\n\n" % (self._number, data)
                news, self._news = self._news, asyncio.Event()
                news.set()
            except Exception:  # one bad answer must not end the stream of everybody
                logger.exception("no snapshot", error_id=short_random())
            await asyncio.sleep(max(0.1, EVERY_S - (loop.time() - began)))

    async def _take(self) -> dict[str, Any]:
        station = self._station
        health, *_ = await asyncio.gather(
            ask_health(station.health, station.version, PATIENCE_S),
            self._keep("queues", self._queues()),
            self._keep("counts", station.control.counts()),
            self._keep("workers", self._workers()),
            self._keep("tasks", self._newest()),
            self._keep("flows", overview(station.flows.store, MAX_FLOWS)),
            self._keep("channels", self._channels()),
            self._keep("models", self._models()),
            self._keep("commands", self._commands()),
            self._keep("alarms", self._alarms()),
            self._keep("substitutions", self._substitutions()),
        )
        at, name = iso(now_ms()), {"name": station.name, "version": station.version}
        return {"at": at, "station": name, "health": health, **self._parts}

    async def _keep(self, part: str, answer: Awaitable[Any]) -> None:
        """Without an answer the last one stands, and is marked as old."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                data = await answer
        except (TradewindError, TimeoutError):
            self._age(part)
            return
        except Exception:  # what one part cannot answer must not hide the others
            logger.exception("no answer for the live picture", part=part, error_id=short_random())
            self._age(part)
            return
        total = {}
        if part in _COUNTED:
            data, total["total"] = data
        self._parts[part] = {"data": data, "at": iso(now_ms()), "state": PartState.CURRENT, **total}

    def _age(self, part: str) -> None:
        last = self._parts[part]
        if last["state"] == PartState.CURRENT:
            self._parts[part] = {**last, "state": PartState.STALE}

    async def _queues(self) -> list[dict[str, Any]]:
        queues = await self._station.control.queues()
        return [{"name": queue.name, "length": queue.length, "paused": queue.is_paused} for queue in queues]

    async def _workers(self) -> list[dict[str, Any]]:
        return [worker_view(worker) for worker in await self._station.control.workers()]

    async def _channels(self) -> tuple[list[dict[str, Any]], int]:
        ids = await self._book.ids()
        return await self._book.views(ids[:MAX_CHANNELS]), len(ids)

    async def _models(self) -> tuple[list[dict[str, Any]], int]:
        definitions = await self._station.points.models.load()
        names = sorted(definitions.models)
        return [model_glance(name, definitions) for name in names[:MAX_MODELS]], len(names)

    async def _commands(self) -> list[dict[str, Any]]:
        return [command_view(command) for command in await self._station.points.commands.list(limit=NEWEST)]

    async def _alarms(self) -> tuple[list[dict[str, Any]], int]:
        """The newest open ones, and how many are open."""
        page = await self._station.rules.alarms.list(AlarmQuery(status=OPEN, limit=MAX_ALARMS))
        figures = await self._station.rules.statistics(1)
        return [alarm.to_json() for alarm in page.alarms], sum(figures.open.values())

    async def _substitutions(self) -> tuple[list[dict[str, Any]], int]:
        found = await self._station.points.substitutions.standing()
        return [substitution_view(item) for item in found[:MAX_SUBSTITUTIONS]], len(found)

    async def _newest(self) -> list[dict[str, Any]]:
        found: dict[str, Task] = {}
        for statuses in _GROUPS:
            page = await self._station.listing.page(Filter(statuses=statuses), None, NEWEST)
            found |= {task.id: task for task in page.items}
        newest = sorted(found.values(), key=lambda task: (task.created_ms, task.id), reverse=True)
        return [_short(task.view()) for task in newest[:NEWEST]]


def _unknown(part: str) -> dict[str, Any]:
    total = {"total": None} if part in _COUNTED else {}
    return {"data": None, "at": None, "state": PartState.UNKNOWN, **total}


def _short(view: dict[str, Any]) -> dict[str, Any]:
    for name in _LONG_VALUES:
        if view[name] is not None and len(codec.encode(view[name])) > MAX_VALUE_BYTES:
            view[name] = (
                {**view[name], "traceback": "", "message": view[name]["message"][:500]} if name == "error" else None
            )
    return view
