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

_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_ABOUT = (
    "Tasks, queues, workers, schedules, flows, points, channels, models, commands, rules, alarms, notifications and "
    "history of a Tradewind station. Times are ISO-8601 in UTC, those of values milliseconds since the epoch. Every "
    "error has the same envelope, with a code for programs, a message, a hint, and all problems of an input at once."
)
#: What any route may answer besides its own.
_ALWAYS = {503: "A part that is needed does not answer"}
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
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_PARAMETER.findall(endpoint.path)
    ]
    parameters += [
        {"name": p.name, "in": "query", "description": p.about, "schema": dict(p.schema)} for p in endpoint.query
    ]
    answers = {status: (about, "Error") for status, about in _ALWAYS.items()}
    if endpoint.body:
        answers |= {status: (about, "Error") for status, about in _WITH_BODY.items()}
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


def _answer(about: str, schema: str | None, media_type: str) -> dict[str, Any]:
    if schema is None:
        return {"description": about}
    kind = "application/json" if schema in ("Error", "Health") else media_type
    return {"description": about, "content": {kind: {"schema": ref(schema)}}}
