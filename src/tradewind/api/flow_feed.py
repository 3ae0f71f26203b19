"""What happens in flows right now, for who watches: one subscription and one reader of the outbox per process.

Both are open only while somebody watches. Nothing is kept for a slow watcher beyond a bound; SQL has the whole record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog
from redis.exceptions import RedisError, ResponseError

from tradewind import codec
from tradewind.api.live_events import RECONNECT_S, EventQueue, listen
from tradewind.clock import iso
from tradewind.errors import Invalid, Overloaded
from tradewind.flows.plane import FlowPlane

logger = structlog.get_logger("tradewind.api")

MAX_WATCHERS = 1000
READ_S = 5.0
READ_COUNT = 100

Wanted = Callable[[str, dict[str, Any]], bool]


class Watcher(EventQueue):
    """The events of one flow that are wanted. Names: log, signal, cycle, node, gone, lost."""

    def __init__(self, flow_id: str, is_wanted: Wanted) -> None:
        super().__init__()
        self.flow_id = flow_id
        self._is_wanted = is_wanted

    def push(self, name: str, data: dict[str, Any]) -> None:
        if self._is_wanted(name, data):
            self.put(name, data)


class FlowFeed:
    def __init__(self, plane: FlowPlane) -> None:
        self._plane = plane
        self._watchers: dict[str, set[Watcher]] = {}
        self._count = 0
        self._readers = 0
        self._listening, self._reading = asyncio.Event(), asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        return self._listener is not None or self._reader is not None

    @contextmanager
    def watch(self, flow_id: str, is_wanted: Wanted, *, with_records: bool = True) -> Iterator[Watcher]:
        """Without records only `cycle` and `node` events come. Raises Overloaded."""
        if self._count >= MAX_WATCHERS:
            raise Overloaded(f"{MAX_WATCHERS} watch flows already", code="too_many_watchers", hint="ask again later")
        watcher = Watcher(flow_id, is_wanted)
        if self._is_closed:
            watcher.close()
        self._watchers.setdefault(flow_id, set()).add(watcher)
        self._count += 1
        self._readers += with_records
        if self._listener is None and not self._is_closed:
            self._listener = asyncio.create_task(
                listen(self._plane.link, self._plane.keys.flow_events(), self._listening, self._tell, self._miss),
                name="api-flow-events",
            )
        if self._reader is None and with_records and not self._is_closed:
            self._reader = asyncio.create_task(self._read(), name="api-flow-records")
        try:
            yield watcher
        finally:
            self._watchers[flow_id].discard(watcher)
            if not self._watchers[flow_id]:
                del self._watchers[flow_id]
            self._count -= 1
            self._readers -= with_records
            self._stop()

    async def ready(self, *, with_records: bool = True) -> None:
        """Returns when nothing that happens from now on is missed."""
        await self._listening.wait()
        if with_records:
            await self._reading.wait()

    def close(self) -> None:
        """Let everybody go; later watchers end at once."""
        self._is_closed = True
        self._listening.set()
        self._reading.set()
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.close()
        self._stop()

    def _stop(self) -> None:
        """What nobody needs any more."""
        if self._listener is not None and (self._is_closed or not self._count):
            self._listener.cancel()
            self._listener = None
            self._listening = asyncio.Event() if not self._is_closed else self._listening
        if self._reader is not None and (self._is_closed or not self._readers):
            self._reader.cancel()
            self._reader = None
            self._reading = asyncio.Event() if not self._is_closed else self._reading

    def _miss(self) -> None:
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.miss()

    async def _tell(self, messages: list[bytes]) -> None:
        for event in map(_decoded, messages):
            if isinstance(event, dict) and (watchers := self._watchers.get(event.get("flow_id", ""))):
                name = "node" if event.get("node_id") else "cycle"
                for watcher in watchers:
                    watcher.push(name, event)

    async def _read(self) -> None:
        key, is_open = self._plane.keys.flow_outbox(), self._reading
        last: str | bytes = ""
        while True:
            async with self._plane.link.new_client(READ_S) as client:
                with suppress(RedisError):
                    if last:
                        self._miss()  # records that SQL had meanwhile are not in the stream any more
                    last = last or await _last_id(client, key)
                    is_open.set()
                    while True:
                        found: Any = await client.xread({key: last}, count=READ_COUNT, block=int(READ_S * 1000))
                        for entry_id, fields in found[0][1] if found else ():
                            last = entry_id
                            self._spread(fields.get(b"d", b""))
            is_open.clear()
            await asyncio.sleep(RECONNECT_S)

    def _spread(self, data: bytes) -> None:
        # Looking for the name first: most entries are of flows that nobody watches, and they may be long.
        if not any(b'"%s"' % flow_id.encode() in data for flow_id in self._watchers):
            return
        records = _decoded(data)
        for record in records if isinstance(records, list) else []:
            watchers = self._watchers.get(record.get("flow", "")) if isinstance(record, dict) else None
            event = _event(record) if watchers else None
            if watchers and event is not None:
                for watcher in watchers:
                    watcher.push(*event)


def _event(record: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """A record of the outbox as the API shows it; the ends of cycles come as events of the channel."""
    match record.get("k"):
        case "log":
            return "log", {
                "flow_id": record["flow"],
                "cycle": record["cycle"],
                "node_id": record["node"],
                "log_level": record["level"],
                "log_source": record["source"],
                "message": record["message"],
                "log_metadata": record["meta"],
                "created_at": iso(record["at"]),
            }
        case "signal":
            targets = [{"node": node, "handle": handle} for node, handle in record["to"]]
            return "signal", {**record["sig"], "targets": targets}
        case "gone":
            return "gone", {"flow_id": record["flow"]}
    return None


def _decoded(data: bytes) -> Any:
    try:
        return codec.decode(data)
    except Invalid as error:
        logger.error("an event of a flow cannot be read", error=error.message)
        return None


async def _last_id(client: Any, key: str) -> str | bytes:
    """Where the stream stands; it may be empty, since the recorder trims it, or not be there yet."""
    try:
        info = await client.xinfo_stream(key)
    except ResponseError:
        return "0-0"
    last: str | bytes = info["last-generated-id"]
    return last
