"""The OpenAPI description of our endpoints, merged into what FastAPI finds by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tradewind.api.alarm_schemas import ALARM_SCHEMAS
from tradewind.api.flow_schemas import FLOW_SCHEMAS
from tradewind.api.history_schemas import HISTORY_SCHEMAS
from tradewind.api.point_schemas import POINT_SCHEMAS
from tradewind.api.recovery_schemas import RECOVERY_SCHEMAS
from tradewind.api.routing import Endpoint
from tradewind.api.rule_schemas import RULE_SCHEMAS
from tradewind.api.schema_parts import ref
from tradewind.api.schemas import SCHEMAS
from tradewind.ids import ID

_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_ABOUT = (
    "Tasks, queues, workers, schedules, flows, points, channels, models, commands, rules, alarms, notifications and "
    "history of a Tradewind station. Times are ISO-8601 in UTC, those of values milliseconds since the epoch. Every "
    "error has the same envelope, with a code for programs, a message, a hint, and all problems of an input at once."
)
#: What any route may answer besides its own.
_ALWAYS = {
    408: "The request did not come in time",
    414: "The path and the query are longer than `api.max_head_bytes`",
    421: "This station does not answer for that host name",
    431: "The head is larger than `api.max_head_bytes`, or has more than `api.max_headers`",
    503: "A part that is needed does not answer",
    504: "It was not done within its time",
}
_UNDER_API = {
    409: "`wrong_type`, `spoilt_record`: what another program, or somebody by hand, has stored cannot be read",
    422: "The path, the query or the body is not valid: see `problems`",
    429: "The store is full, or all connections to it are in use: come back after `Retry-After` seconds",
}
_WRITING = {403: "A page of another site sent it"}
#: Whose paths hold ids as people give them.
_ROOMS_OF_IDS = frozenset({"flows", "models", "model-templates", "rules", "rule-groups", "rate-limits", "schedules"})
_WITH_BODY = {400: "Not strict JSON", 413: "The body is too large", 415: "The body is not declared as JSON"}


def describe(app: FastAPI, endpoints: Sequence[Endpoint]) -> None:
    """Make `app.openapi()` tell of these endpoints too; built when first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
            paths = found.setdefault("paths", {})
            for endpoint in endpoints:
                paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation(endpoint)
            schemas = {**SCHEMAS, **FLOW_SCHEMAS, **POINT_SCHEMAS, **RULE_SCHEMAS, **ALARM_SCHEMAS, **HISTORY_SCHEMAS}
            schemas |= RECOVERY_SCHEMAS
            found.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def operation(endpoint: Endpoint) -> dict[str, Any]:
    words = re.sub(r"[^a-z]+", "_", endpoint.path.removeprefix("/api/v1").lower()).strip("_")
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(endpoint.path, name)}
        for name in _PATH_PARAMETER.findall(endpoint.path)
    ]
    parameters += [
        {"name": p.name, "in": "query", "description": p.about, "schema": dict(p.schema)} for p in endpoint.query
    ]
    common = {
        **_ALWAYS,
        **(_UNDER_API if endpoint.path.startswith("/api/") else {}),
        **(_WRITING if endpoint.method != "GET" else {}),
        **(_WITH_BODY if endpoint.body else {}),
    }
    answers = {status: (about, "Error") for status, about in common.items()}
    found: dict[str, Any] = {
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}_{words}",
        "responses": {
            str(status): _answer(about, schema, endpoint.media_type)
            for status, (about, schema) in sorted({**answers, **endpoint.answers}.items())
        },
    }
    if endpoint.about:
        found["description"] = endpoint.about
    if parameters:
        found["parameters"] = parameters
    if endpoint.body:
        content = {kind: {"schema": ref(endpoint.body)} for kind in endpoint.body_types}
        found["requestBody"] = {"required": not endpoint.body_optional, "content": content}
    return found


def _path_schema(path: str, name: str) -> dict[str, Any]:
    """What a part of the path looks like; any text where the room itself says what it knows."""
    room = path.split("/")[3]
    if name in ("n", "c"):
        return {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
    if room == "channels":
        return {"type": "string", "pattern": "^[0-9]{1,20}$"}
    if room in _ROOMS_OF_IDS:
        return {"type": "string", "pattern": f"^{ID.pattern}$"}
    return {"type": "string", "minLength": 1}


def _answer(about: str, schema: str | None, media_type: str) -> dict[str, Any]:
    if schema is None:
        return {"description": about}
    kind = "application/json" if schema in ("Error", "Health") else media_type
    found = _event(schema) if kind == "text/event-stream" else ref(schema)
    return {"description": about, "content": {kind: {"schema": found}}}


def _event(schema: str) -> dict[str, Any]:
    """One event of a stream; its data is text that holds JSON."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": ref(schema)}
    words = {"event": {"type": "string"}, "id": {"type": "string"}, "data": data}
    return {"type": "object", "properties": words, "required": ["data"]}
