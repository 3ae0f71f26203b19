"""An endpoint: a plain Starlette route and its page of the OpenAPI description, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tradewind import codec
from tradewind.api.body import check_query
from tradewind.api.connection_limits import ConnectionLimits
from tradewind.errors import TimedOut
from tradewind.offload import offload
from tradewind.problems import few_suggestions

Handler = Callable[[Request], Awaitable[Response]]
#: Where the door finds the path of the route for its figures; the path that was asked for would be without bound.
ROUTE_KEY = "tradewind.route"
#: From the first byte of the body to the first byte of the answer.
LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    about: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`answers` maps a status to (description, name of its schema or None); `body` names the schema of the request,
    which may come as any of `body_types` or, with `body_optional`, not at all. Other query parameters than those of
    `query` are refused, unless `any_query`: for callers that put their own there."""

    method: str
    path: str
    run: Handler
    summary: str
    answers: Mapping[int, tuple[str, str | None]]
    tag: str = "tasks"
    about: str = ""
    body: str | None = None
    body_types: Sequence[str] = ("application/json",)
    body_optional: bool = False
    query: Sequence[Parameter] = field(default=())
    any_query: bool = False
    media_type: str = "application/json"
    limit_s: float = LIMIT_S

    @property
    def is_page(self) -> bool:
        """Whether its answer may be long: those take turns when memory is short."""
        return any(parameter.name == "limit" for parameter in self.query)

    def route(self) -> Route:
        known = frozenset(parameter.name for parameter in self.query)

        async def handle(request: Request) -> Response:
            request.scope[ROUTE_KEY] = self.path
            limits: ConnectionLimits = request.app.state.connection_limits
            try:
                with few_suggestions():
                    if not self.any_query:
                        check_query(request, known, repeated=known)
                    async with asyncio.timeout(self.limit_s), limits.making() if self.is_page else nullcontext():
                        return await self.run(request)
            except TimeoutError as error:
                raise TimedOut(
                    f"{self.method} {self.path} was not done within {self.limit_s:g} s",
                    hint="it may still have happened: look, or repeat it with an idempotency key",
                ) from error

        return Route(self.path, handle, methods=[self.method], name=f"{self.method} {self.path}")


async def long_response(make: Callable[[], Any], status: int = 200) -> Response:
    """As `json_response`, of what the function makes, for what may be long: made and encoded beside other requests."""

    def encoded() -> bytes:
        return codec.encode(make())

    return json_response(await offload(encoded), status)


def json_response(content: Any, status: int = 200) -> Response:
    """`content` is plain data, or JSON already encoded."""
    text = content if isinstance(content, bytes) else codec.encode(content)
    return Response(text, status, media_type="application/json")
