"""Errors on the wire: one envelope `{"error": {code, message, hint, problems}}` for all that is refused or fails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from tradewind import codec
from tradewind.alarms.store import AlarmConflict
from tradewind.errors import Conflict, Invalid, NotFound, Overloaded, Problem, TimedOut, TradewindError, Unavailable

#: The first kind that fits decides, so Overloaded stands before its parent.
_STATUS: tuple[tuple[type[TradewindError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 422),
    (Overloaded, 429),
    (Unavailable, 503),
    (TimedOut, 504),
)


class Refused(Invalid):
    """A request that HTTP itself has a word for: 400, 403, 413, 415, 421."""

    def __init__(self, status: int, message: str, *, code: str, hint: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message, code=code, hint=hint, problems=problems)
        self.status = status


def envelope(code: str, message: str, hint: str = "", problems: Sequence[Problem] = ()) -> bytes:
    return codec.encode({"error": _body(code, message, hint, problems)})


def _body(code: str, message: str, hint: str, problems: Sequence[Problem]) -> dict[str, Any]:
    return {"code": code, "message": message, "hint": hint, "problems": _listed(problems)}


def _listed(problems: Sequence[Problem]) -> list[dict[str, str]]:
    return [{"code": p.code, "path": p.path, "hint": p.hint} for p in problems]


def error_body(error: TradewindError) -> dict[str, Any]:
    """What stands in the envelope; with `allowed` where the error says what can be done instead."""
    problems = error.problems if isinstance(error, Invalid) else ()
    found = _body(error.code, _cut(error.message), _cut(error.hint), problems)
    if isinstance(error, Invalid):
        found |= _unlisted(error)
    if isinstance(error, AlarmConflict):
        found["allowed"] = [str(word) for word in error.allowed]
    return found


def listed(error: Invalid) -> dict[str, Any]:
    """`problems` of an answer that tells what is wrong without being an error."""
    return {"problems": _listed(error.problems), **_unlisted(error)}


def _unlisted(error: Invalid) -> dict[str, int]:
    return {"more_problems": error.more} if error.more else {}


def _cut(text: str, most: int = 2_000) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def error_response(error: TradewindError) -> Response:
    headers = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return _respond(status_of(error), codec.encode({"error": error_body(error)}), headers)


def status_of(error: TradewindError) -> int:
    if isinstance(error, Refused):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def internal_response(error_id: str) -> Response:
    """For what nobody expected; the id stands in the log beside the stack."""
    message = f"something went wrong inside the station (error {error_id})"
    return _respond(500, envelope("internal", message, f"look for {error_id} in the log of the station"))


def install_handlers(app: FastAPI) -> None:
    async def ours(_request: Request, error: Exception) -> Response:
        assert isinstance(error, TradewindError)
        return error_response(error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, headers = request.url.path, dict(error.headers or {})
        if error.status_code == 404:
            return _respond(
                404, envelope("no_such_route", f"there is nothing at {path[:200]}", "see /docs for every route")
            )
        if error.status_code == 405:
            headers["Allow"] = ", ".join(allowed_methods(app, request))
            message = f"{request.method[:20]} is not a method of {path[:200]}"
            return _respond(405, envelope("method_not_allowed", message, f"use {headers['Allow']}"), headers)
        name = HTTPStatus(error.status_code).phrase
        return _respond(error.status_code, envelope(name.lower().replace(" ", "_"), str(error.detail) or name), headers)

    async def unreadable(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = [Problem(item["type"], _path(item["loc"]), item["msg"]) for item in error.errors()]
        return error_response(Invalid("the request is not valid", hint="see problems", problems=problems))

    app.add_exception_handler(TradewindError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, unreadable)


def allowed_methods(app: FastAPI, request: Request) -> list[str]:
    """Of all routes of that path: each method has a route of its own, and Starlette names only the first one's."""
    methods: set[str] = set()
    for route in app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods) or ["GET", "HEAD"]  # inside a mount, whose scope the routes do not match again


def _path(loc: Sequence[Any]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc[1:]).lstrip(".") or str(loc[0])


def _respond(status: int, content: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(content, status, headers=dict(headers or {}), media_type="application/json")
