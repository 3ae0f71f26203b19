"""`GET /api/v1/node-types`: what flows can be made of."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query
from tradewind.api.routing import Endpoint, json_response
from tradewind.flows.control import FlowControl
from tradewind.flows.spec import Handle, NodeType


def node_type_view(kind: NodeType) -> dict[str, Any]:
    return {
        "type": kind.type,
        "description": kind.description,
        "category": kind.category,
        "inputs": [handle_view(handle) for handle in kind.inputs],
        "outputs": [handle_view(handle) for handle in kind.outputs],
        "config_schema": kind.config_schema,
        "open_inputs": kind.open_inputs,
        "open_outputs": kind.open_outputs,
        "timeout_s": kind.timeout_s or None,
        "retries": kind.retries,
    }


def handle_view(handle: Handle) -> dict[str, Any]:
    return {
        "name": handle.name,
        "type": handle.type,
        "required": handle.required,
        "aggregate": handle.aggregate,
        "unit": handle.unit,
        "description": handle.description,
        "default": handle.default,
        "external": handle.external,
        "max_age_s": handle.max_age_s,
    }


def node_types_endpoint(flows: FlowControl) -> Endpoint:
    async def run(request: Request) -> Response:
        check_query(request, frozenset())
        return json_response({"items": [node_type_view(kind) for kind in await flows.node_types()]})

    return Endpoint(
        "GET",
        "/api/v1/node-types",
        run,
        "List the node types that flows can use",
        {200: ("All, in the order of their names", "NodeTypes")},
        tag="flows",
    )
