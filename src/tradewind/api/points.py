"""Points over HTTP: the newest values by address, channel or model; the bulk ingest; a live stream of changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from tradewind import codec
from tradewind.api.body import check_query
from tradewind.api.events import EventStream, NextText
from tradewind.api.point_feed import PointFeed, Wanted
from tradewind.api.points_ingest import Ingest
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.errors import Invalid, Problem
from tradewind.ids import is_id
from tradewind.models.store import ModelStore
from tradewind.points.address import Address, is_number
from tradewind.points.board import Board, PointValue
from tradewind.points.channel_store import ChannelStore
from tradewind.points.commands import Commands
from tradewind.points.spec import Kind

TAG = "points"
BAD = ("Not valid; every problem is listed", "Error")
MAX_ADDRESSES = 1000
MAX_HASHES = 100
KINDS = tuple(kind.value for kind in Kind)
_NAMES = frozenset({"address", "channel", "kind", "model"})


class PointServices(Protocol):
    """What the API needs of the point room of a station."""

    @property
    def board(self) -> Board: ...
    @property
    def channels(self) -> ChannelStore: ...
    @property
    def commands(self) -> Commands: ...
    @property
    def models(self) -> ModelStore: ...

    async def look(self) -> None:
        """Learn what points are called and measured in, so that the board shows it."""
        ...


def point_view(point: PointValue) -> dict[str, Any]:
    """`ts` in milliseconds since the epoch, as it was sent."""
    return {
        "address": point.address,
        "value": point.value,
        "ts": point.ts,
        "quality": point.quality,
        "age_ms": point.age_ms,
        "unit": point.unit,
    }


class PointRoutes:
    def __init__(self, room: PointServices, feed: PointFeed, ingest: Ingest) -> None:
        self._room = room
        self._feed = feed
        self._ingest = ingest

    async def read(self, request: Request) -> Response:
        wanted = _wanted(request)
        await self._room.look()
        points = await read_wanted(self._room.board, wanted)
        return json_response({"items": [point_view(point) for point in points]})

    async def live(self, request: Request) -> Response:
        return EventStream(_watch(self._feed, _wanted(request)))

    def endpoints(self) -> list[Endpoint]:
        text: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
        query = (
            Parameter("address", "Such as `comsrv:1001:m:10001`; may repeat", {**text, "maxItems": MAX_ADDRESSES}),
            Parameter("channel", "All points of a channel that have a value; may repeat", text),
            Parameter(
                "kind",
                "Of the channels only these kinds; may repeat",
                {"type": "array", "items": {"type": "string", "enum": list(KINDS)}},
            ),
            Parameter("model", "All measurements of a model; may repeat", text),
        )
        return [
            Endpoint(
                "GET", "/api/v1/points", self.read, "Read the newest values",
                {200: ("Points in the order asked for", "Points"), 422: BAD}, TAG,
                "A point without a value has the value null and is bad. What nothing has confirmed for too long is "
                "not good any more.", query=query,
            ),
            Endpoint(
                "POST", "/api/v1/points", self._ingest.run, "Write many values",
                {200: ("All of them were taken in", "Ingested"), 422: ("A value is bad: nothing was written", "Error")},
                TAG, "Made for bulk: send some thousand points a request on a connection that stays open. Without "
                "`ts` they are of now. Late values go to the history only. Undeclared channels and points are fine "
                "unless `points.strict` is set.", body="Ingest",
            ),
            Endpoint(
                "GET", "/api/v1/points/live", self.live, "Follow values",
                {200: ("Events named `points`: first all, then what has changed", "Points"), 422: BAD}, TAG,
                "Who reads slowly gets the newest value of each point, not those between.", query=query,
                media_type="text/event-stream",
            ),
        ]  # fmt: skip


async def read_wanted(board: Board, wanted: Wanted) -> list[PointValue]:
    points = await board.read(wanted.addresses) if wanted.addresses else []
    for channel in wanted.channels:
        points += await board.read_channel(channel, wanted.kinds)
    for model in wanted.models:
        points += await board.read_model(model)
    return points


def path_channel(request: Request) -> str:
    """A channel out of the path. Raises Invalid."""
    text: str = request.path_params["id"]
    if not is_number(text):
        problem = Problem("bad_id", "id", "channels have 1 to 20 decimal digits")
        raise Invalid(f"{text[:64]!r} is not a channel", code=problem.code, hint=problem.hint, problems=[problem])
    return text


def query_kinds(request: Request) -> tuple[tuple[str, ...], list[Problem]]:
    """The kinds asked for, all when none is; may repeat, or be separated by commas."""
    given = _each(request, "kind")
    problems = [
        Problem("unknown_kind", f"kind[{at}]", f"{word[:32]!r} is none of {', '.join(KINDS)}")
        for at, word in enumerate(given)
        if word not in KINDS
    ]
    return tuple(given) or KINDS, problems


def refuse_query(problems: Sequence[Problem]) -> None:
    if problems:
        raise Invalid(
            f"the query is not valid: {problems[0].hint}",
            code=problems[0].code,
            hint=problems[0].hint,
            problems=problems[:100],
        )


def _wanted(request: Request) -> Wanted:
    """Raises Invalid with every problem."""
    check_query(request, _NAMES, repeated=_NAMES)
    texts = request.query_params.getlist("address")
    channels, models = _each(request, "channel"), _each(request, "model")
    kinds, problems = query_kinds(request)
    addresses: list[Address] = []
    try:
        addresses = Address.parse_all(texts[:MAX_ADDRESSES])
    except Invalid as error:
        problems += error.problems
    for name, words, is_good in (("channel", channels, is_number), ("model", models, is_id)):
        problems += [
            Problem("bad_id", f"{name}[{at}]", f"{word[:64]!r} is no {name}")
            for at, word in enumerate(words)
            if not is_good(word)
        ]
    if not (texts or channels or models):
        problems.append(Problem("nothing_asked", "address", "name addresses, channels or models"))
    if len(texts) > MAX_ADDRESSES:
        problems.append(Problem("too_many", "address", f"at most {MAX_ADDRESSES} at once; or ask for whole channels"))
    if len(channels) + len(models) > MAX_HASHES:
        problems.append(Problem("too_many", "channel", f"at most {MAX_HASHES} channels and models at once"))
    if "kind" in request.query_params and not channels:
        problems.append(Problem("missing_channel", "kind", "it goes with channel"))
    refuse_query(problems)
    return Wanted(tuple(addresses), _once(channels), kinds, _once(models))


def _each(request: Request, name: str) -> list[str]:
    return [word for text in request.query_params.getlist(name) for word in text.split(",")]


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


@contextmanager
def _watch(feed: PointFeed, wanted: Wanted) -> Iterator[NextText]:
    with feed.watch(wanted) as watcher:
        number = 0

        async def next_text() -> bytes | None:
            nonlocal number
            points = await watcher.next()
            if points is None:
                return None
            number += 1
            data = codec.encode({"items": [point_view(point) for point in points]})
            return b"event: points\nid: %d\ndata: %s\n\n" % (number, data)

        yield next_text
