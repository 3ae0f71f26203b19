"""Channels over HTTP: declare, list, show, replace, remove, reload, one or many; and their points with values."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_object, check_query, query_limit, too_many
from tradewind.api.channel_book import STATES, ChannelBook, ChannelGlance, channel_view
from tradewind.api.channel_read import ChannelReader
from tradewind.api.channel_users import ChannelUsers
from tradewind.api.errors import listed
from tradewind.api.flow_request import YAML_TYPES, read_definition
from tradewind.api.point_request import BAD, KINDS, path_channel, query_kinds, refuse_query
from tradewind.api.point_room import PointServices, point_views
from tradewind.api.routing import LIMIT_S, Endpoint, Parameter, json_response, long_response
from tradewind.errors import Invalid, NotFound, Problem
from tradewind.ids import short_random
from tradewind.offload import offload
from tradewind.points.address import is_number
from tradewind.points.channel_status import end_faults, request_reload
from tradewind.points.channel_store import NEW, channel_document, version_of
from tradewind.points.driver_registry import DriverRegistry
from tradewind.points.secrets import masked
from tradewind.points.spec import ChannelSpec
from tradewind.problems import Problems

TAG = "channels"
MAX_LIMIT = 1000
MAX_POINTS = 100_000
#: A definition with 100,000 points has about 25 MB.
MAX_BODY_BYTES = 64_000_000
#: How long a removal waits until the process that polls the channel has let it go.
RELEASE_S = 15.0
#: What a request about many channels has.
MANY = frozenset({"channels", "remove"})
BODY_TYPES = ("application/json", *YAML_TYPES[:1])
UNKNOWN = ("There is no such channel", "Error")
STATE = ("It exists already, or is not of that version", "Error")


class ChannelRoutes:
    def __init__(
        self,
        room: PointServices,
        book: ChannelBook,
        drivers: DriverRegistry,
        max_body_bytes: int,
        users: ChannelUsers,
    ) -> None:
        self._room = room
        self._users = users
        self._book = book
        self._reader = ChannelReader(room.channels, drivers)
        self._max_body_bytes = max(max_body_bytes, MAX_BODY_BYTES)

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
        await self._end_faults_of_disabled([channel])
        return await self._shown(channel, 201 if changed else 200)

    async def replace(self, request: Request) -> Response:
        check_query(request, frozenset({"version"}))
        channel = await self._read(request, path_channel(request))
        store = self._room.channels
        is_new = channel.id not in await store.versions()
        await store.put([channel], expected=request.query_params.get("version", ""))
        await self._end_faults_of_disabled([channel])
        return await self._shown(channel, 201 if is_new else 200)

    async def change(self, request: Request) -> Response:
        """Many at once."""
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        channels, removed = await self._read_many(document)
        store = self._room.channels
        changed = await store.put(channels) if channels else []
        await self._end_faults_of_disabled(channels)
        warnings = await self._users.warnings(removed) if removed else []
        await store.remove(removed)
        await self._forget(removed)
        names = [channel.id for channel in channels]
        return json_response({"channels": names, "changed": changed, "removed": removed, "warnings": warnings})

    async def validate(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        try:
            await (self._read_many(document) if _is_many(document) else self._reader.read(document))
        except Invalid as error:
            if error.code != "bad_channel":
                raise
            return json_response({"valid": False, **listed(error)})
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
        name = path_channel(request)
        if name not in await self._book.ids():
            raise _missing(name)
        warnings = await self._users.warnings([name])  # before anything is gone: this may take long, and fail
        await self._room.channels.remove([name], expected=request.query_params.get("version", ""))
        await self._forget([name])
        return json_response({"removed": name, "warnings": warnings}) if warnings else Response(status_code=204)

    async def _forget(self, names: Sequence[str]) -> None:
        """Remove the values, once nobody polls the channels any more."""
        deadline = asyncio.get_running_loop().time() + RELEASE_S
        while any(status["is_attended"] for status in (await self._book.statuses(names)).values()):
            if asyncio.get_running_loop().time() > deadline:
                break  # whoever has the lease is frozen or dead; it can write nothing that counts as declared
            await asyncio.sleep(0.05)
        for name in names:
            await self._room.board.remove_channel(name)
            await end_faults(self._room.board.plane, name, "the channel was removed")

    async def _end_faults_of_disabled(self, channels: Sequence[ChannelSpec]) -> None:
        """Here, too: maybe no process attends them that would see to it."""
        for channel in channels:
            if not channel.enabled:
                await end_faults(self._room.board.plane, channel.id, "the channel was disabled")

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
        views = await point_views(self._room, [values[address] for address in order[:limit]])
        for address, view in zip(order, views, strict=False):
            spec = declared.get(address)
            said: dict[str, Any] = {"name": "", "pushed": True}
            if spec is not None:  # the definition at hand may be newer than that of the look
                said = {"name": spec.name, "unit": spec.unit, "pushed": False}
            items.append({**view, **said})
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
        return await self._reader.read(document)

    async def _read_many(self, document: Any) -> tuple[list[ChannelSpec], list[str]]:
        """What is to be put and what removed. Raises Invalid."""
        given = check_object(document if isinstance(document, dict) else {"channels": document}, MANY)
        documents, removed = given.get("channels", []), given.get("remove", [])
        problems = Problems(
            Problem("not_a_list", name, "give a list") for name, each in given.items() if type(each) is not list
        )
        if not problems and not documents and not removed:
            problems.append(Problem("nothing_asked", "channels", "give channels, or numbers of channels to remove"))
        if not problems:
            problems += too_many(given)
        names: list[str] = []
        if removed and not problems:
            names, problems = await offload(_removed, removed, documents, frozenset(await self._book.ids()))
        if problems:
            raise Invalid(
                f"nothing was changed: {problems[0].hint}", code="bad_channel", hint=problems[0].hint, problems=problems
            )
        return await self._reader.read_all(documents), names

    async def _shown(self, channel: ChannelSpec, status: int = 200) -> Response:
        figures = (await self._book.statuses([channel.id]))[channel.id]

        def whole() -> dict[str, Any]:
            view = channel_view(channel.id, ChannelGlance.of(channel, version_of(channel)), figures)
            return {**view, "config": masked(channel_document(channel))}

        return await long_response(whole, status)

    def endpoints(self) -> list[Endpoint]:
        every, one = "/api/v1/channels", "/api/v1/channels/{id}"
        channel = ("The channel as it stands", "Channel")
        version = Parameter("version", "Only if it still has this version", {"type": "string"})
        paging = Parameter("cursor", "`next_cursor` of the page before", {"type": "string"})
        state = Parameter("state", "Only channels in this state", {"type": "string", "enum": list(STATES)})
        kind = Parameter(
            "kind", "Only these kinds; may repeat", {"type": "array", "items": {"type": "string", "enum": list(KINDS)}}
        )
        about = (
            "As JSON or YAML: what `channels.yaml` has for one channel, with its points in `points`. Passwords, tokens "
            "and keys among the parameters are shown as `***`; sent back so, they stay what they are."
        )
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
                "PUT", every, self.change, "Declare, replace and remove many channels",
                {200: ("All of it is done", "ChannelsChanged"), 422: BAD}, TAG,
                "Everything is checked before anything is stored. A list is a list of channels.",
                body="ChannelsChange", body_types=BODY_TYPES, limit_s=RELEASE_S + LIMIT_S,
            ),
            Endpoint(
                "POST", f"{every}/validate", self.validate, "Check a channel, or many; nothing is stored",
                {200: ("All that is wrong", "Validation")}, TAG, "Takes what `POST` and `PUT` take.",
                body="ChannelDefinition", body_types=BODY_TYPES,
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
                {204: ("Gone", None), 200: ("Gone; others use it, who are named", "ChannelRemoved"),
                 404: UNKNOWN, 409: STATE}, TAG, "Also one that was only pushed.",
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


def _is_many(document: Any) -> bool:
    return isinstance(document, list) or (isinstance(document, dict) and not document.keys().isdisjoint(MANY))


def _removed(given: list[Any], documents: list[Any], known: frozenset[str]) -> tuple[list[str], Problems]:
    """The channels to remove, each once, and what is wrong with them. Takes long: not on the loop."""
    put = {str(each.get("id")) for each in documents if isinstance(each, dict)}
    problems = Problems()
    for at, name in enumerate(map(str, given)):
        if name not in known:
            problems.append(Problem("unknown_channel", f"remove[{at}]", f"there is no channel {name[:32]}"))
        elif name in put:
            problems.append(Problem("given_twice", f"remove[{at}]", f"{name} is among the channels, too"))
    return list(dict.fromkeys(map(str, given))), problems


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
    return NotFound(f"there is no channel {name}", code="unknown_channel", hint="list the channels")


def _whole(what: str, high: int, default: int = MAX_LIMIT) -> Parameter:
    return Parameter(
        "limit", f"{what} on a page", {"type": "integer", "minimum": 1, "maximum": high, "default": default}
    )
