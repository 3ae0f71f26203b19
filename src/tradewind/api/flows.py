"""Flows over HTTP: register, check, list, show, delete; start, stop, pause, resume, drain; the webhook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, query_limit, read_json_or_none
from tradewind.api.errors import listed
from tradewind.api.flow_request import YAML_TYPES, path_id, query_id, query_word, read_definition
from tradewind.api.paging import gather_page
from tradewind.api.routing import LIMIT_S, Endpoint, Parameter, json_response
from tradewind.errors import Invalid, Problem
from tradewind.flows.control import DELETE_S, FlowControl

MAX_LIMIT = 1000
STATUSES = ("registered", "running", "paused", "draining", "stopped", "completed", "failed", "deleting")
BODY_TYPES = ("application/json", *YAML_TYPES[:1])
TAG = "flows"
UNKNOWN = ("There is no such flow", "Error")
BAD = ("Not valid; every problem is listed", "Error")
STATE = ("Its state forbids it", "Error")


class FlowRoutes:
    def __init__(self, flows: FlowControl, max_body_bytes: int) -> None:
        self._flows = flows
        self._max_body_bytes = max_body_bytes

    async def register(self, request: Request) -> Response:
        check_query(request, frozenset())
        return await self._set(request, None)

    async def replace(self, request: Request) -> Response:
        check_query(request, frozenset())
        return await self._set(request, path_id(request))

    async def _set(self, request: Request, flow_id: str | None) -> Response:
        document = _object(await read_definition(request, self._max_body_bytes))
        flow, is_new = await self._flows.register(document, flow_id)
        return json_response(flow, 201 if is_new else 200)

    async def validate(self, request: Request) -> Response:
        check_query(request, frozenset({"id"}))
        document = _object(await read_definition(request, self._max_body_bytes))
        problems = await self._flows.validate(document, query_id(request, "id"))
        found = listed(Invalid("", problems=problems))
        return json_response({"valid": not problems, **found})

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset({"status", "limit", "cursor"}))
        status = query_word(request, "status", STATUSES) or ""

        async def fetch(after: str | None, count: int) -> tuple[list[Any], str | None]:
            return await self._flows.page(after=after or "", limit=count, status=status)

        return await gather_page(fetch, query_id(request, "cursor"), query_limit(request, MAX_LIMIT))

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(await self._flows.status.flow(path_id(request)))

    async def remove(self, request: Request) -> Response:
        check_query(request, frozenset())
        await self._flows.delete(path_id(request))
        return Response(status_code=204)

    async def webhook(self, request: Request) -> Response:
        flow_id = path_id(request)
        payload = await read_json_or_none(request, self._max_body_bytes)
        return json_response({"flow_id": flow_id, "cycle": await self._flows.webhook(flow_id, payload)}, 201)

    def endpoints(self) -> list[Endpoint]:
        one = "/api/v1/flows/{id}"
        flow = ("The flow as it stands", "Flow")
        status = Parameter("status", "Only flows in this state", {"type": "string", "enum": list(STATUSES)})
        paging = (
            Parameter("cursor", "`next_cursor` of the page before", {"type": "string"}),
            Parameter("limit", "Flows on a page", _whole(MAX_LIMIT)),
        )
        about = "Weather Syntax as JSON or YAML. A flow that is registered again keeps `last_cycle`, `created_at` and "
        about += "its state; if it runs, the new definition counts from the next cycle on."
        return [
            Endpoint(
                "POST", "/api/v1/flows", self.register, "Register a flow",
                {201: ("It is new", "Flow"), 200: ("It replaces one of that id", "Flow"), 409: STATE, 422: BAD}, TAG,
                about, body="FlowDefinition", body_types=BODY_TYPES,
            ),
            Endpoint(
                "POST", "/api/v1/flows/validate", self.validate, "Check a definition; nothing is stored",
                {200: ("All that is wrong with it", "Validation"), 422: ("Not an object", "Error")}, TAG,
                body="FlowDefinition", body_types=BODY_TYPES,
                query=(Parameter("id", "For a definition that names none", {"type": "string"}),),
            ),
            Endpoint(
                "GET", "/api/v1/flows", self.index, "List flows in the order of their ids",
                {200: ("A page", "FlowPage"), 422: BAD}, TAG, query=(status, *paging),
            ),
            Endpoint("GET", one, self.show, "Show a flow", {200: flow, 404: UNKNOWN, 422: BAD}, TAG),
            Endpoint(
                "PUT", one, self.replace, "Create or replace a flow",
                {200: flow, 201: ("It is new", "Flow"), 409: STATE, 422: BAD}, TAG, about, body="FlowDefinition",
                body_types=BODY_TYPES,
            ),
            Endpoint(
                "DELETE", one, self.remove, "Stop a flow and remove all of it",
                {204: ("Gone", None), 404: UNKNOWN, 504: ("Nodes of it do not stop; ask again", "Error")}, TAG,
                "Its cycles, logs and signals go, too. Finished tasks stay in the archive.", limit_s=DELETE_S + LIMIT_S,
            ),
            *self._moves(one),
            Endpoint(
                "POST", f"{one}/webhook", self.webhook, "Start a cycle by an event from outside",
                {201: ("The cycle", "CycleStarted"), 404: UNKNOWN, 409: ("It takes no webhook", "Error"), 422: BAD},
                TAG, "Any JSON, or nothing. It goes to the handles that the flow's webhook triggers name, else to all "
                "that wait for a signal from outside.", body="WebhookPayload", body_optional=True, any_query=True,
            ),
        ]  # fmt: skip

    def _moves(self, one: str) -> list[Endpoint]:
        flows = self._flows
        moves: tuple[tuple[str, Callable[[str], Awaitable[dict[str, Any]]], str], ...] = (
            ("start", flows.start, "Start its schedule; one without an interval runs once"),
            ("stop", flows.stop, "No new cycles, and the running ones are stopped"),
            ("pause", flows.pause, "No new cycles until it is resumed; running ones go on"),
            ("resume", flows.resume, "Go on after a pause"),
            ("drain", flows.drain, "No new cycles; stopped once the running ones have ended"),
        )
        answers: dict[int, tuple[str, str | None]] = {
            200: ("The state it is in now", "FlowMoved"), 404: UNKNOWN, 409: STATE, 422: BAD,
        }  # fmt: skip
        return [Endpoint("POST", f"{one}/{verb}", _mover(move), about, answers, TAG) for verb, move, about in moves]


def _mover(move: Callable[[str], Awaitable[dict[str, Any]]]) -> Callable[[Request], Awaitable[Response]]:
    async def run(request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(await move(path_id(request)))

    return run


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        problem = Problem("not_an_object", "$", "give an object with interval, nodes and edges")
        raise Invalid("the body is not an object", code=problem.code, hint=problem.hint, problems=[problem])
    return document


def _whole(high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": high, "default": 50}
