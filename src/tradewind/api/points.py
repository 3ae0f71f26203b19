"""Points over HTTP: the newest values by address, channel or model; the bulk ingest; a live stream of changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind import codec
from tradewind.api.events import EventStream, NextText
from tradewind.api.point_feed import PointFeed
from tradewind.api.point_request import BAD, KINDS, MAX_ADDRESSES, Wanted, query_search, query_wanted
from tradewind.api.point_room import PointServices, plain_views, point_views, read_channel, read_model, read_points
from tradewind.api.points_ingest import Ingest
from tradewind.api.routing import Endpoint, Parameter, json_response, long_response
from tradewind.clock import iso, now_ms

TAG = "points"


class PointRoutes:
    def __init__(self, room: PointServices, feed: PointFeed, ingest: Ingest) -> None:
        self._room = room
        self._feed = feed
        self._ingest = ingest

    async def read(self, request: Request) -> Response:
        search = query_search(request)
        if search is not None:
            return await self._found(*search)
        wanted = query_wanted(request)
        points = await read_points(self._room, wanted.addresses)
        for channel in wanted.channels:
            points += await read_channel(self._room, channel, wanted.kinds)
        for model in wanted.models:
            points += await read_model(self._room, model)
        views = await point_views(self._room, points)
        return await long_response(lambda: {"items": views})

    async def _found(self, text: str, limit: int) -> Response:
        found = await self._room.find(text)
        points = await read_points(self._room, [address for address, _ in found[:limit]])
        views = await point_views(self._room, points)
        items = [{**view, "name": name} for view, (_, name) in zip(views, found, strict=False)]
        return json_response({"items": items, "total": len(found)})

    async def live(self, request: Request) -> Response:
        return EventStream(_watch(self._room, self._feed, query_wanted(request)))

    def endpoints(self) -> list[Endpoint]:
        text: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
        query = (
            Parameter("address", "Such as `comsrv:1001:m:10001`; may repeat", {**text, "maxItems": MAX_ADDRESSES}),
            Parameter("channel", "All points of a channel, also without a value; may repeat", text),
            Parameter(
                "kind",
                "Of the channels only these kinds; may repeat",
                {"type": "array", "items": {"type": "string", "enum": list(KINDS)}},
            ),
            Parameter("model", "All measurements of a model; may repeat", text),
        )
        search = (
            Parameter("search", "Instead: all points with this in their address or name", {"type": "string"}),
            Parameter(
                "limit",
                "How many of these",
                {"type": "integer", "minimum": 1, "maximum": MAX_ADDRESSES, "default": 100},
            ),
        )
        return [
            Endpoint(
                "GET", "/api/v1/points", self.read, "Read the newest values",
                {200: ("Points in the order asked for", "FoundPoints"), 422: BAD}, TAG,
                "A point without a value has the value null and is bad: `state` says whether it has none yet "
                "(`no_value`) or nobody has declared it (`undeclared`). What nothing has confirmed for too long is "
                "not good any more. Points of kind c and a say how their last command ended (`command`). What a search "
                "finds has names, too, and `total` says how much there is.",
                query=(*query, *search),
            ),
            Endpoint(
                "POST", "/api/v1/points", self._ingest.run, "Write many values",
                {200: ("All of them were taken in", "Ingested"), 422: ("A value is bad: nothing was written", "Error")},
                TAG, "Made for bulk: send some thousand points a request on a connection that stays open. Without "
                "`ts` they are of now. Late values go to the history only. Undeclared channels and points are fine "
                "unless `points.strict` is set. Points of a channel that has a device are refused: its driver alone "
                "writes them, and people substitute them.", body="Ingest",
            ),
            Endpoint(
                "GET", "/api/v1/points/live", self.live, "Follow values",
                {200: ("Events named `points`: first all, then what has changed", "Points"), 422: BAD}, TAG,
                "Who reads slowly gets the newest value of each point, not those between. `unknown` says that the "
                "board cannot be looked at; the next `points`, perhaps without items, that it can.", query=query,
                media_type="text/event-stream",
            ),
        ]  # fmt: skip


@contextmanager
def _watch(room: PointServices, feed: PointFeed, wanted: Wanted) -> Iterator[NextText]:
    with feed.watch(wanted) as watcher:
        number = 0

        async def next_text() -> bytes | None:
            nonlocal number
            points = await watcher.next()
            if watcher.is_closed:
                return None
            number += 1
            if points is None:
                return b"event: unknown\nid: %d\ndata: %s\n\n" % (number, codec.encode({"since": iso(now_ms())}))
            data = codec.encode({"items": plain_views(room, points)})
            return b"event: points\nid: %d\ndata: %s\n\n" % (number, data)

        yield next_text
