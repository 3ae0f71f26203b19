"""History over HTTP: ranges, the newest, figures, which series there are. Files: history_files.py."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, query_limit, read_json
from tradewind.api.history_request import RANGE, query_choice, query_series, query_words
from tradewind.api.history_room import (
    QUALITIES,
    HistoryServices,
    policy_view,
    recorder_view,
    refused_view,
    series_view,
    sink_view,
)
from tradewind.api.point_request import BAD
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.clock import now_ms
from tradewind.errors import TradewindError
from tradewind.history.question import FILLS
from tradewind.history.sink import AGGREGATES, GAP_MS
from tradewind.history.status import is_recording
from tradewind.history.times import span_ms

TAG = "history"
MAX_LISTED = 1000
#: A sink that hangs is given up by itself: longer than that, so that the answer says so.
LIMIT_S = 75.0
#: The status does not wait so long for a sink.
STATS_S = 5.0
#: Refused samples that the status shows.
NEWEST_REFUSED = 20


class HistoryRoutes:
    def __init__(self, room: HistoryServices, max_body_bytes: int) -> None:
        self._room = room
        self._max_body_bytes = max_body_bytes

    async def range(self, request: Request) -> Response:
        words = query_words(request)
        with_quality = query_choice(request, "quality", ("false", "true")) == "true"
        query = await self._room.questions()
        question, found = await query.ask(words)
        series = [msgspec.to_builtins(each) for each in found]
        columns = ["ts", *question.aggs]
        if not question.bucket_ms:
            columns = ["ts", "value", "quality"] if with_quality else ["ts", "value"]
            for each in series:
                each["samples"] = [row[: len(columns)] for row in each["samples"]]
        told = {"from": question.from_ms, "to": question.to_ms, "columns": columns, "series": series}
        return json_response(told)

    async def latest(self, request: Request) -> Response:
        check_query(request, frozenset({"series"}), repeated=frozenset({"series"}))
        found = await (await self._room.questions()).latest(query_series(request))
        items = [
            {**msgspec.to_builtins(each), "quality": None if each.quality is None else QUALITIES[each.quality]}
            for each in found
        ]
        return json_response({"items": items})

    async def statistics(self, request: Request) -> Response:
        check_query(request, RANGE | {"gap"}, repeated=frozenset({"series"}))
        given = request.query_params
        gap_ms = span_ms(given["gap"], "gap") if "gap" in given else GAP_MS
        query = await self._room.questions()
        first, last, found = await query.statistics(query_series(request), given.get("from"), given.get("to"), gap_ms)
        return json_response({"from": first, "to": last, "items": msgspec.to_builtins(found)})

    async def series(self, request: Request) -> Response:
        check_query(request, frozenset({"pattern", "limit", "cursor"}))
        limit, after = query_limit(request, MAX_LISTED, default=100), request.query_params.get("cursor", "")
        pattern = request.query_params.get("pattern", "*")[:200]
        found = await (await self._room.questions()).listing(pattern, limit + 1, after)
        items = [series_view(info, unit) for info, unit in found[:limit]]
        return json_response({"items": items, "next_cursor": items[-1]["address"] if len(found) > limit else None})

    async def show_policy(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(policy_view(await self._room.store.policy()))

    async def put_policy(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = await read_json(request, self._max_body_bytes)
        return json_response(policy_view(await self._room.store.put_policy(document)))

    async def status(self, request: Request) -> Response:
        """Also while the sink is away: then it says so."""
        check_query(request, frozenset())
        store, settings = self._room.store, self._room.settings
        fields, refused = await store.status(), await store.refused(NEWEST_REFUSED)
        sink: dict[str, Any] = {"kind": "influxdb" if settings.influx.url else "embedded", "error": "", "stats": None}
        try:
            async with asyncio.timeout(STATS_S):
                sink["stats"] = sink_view(await (await self._room.questions()).sink.stats())
        except TimeoutError:
            sink["error"] = f"the sink did not answer within {STATS_S:g} s"
        except TradewindError as error:
            sink["error"] = error.message
        return json_response(
            {
                "enabled": settings.history.enabled,
                "recording": is_recording(await store.leader(), fields.get("at_ms", ""), now_ms()),
                "recorder": recorder_view(fields) if fields else None,
                "sink": sink,
                "refused": [refused_view(sample) for sample in refused],
            }
        )

    def endpoints(self) -> list[Endpoint]:
        every = "/api/v1/history"
        limit = {"type": "integer", "minimum": 1, "maximum": MAX_LISTED, "default": 100}
        return [
            Endpoint(
                "GET", every, self.range, "What was, in a range of time",
                {200: ("The series in the order asked for", "HistoryRange"), 422: BAD}, TAG,
                "Buckets begin at multiples of their width since 1970, for all series alike; one without samples is "
                "left out unless `fill` says otherwise. Of too many samples the first come: `truncated`, and "
                "`next_from` says where to go on. What retention has removed is told: `complete`, `available_from`.",
                query=(*PERIOD, BUCKET, AGG, *_SHAPE), limit_s=LIMIT_S,
            ),
            Endpoint(
                "GET", f"{every}/latest", self.latest, "The newest sample of each series",
                {200: ("In the order asked for; nulls where nothing was recorded", "HistoryLatest"), 422: BAD}, TAG,
                query=(SERIES,), limit_s=LIMIT_S,
            ),
            Endpoint(
                "GET", f"{every}/statistics", self.statistics, "Figures of a range of time",
                {200: ("In the order asked for", "HistoryStatistics"), 422: BAD}, TAG, query=(*PERIOD, GAP),
                limit_s=LIMIT_S,
            ),
            Endpoint(
                "GET", f"{every}/series", self.series, "Which series are recorded",
                {200: ("A page in order of address", "HistorySeriesPage"), 422: BAD}, TAG,
                query=(
                    Parameter("pattern", "Such as `comsrv:1001:*`", {"type": "string", "default": "*"}),
                    Parameter("cursor", "`next_cursor` of the page before", {"type": "string"}),
                    Parameter("limit", "At most so many on a page", limit),
                ),
                limit_s=LIMIT_S,
            ),
            Endpoint(
                "GET", f"{every}/policy", self.show_policy, "What is recorded",
                {200: ("The policy; the default one when none is set", "HistoryPolicy")}, TAG,
            ),
            Endpoint(
                "PUT", f"{every}/policy", self.put_policy, "Say what is recorded",
                {200: ("As it is stored; the recorder follows within seconds", "HistoryPolicy"), 422: BAD}, TAG,
                "Replaces the whole. An empty object is the default.", body="HistoryPolicy",
            ),
            Endpoint(
                "GET", f"{every}/status", self.status, "How recording goes",
                {200: ("The recorder, the sink, and what the sink refused last", "HistoryStatus")}, TAG,
                "`recording`: a process does so now. `recorder` is null when none has ever run, `sink.stats` while the "
                "sink does not answer.",
            ),
        ]  # fmt: skip


_TEXT: dict[str, Any] = {"type": "string"}
SERIES = Parameter(
    "series",
    "Such as `comsrv:1001:m:10001`, or with a `*` for all recorded ones that fit; may repeat",
    {"type": "array", "items": _TEXT},
)
PERIOD = (
    SERIES,
    Parameter("from", "Milliseconds since 1970, ISO, `now`, or `-1h`; an hour before `to`", _TEXT),
    Parameter("to", "Not included; now", {**_TEXT, "default": "now"}),
)
BUCKET = Parameter("bucket", "`raw`, `auto` (from the width), or such as `1m`", {**_TEXT, "default": "auto"})
AGG = Parameter(
    "agg",
    "Of each bucket; may repeat, or be separated by commas",
    {"type": "array", "items": {**_TEXT, "enum": list(AGGREGATES)}, "default": ["mean"]},
)
GAP = Parameter("gap", "How long a value holds for the integral, and which silence is a gap: such as `5m`", _TEXT)
_SHAPE = (
    Parameter("limit", "At most so many points of each series", {"type": "integer", "minimum": 1}),
    GAP,
    Parameter("fill", "What buckets without samples have", {**_TEXT, "enum": list(FILLS), "default": "none"}),
    Parameter("quality", "Of samples, also their quality", {"type": "boolean", "default": False}),
)
