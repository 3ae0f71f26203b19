"""Values for who watches them: the board is looked at a few times a second, once for all watchers of this process.

Looking, instead of following the change feed, costs by what is watched and not by what is written, and it sees values
grow stale. A watcher holds one value per point, the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from tradewind.api.point_request import Wanted
from tradewind.api.point_room import PointServices, read_channel, read_model, read_points
from tradewind.errors import Overloaded, TradewindError
from tradewind.ids import short_random
from tradewind.points.board import PointValue

logger = structlog.get_logger("tradewind.api")

EVERY_S = 0.2
#: A look that takes long is followed by a pause so many times as long, so that watchers never eat up the process.
PAUSE_FACTOR = 4
PATIENCE_S = 5.0
MAX_WATCHERS = 500


class PointWatcher:
    """First everything that is wanted, then what has another value, time or quality than before; None in between while
    nobody can look, so that what was shown last is not taken for what stands now."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._seen: dict[str, tuple[float | None, int | None, str]] = {}
        self._waiting: dict[str, PointValue] = {}
        self._news = asyncio.Event()
        self._is_first = True
        self._is_unknown = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """The server stops."""
        return self._is_closed

    def doubt(self) -> None:
        """The board could not be looked at."""
        if not self._is_unknown:
            self._is_unknown = True
            self._news.set()

    def show(self, points: list[PointValue]) -> None:
        for point in points:
            now = (point.value, point.ts, point.quality)
            if self._seen.get(point.address) != now:
                self._seen[point.address] = now
                self._waiting[point.address] = point
        if self._waiting or self._is_first or self._is_unknown:
            self._is_first = self._is_unknown = False
            self._news.set()

    def close(self) -> None:
        self._is_closed = True
        self._news.set()

    async def next(self) -> list[PointValue] | None:
        """None when the values are not known now, and when the server stops."""
        await self._news.wait()
        if self._is_closed:
            return None
        self._news.clear()
        if self._is_unknown:
            return None
        points, self._waiting = list(self._waiting.values()), {}
        return points


class PointFeed:
    def __init__(self, room: PointServices) -> None:
        self._room = room
        self._watchers: set[PointWatcher] = set()
        self._poller: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        return self._poller is not None

    @contextmanager
    def watch(self, wanted: Wanted) -> Iterator[PointWatcher]:
        """Raises Overloaded."""
        if len(self._watchers) >= MAX_WATCHERS:
            raise Overloaded(f"{MAX_WATCHERS} watch points already", code="too_many_watchers", hint="ask again later")
        watcher = PointWatcher(wanted)
        if self._is_closed:
            watcher.close()
        elif self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name="api-points")
        self._watchers.add(watcher)
        self._came.set()
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._stop()

    def close(self) -> None:
        """Let everybody go; later watchers end at once."""
        self._is_closed = True
        for watcher in self._watchers:
            watcher.close()
        self._stop()

    def _stop(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            self._poller = None

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._came.clear()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._look()
            except (TradewindError, TimeoutError):
                self._doubt()
            except Exception:  # one bad answer must not end the stream of everybody
                logger.exception("points cannot be watched", error_id=short_random())
                self._doubt()
            took_s = loop.time() - began
            with suppress(TimeoutError):
                async with asyncio.timeout(max(EVERY_S - took_s, took_s * PAUSE_FACTOR)):
                    await self._came.wait()  # somebody new need not wait

    def _doubt(self) -> None:
        for watcher in self._watchers:
            watcher.doubt()

    async def _look(self) -> None:
        watchers = list(self._watchers)
        addresses = list(dict.fromkeys(address for each in watchers for address in each.wanted.addresses))
        hashes = dict.fromkeys((name, each.wanted.kinds) for each in watchers for name in each.wanted.channels)
        models = dict.fromkeys(model for each in watchers for model in each.wanted.models)
        room = self._room
        points = dict(zip(addresses, await read_points(room, addresses), strict=True))
        of_channel = {key: await read_channel(room, *key) for key in hashes}
        of_model = {model: await read_model(room, model) for model in models}
        for watcher in watchers:
            wanted = watcher.wanted
            shown = [points[address] for address in wanted.addresses]
            for channel in wanted.channels:
                shown += of_channel[channel, wanted.kinds]
            for model in wanted.models:
                shown += of_model[model]
            watcher.show(shown)
