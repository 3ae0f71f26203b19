"""What flows said and sent, over HTTP: logs and signals out of the record, and a live feed as server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind import codec
from tradewind.api.body import check_query, query_limit
from tradewind.api.events import EventStream, NextText
from tradewind.api.flow_feed import FlowFeed, Wanted
from tradewind.api.flow_request import path_id, path_number, query_cycle, query_id, query_word
from tradewind.api.flows import BAD, TAG, UNKNOWN
from tradewind.api.paging import gather_page
from tradewind.api.routing import Endpoint, Parameter
from tradewind.clock import iso
from tradewind.errors import Unavailable
from tradewind.flows.control import FlowControl
from tradewind.flows.record_query import LEVELS, MAX_LIMIT, FlowRecords, LogEntry, SignalEntry

ORDERS = ("oldest", "newest")
_LOG_FILTERS = frozenset({"cycle", "node", "level", "source"})
_CYCLE = Parameter("cycle", "Only of this cycle", {"type": "integer", "minimum": 0})
_NODE = Parameter("node", "Only of this node", {"type": "string"})
_LEVEL = Parameter("level", "The lowest level wanted", {"type": "string", "enum": list(LEVELS)})
_SOURCE = Parameter("source", "Who wrote it: `node`, `scheduler` and others", {"type": "string"})
_PAGING = (
    Parameter("cursor", "`next_cursor` of the page before", {"type": "string"}),
    Parameter("limit", "Items on a page", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 50}),
)


def log_view(entry: LogEntry) -> dict[str, Any]:
    return _with_time(entry)


def signal_view(entry: SignalEntry) -> dict[str, Any]:
    view = _with_time(entry)
    return {"id": view.pop("signal_id"), **view}


def _with_time(entry: LogEntry | SignalEntry) -> dict[str, Any]:
    view: dict[str, Any] = msgspec.structs.asdict(entry)
    view["created_at"] = iso(view.pop("created_ms"))
    return view


class FlowRecordRoutes:
    def __init__(self, flows: FlowControl, feed: FlowFeed) -> None:
        self._flows = flows
        self._feed = feed

    async def logs(self, request: Request) -> Response:
        check_query(request, _LOG_FILTERS | {"search", "cursor", "limit", "order"})
        flow_id, query = path_id(request), request.query_params
        limit, order = query_limit(request, MAX_LIMIT), query_word(request, "order", ORDERS)
        filters: dict[str, Any] = {
            "cycle": query_cycle(request),
            "node_id": query_id(request, "node"),
            "level": query_word(request, "level", LEVELS),
            "source": query_id(request, "source"),
        }
        await self._flows.check_known(flow_id)

        async def fetch(cursor: str | None, count: int) -> tuple[list[Any], str | None]:
            page = await self._records().logs(
                flow_id,
                **filters,
                search=query.get("search"),
                after=cursor,
                newest_first=order == "newest",
                limit=count,
            )
            return [log_view(entry) for entry in page.items], page.next_cursor

        return await gather_page(fetch, query.get("cursor"), limit)

    async def signals(self, request: Request) -> Response:
        check_query(request, frozenset({"node", "cursor", "limit"}))
        flow_id, cycle, limit = path_id(request), path_number(request), query_limit(request, MAX_LIMIT)
        node = query_id(request, "node")
        await self._flows.check_known(flow_id)
        await self._flows.cycle_state(flow_id, cycle)

        async def fetch(cursor: str | None, count: int) -> tuple[list[Any], str | None]:
            page = await self._records().signals(flow_id, cycle, node=node, after=cursor, limit=count)
            return [signal_view(entry) for entry in page.items], page.next_cursor

        return await gather_page(fetch, request.query_params.get("cursor"), limit)

    def _records(self) -> FlowRecords:
        if self._flows.records is None:
            raise Unavailable(
                "this station keeps no record of flows",
                code="no_record",
                hint="turn tasks.archive on, or watch logs/live",
            )
        return self._flows.records

    async def live(self, request: Request) -> Response:
        check_query(request, _LOG_FILTERS)
        flow_id = path_id(request)
        wanted = _wanted(
            query_cycle(request),
            query_id(request, "node"),
            query_word(request, "level", LEVELS),
            query_id(request, "source"),
        )
        await self._flows.check_known(flow_id)
        return EventStream(_watch(self._feed, flow_id, wanted))

    def endpoints(self) -> list[Endpoint]:
        flow = "/api/v1/flows/{id}"
        filters = (_CYCLE, _NODE, _LEVEL, _SOURCE)
        search = Parameter("search", "A part of the message, in whatever case", {"type": "string", "maxLength": 200})
        order = Parameter("order", "By their recording", {"type": "string", "enum": list(ORDERS), "default": ORDERS[0]})
        return [
            Endpoint(
                "GET", f"{flow}/logs", self.logs, "Read logs",
                {200: ("A page", "LogPage"), 404: UNKNOWN, 422: BAD}, TAG,
                "To follow, ask again with the `seq` of the last line as `cursor`. A line is recorded a moment after "
                "it was written; the last cycles and the last failed ones are kept.",
                query=(*filters, search, order, *_PAGING),
            ),
            Endpoint(
                "GET", f"{flow}/cycles/{{n}}/signals", self.signals, "Read the signals of a cycle, one per edge",
                {200: ("A page", "SignalPage"), 404: UNKNOWN, 422: BAD}, TAG,
                query=(Parameter("node", "Only those that it sent or was sent", {"type": "string"}), *_PAGING),
            ),
            Endpoint(
                "GET", f"{flow}/logs/live", self.live, "Watch a flow as it runs",
                {200: ("Events named `log`, `signal`, `cycle`, `node`; the data of a `log` is this JSON", "LiveLog"),
                 404: UNKNOWN, 422: BAD}, TAG,
                "A first comment says that nothing is missed from then on. A client that reads too slowly gets `lost` "
                "with a `count`; `gone` is the last event, when the flow is deleted.", query=filters,
                media_type="text/event-stream",
            ),
        ]  # fmt: skip


def _wanted(cycle: int | None, node: str | None, level: str | None, source: str | None) -> Wanted:
    """A level or a source asks for logs alone."""
    levels = LEVELS[LEVELS.index(level) :] if level else LEVELS

    def is_wanted(name: str, data: dict[str, Any]) -> bool:
        if name == "gone":
            return True
        if cycle is not None and data.get("cycle") != cycle:
            return False
        if name == "signal":
            ends = {data.get("source_node"), *(target["node"] for target in data["targets"])}
            return level is None and source is None and (node is None or node in ends)
        if node is not None and data.get("node_id") != node:
            return False
        if name == "log":
            is_level = data["log_level"] in levels or level in (None, LEVELS[0])
            return is_level and source in (None, data["log_source"])
        return level is None and source is None

    return is_wanted


@contextmanager
def _watch(feed: FlowFeed, flow_id: str, wanted: Wanted) -> Iterator[NextText]:
    is_ready = is_over = False

    with feed.watch(flow_id, wanted) as watcher:

        async def next_text() -> bytes | None:
            nonlocal is_ready, is_over
            if is_over:
                return None
            if not is_ready:
                await feed.ready()
                is_ready = True
                return b": listening\n\n"
            found = await watcher.next()
            if found is None:
                return None
            name, data = found
            is_over = name == "gone"
            return b"event: %s\ndata: %s\n\n" % (name.encode(), codec.encode(data))

        yield next_text
