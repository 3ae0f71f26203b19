"""Notifications over HTTP: the policy (without its secrets), a test of a target, and what became of deliveries."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, query_limit, read_object
from tradewind.api.errors import listed
from tradewind.api.flow_request import query_word, read_definition
from tradewind.api.point_request import BAD
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.api.rule_room import RuleServices
from tradewind.api.rules import BODY_TYPES
from tradewind.clock import iso
from tradewind.errors import Invalid, Problem
from tradewind.notify.store import Delivery

TAG = "notifications"
MAX_LIMIT = 1000
STATUSES = ("waiting", "retrying", "sent", "given_up", "dropped")
#: A target may take its time; so many times the settings allow it one attempt.
TEST_S = 120.0
#: Of those that have ended; what is beyond is not looked through for a status.
LOOK = 10_000


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(delivery)
    return {**found, "at": iso(delivery.at) if delivery.at else None}


class NotificationRoutes:
    def __init__(self, room: RuleServices, max_body_bytes: int) -> None:
        self._notify = room.notify
        self._max_body_bytes = max_body_bytes

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(await self._notify.show())

    async def put(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(await self._notify.put(await read_definition(request, self._max_body_bytes)))

    async def validate(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        try:
            policy, changed = await self._notify.validate(document), await self._notify.is_new(document)
        except Invalid as error:
            return json_response({"valid": False, **listed(error), "changed": False, "policy": None})
        return json_response({"valid": True, "problems": [], "changed": changed, "policy": policy})

    async def test(self, request: Request) -> Response:
        check_query(request, frozenset())
        body = await read_object(request, self._max_body_bytes, frozenset({"target"}))
        target = body.get("target")
        if not isinstance(target, str) or not target:
            problem = Problem("missing_field", "target", "give the name of a target")
            raise Invalid("the test names no target", code=problem.code, hint=problem.hint, problems=[problem])
        return json_response(msgspec.to_builtins(await self._notify.test_target(target)))

    async def log(self, request: Request) -> Response:
        check_query(request, frozenset({"status", "target", "limit"}))
        limit, status = query_limit(request, MAX_LIMIT, default=100), query_word(request, "status", STATUSES)
        target = request.query_params.get("target")
        found = await self._notify.pending() + await self._notify.ended(LOOK if status or target else limit)
        items = [
            delivery_view(each)
            for each in found
            if (status is None or each.status == status) and (target is None or each.target == target)
        ]
        return json_response({"items": items[:limit]})

    def endpoints(self) -> list[Endpoint]:
        policy = ("The policy; `***` stands for secrets", "NotificationPolicy")
        text = {"type": "string"}
        limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 100}
        base = "/api/v1/notifications"
        return [
            Endpoint("GET", f"{base}/policy", self.show, "Show the notification policy", {200: policy}, TAG),
            Endpoint(
                "PUT", f"{base}/policy", self.put, "Replace the notification policy",
                {200: policy, 409: ("Its `version` is not the stored one", "Error"), 422: BAD}, TAG,
                "As JSON or YAML. `***` in an address or a header keeps what is stored there.",
                body="NotificationPolicy", body_types=BODY_TYPES,
            ),
            Endpoint(
                "POST", f"{base}/policy/validate", self.validate, "Check a notification policy; nothing is stored",
                {200: ("All that is wrong, and whether it is new", "PolicyValidation")}, TAG,
                body="NotificationPolicy", body_types=BODY_TYPES,
            ),
            Endpoint(
                "POST", f"{base}/test", self.test, "Send a test message to a target now",
                {200: ("Whether it was taken, and why not", "NotificationTest"),
                 404: ("There is no such target", "Error"), 422: BAD}, TAG,
                "Once, past routes and quiet hours.", body="NotificationTestRequest", limit_s=TEST_S,
            ),
            Endpoint(
                "GET", f"{base}/log", self.log, "What became of deliveries",
                {200: ("Those under way, then those that ended, newest first", "Deliveries"), 422: BAD}, TAG,
                query=(Parameter("status", "Only these", {**text, "enum": list(STATUSES)}),
                       Parameter("target", "Only to this target", text), Parameter("limit", "At most so many", limit)),
            ),
        ]  # fmt: skip
