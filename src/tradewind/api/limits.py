"""Rate limits per task type over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, read_object
from tradewind.api.routing import Endpoint, json_response
from tradewind.tasks.control import TaskControl

_FIELDS = frozenset({"limit", "window_s"})


class LimitRoutes:
    def __init__(self, control: TaskControl, max_body_bytes: int) -> None:
        self._control = control
        self._max_body_bytes = max_body_bytes

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response({"items": [msgspec.to_builtins(limit) for limit in await self._control.rate_limits()]})

    async def set(self, request: Request) -> Response:
        body: dict[str, Any] = await read_object(request, self._max_body_bytes, _FIELDS)
        # Whatever stands there goes on as it is: the room checks it and names every problem at once.
        limit: Any = body.get("limit")
        found = await self._control.set_rate_limit(request.path_params["type"], limit, body.get("window_s", 1))
        return json_response(msgspec.to_builtins(found))

    async def remove(self, request: Request) -> Response:
        await self._control.remove_rate_limit(request.path_params["type"])
        return Response(status_code=204)

    def endpoints(self) -> list[Endpoint]:
        one, tag = "/api/v1/rate-limits/{type}", "rate limits"
        return [
            Endpoint("GET", "/api/v1/rate-limits", self.index, "List rate limits", {200: ("All", "RateLimits")}, tag),
            Endpoint(
                "PUT", one, self.set, "Limit how often a type starts",
                {200: ("The limit", "RateLimit"), 422: ("Not valid", "Error")}, tag, body="RateLimitRequest",
            ),
            Endpoint(
                "DELETE", one, self.remove, "Remove a rate limit",
                {204: ("Removed", None), 404: ("There is none", "Error")}, tag,
            ),
        ]  # fmt: skip
