"""Channels over HTTP: declare, list, show, replace, remove, reload; and their points with values."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, query_limit
from tradewind.api.channel_book import STATES, ChannelBook, ChannelGlance, channel_view
from tradewind.api.flow_request import YAML_TYPES, read_definition
from tradewind.api.point_request import BAD, KINDS, path_channel, query_kinds, refuse_query
from tradewind.api.point_room import PointServices, point_view
from tradewind.api.routing import LIMIT_S, Endpoint, Parameter, json_response
from tradewind.errors import Invalid, NotFound, Problem
from tradewind.ids import short_random
from tradewind.points.address import is_number
from tradewind.points.channel_check import validate_channel
from tradewind.points.channel_status import request_reload
from tradewind.points.channel_store import NEW, channel_document, version_of
from tradewind.points.command_check import check_safety
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.spec import ChannelSpec

TAG = "channels"
MAX_LIMIT = 1000
MAX_POINTS = 100_000
#: How long a removal waits until the process that polls the channel has let it go.
RELEASE_S = 15.0
BODY_TYPES = ("application/json", *YAML_TYPES[:1])
UNKNOWN = ("There is no such channel", "Error")
STATE = ("It exists already, or is not of that version", "Error")


class ChannelRoutes:
    def __init__(self, room: PointServices, book: ChannelBook, drivers: DriverRegistry, max_body_bytes: int) -> None:
        self._room = room
        self._book = book
        self._drivers = drivers
        self._max_body_bytes = max_body_bytes

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset({"state", "limit", "cursor"}))
        limit, cursor = query_limit(request, MAX_LIMIT, default=MAX_LIMIT), request.query_params.get("cursor", "")
        state = request.query_params.get("state")
        problems = []
        if cursor and not is_number(cursor):
            problems.append(Problem("bad_cursor", "cursor", "give next_cursor of the page before"))
        if state is not None and state not in STATES:
            problems.append(Problem("unknown_state", "state", f"give one of {', '.join(STATES)}"))
        refuse_query(problems)
        ids = [name for name in await self._book.ids() if (len(name), name) > (len(cursor), cursor)]
        if state is None:
            shown = await self._book.views(ids[:limit])
            more = len(ids) > limit
        else:
            found = [view for view in await self._book.views(ids) if view["state"] == state]
            shown, more = found[:limit], len(found) > limit
        return json_response({"items": shown, "next_cursor": shown[-1]["id"] if more else None})

    async def create(self, request: Request) -> Response:
        check_query(request, frozenset())
        channel = await self._read(request, None)
        changed = await self._room.channels.put([channel], expected=NEW)
        return await self._shown(channel, 201 if changed else 200)

    async def replace(self, request: Request) -> Response:
        check_query(request, frozenset({"version"}))
        channel = await self._read(request, path_channel(request))
        store = self._room.channels
        is_new = (await store.get_many([channel.id]))[0] is None
        await store.put([channel], expected=request.query_params.get("version", ""))
        return await self._shown(channel, 201 if is_new else 200)

    async def validate(self, request: Request) -> Response:
        check_query(request, frozenset())
        try:
            await self._read(request, None)
        except Invalid as error:
            if error.code != "bad_channel":
                raise
            listed = [{"code": p.code, "path": p.path, "hint": p.hint} for p in error.problems]
            return json_response({"valid": False, "problems": listed})
        return json_response({"valid": True, "problems": []})

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        name = path_channel(request)
        channel = (await self._room.channels.get_many([name]))[0]
        if channel is not None:
            return await self._shown(channel)
        if name not in await self._book.ids():
            raise _missing(name)
        view = channel_view(name, None, (await self._book.statuses([name]))[name])
        return json_response({**view, "config": None})

    async def remove(self, request: Request) -> Response:
        """The values go last: a process that still polls would write new ones."""
        check_query(request, frozenset({"version"}))
        name, board = path_channel(request), self._room.board
        removed = await self._room.channels.remove([name], expected=request.query_params.get("version", ""))
        if not removed and name not in await self._book.ids():
            raise _missing(name)
        deadline = asyncio.get_running_loop().time() + RELEASE_S
        while (await self._book.statuses([name]))[name]["is_attended"]:
            if asyncio.get_running_loop().time() > deadline:
                break  # whoever has the lease is frozen or dead; it can write nothing that counts as declared
            await asyncio.sleep(0.05)
        await board.remove_channel(name)
        return Response(status_code=204)

    async def reload(self, request: Request) -> Response:
        check_query(request, frozenset())
        channel = await self._room.channels.get(path_channel(request))
        await request_reload(self._room.board.plane, channel.id, short_random())
        return json_response({"id": channel.id, "status": "reloading"}, 202)

    async def points(self, request: Request) -> Response:
        """Declared and pushed ones, by kind and number."""
        check_query(request, frozenset({"kind", "limit", "cursor"}), repeated=frozenset({"kind"}))
        name, limit = path_channel(request), query_limit(request, MAX_POINTS, default=10_000)
        kinds, problems = query_kinds(request)
        after = _cursor(request.query_params.get("cursor", ""), problems)
        refuse_query(problems)
        await self._room.look()
        channel = (await self._room.channels.get_many([name]))[0]
        values = {point.address: point for point in await self._room.board.read_channel(name, kinds)}
        if channel is None and not values and name not in await self._book.ids():
            raise _missing(name)
        declared = {
            f"comsrv:{name}:{p.kind.value}:{p.id}": p for p in (channel.points if channel else ()) if p.kind in kinds
        }
        order = sorted({*values, *declared}, key=_place)
        order = [address for address in order if _place(address) > after]
        silent = [address for address in order[:limit] if address not in values]
        values |= {point.address: point for point in await self._room.board.read(silent)} if silent else {}
        items = []
        for address in order[:limit]:
            spec = declared.get(address)
            extra = {"name": spec.name if spec else "", "pushed": spec is None}
            items.append({**point_view(values[address]), **extra})
        last = order[:limit][-1].split(":", 2)[2] if len(order) > limit else None
        return json_response({"items": items, "next_cursor": last})

    async def _read(self, request: Request, channel_id: str | None) -> ChannelSpec:
        document = await read_definition(request, self._max_body_bytes)
        if channel_id is not None and isinstance(document, dict):
            given = document.get("id")
            if given is not None and str(given) != channel_id:
                problem = Problem("id_mismatch", "id", f"the path says {channel_id}")
                message = f"the channel is called {str(given)[:40]!r} in its definition"
                raise Invalid(message, code=problem.code, hint=problem.hint, problems=[problem])
            document = {**document, "id": channel_id}
        # in a thread: a long one takes seconds, and a driver is imported when it is first needed
        return await asyncio.to_thread(validate_channel, document, check=self._check)

    def _check(self, channel: ChannelSpec) -> list[Problem]:
        return [*self._drivers.check(channel), *check_safety(channel.points, channel.id)]

    async def _shown(self, channel: ChannelSpec, status: int = 200) -> Response:
        glance = ChannelGlance.of(channel, version_of(channel))
        view = channel_view(channel.id, glance, (await self._book.statuses([channel.id]))[channel.id])
        return json_response({**view, "config": channel_document(channel)}, status)

    def endpoints(self) -> list[Endpoint]:
        every, one = "/api/v1/channels", "/api/v1/channels/{id}"
        channel = ("The channel as it stands", "Channel")
        version = Parameter("version", "Only if it still has this version", {"type": "string"})
        paging = Parameter("cursor", "`next_cursor` of the page before", {"type": "string"})
        state = Parameter("state", "Only channels in this state", {"type": "string", "enum": list(STATES)})
        kind = Parameter(
            "kind", "Only these kinds; may repeat", {"type": "array", "items": {"type": "string", "enum": list(KINDS)}}
        )
        about = "As JSON or YAML: what `channels.yaml` has for one channel, with its points in `points`."
        return [
            Endpoint(
                "GET", every, self.index, "List channels by number, declared and pushed",
                {200: ("A page", "ChannelPage"), 422: BAD}, TAG, query=(state, paging, _whole("Channels", MAX_LIMIT)),
            ),
            Endpoint(
                "POST", every, self.create, "Declare a channel",
                {201: ("It is new; a process begins to poll it within about a second", "Channel"),
                 200: ("It stands so already", "Channel"), 409: STATE, 422: BAD}, TAG, about,
                body="ChannelDefinition", body_types=BODY_TYPES,
            ),
            Endpoint(
                "POST", f"{every}/validate", self.validate, "Check a channel; nothing is stored",
                {200: ("All that is wrong with it", "Validation")}, TAG, body="ChannelDefinition",
                body_types=BODY_TYPES,
            ),
            Endpoint("GET", one, self.show, "Show a channel", {200: channel, 404: UNKNOWN, 422: BAD}, TAG),
            Endpoint(
                "PUT", one, self.replace, "Declare or replace a channel",
                {200: channel, 201: ("It is new", "Channel"), 409: STATE, 422: BAD}, TAG,
                f"{about} The definition need not name its id.", body="ChannelDefinition", body_types=BODY_TYPES,
                query=(version,),
            ),
            Endpoint(
                "DELETE", one, self.remove, "Remove a channel and its values",
                {204: ("Gone", None), 404: UNKNOWN, 409: STATE}, TAG, "Also one that was only pushed.",
                query=(version,), limit_s=RELEASE_S + LIMIT_S,
            ),
            Endpoint(
                "POST", f"{one}/reload", self.reload, "Let whoever polls it connect to the device anew",
                {202: ("It happens within about a second", "ChannelReload"), 404: UNKNOWN, 422: BAD}, TAG,
            ),
            Endpoint(
                "GET", f"{one}/points", self.points, "List the points of a channel with their values",
                {200: ("A page", "ChannelPoints"), 404: UNKNOWN, 422: BAD}, TAG,
                "Declared ones, also without a value, and those that were only pushed.",
                query=(kind, paging, _whole("Points", MAX_POINTS, 10_000)),
            ),
        ]  # fmt: skip


def _place(address: str) -> tuple[int, int, str]:
    _, _, kind, point = address.split(":")
    return KINDS.index(kind), len(point), point


def _cursor(text: str, problems: list[Problem]) -> tuple[int, int, str]:
    if not text:
        return (-1, 0, "")
    kind, _, point = text.partition(":")
    if kind not in KINDS or not is_number(point):
        problems.append(Problem("bad_cursor", "cursor", "give next_cursor of the page before"))
        return (-1, 0, "")
    return KINDS.index(kind), len(point), point


def _missing(name: str) -> NotFound:
    return NotFound(f"no channel {name}", code="unknown_channel", hint="list the channels")


def _whole(what: str, high: int, default: int = MAX_LIMIT) -> Parameter:
    return Parameter(
        "limit", f"{what} on a page", {"type": "integer", "minimum": 1, "maximum": high, "default": default}
    )
