"""`GET /health`: each part of the station with its state. 200 while it can serve, 503 when it is down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.routing import Endpoint, json_response
from tradewind.errors import TradewindError

TIMEOUT_S = 5.0

Ask = Callable[[], Awaitable[dict[str, Any]]]


async def ask_health(ask: Ask, version: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """What the station says of itself, or "down" when it does not say anything in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await ask()
    except TimeoutError:
        detail = f"no report within {timeout_s:g} s"
    except TradewindError as error:
        detail = error.message
    return {"status": "down", "version": version, "parts": {"station": {"status": "down", "detail": detail}}}


def health_endpoint(ask: Ask, version: str) -> Endpoint:
    async def run(_request: Request) -> Response:
        report = await ask_health(ask, version)
        return json_response(report, 503 if report["status"] == "down" else 200)

    answers: dict[int, tuple[str, str | None]] = {
        200: ("It serves, perhaps degraded", "Health"),
        503: ("It is down", "Health"),
    }
    return Endpoint("GET", "/health", run, "State of each part", answers, tag="station", any_query=True)
