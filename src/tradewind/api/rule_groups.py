"""Groups of rules over HTTP."""

from __future__ import annotations

from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query
from tradewind.api.flow_request import path_id, query_word, read_definition
from tradewind.api.point_request import BAD
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.api.rule_request import definition
from tradewind.api.rule_room import RuleServices
from tradewind.api.rules import BODY_TYPES, MOVED, TAG
from tradewind.rules.store import WithRules

WITH_RULES = ("refuse", "cascade", "ungroup")
UNKNOWN = ("There is no such group", "Error")
_SHOWN = ("rules",)


class RuleGroupRoutes:
    def __init__(self, room: RuleServices, max_body_bytes: int) -> None:
        self._rules = room.rules
        self._max_body_bytes = max_body_bytes

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset())
        groups = await self._rules.list_groups()
        return json_response({"items": [await self._view(group) for group in groups]})

    async def create(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = definition(await read_definition(request, self._max_body_bytes), shown=_SHOWN)
        return json_response(await self._view(await self._rules.put_group(document, is_new=True)), 201)

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(await self._view(await self._rules.get_group(path_id(request))))

    async def replace(self, request: Request) -> Response:
        check_query(request, frozenset())
        group_id = path_id(request)
        document = definition(await read_definition(request, self._max_body_bytes), group_id, _SHOWN)
        is_new = group_id not in (await self._rules.about([])).groups
        return json_response(await self._view(await self._rules.put_group(document)), 201 if is_new else 200)

    async def remove(self, request: Request) -> Response:
        check_query(request, frozenset({"rules"}))
        rules = cast(WithRules, query_word(request, "rules", WITH_RULES) or "refuse")
        await self._rules.remove_group(path_id(request), rules)
        return Response(status_code=204)

    async def enable(self, request: Request) -> Response:
        return await self._switch(request, is_on=True)

    async def disable(self, request: Request) -> Response:
        return await self._switch(request, is_on=False)

    async def _switch(self, request: Request, *, is_on: bool) -> Response:
        check_query(request, frozenset())
        group_id = path_id(request)
        rules, changed = await self._rules.switch_group(group_id, is_on=is_on)
        ids = [document["id"] for document in rules]
        return json_response({"id": group_id, "enabled": is_on, "rules": ids, "changed": changed})

    async def _view(self, group: dict[str, Any]) -> dict[str, Any]:
        rules = await self._rules.list(group_id=group["id"])
        return {**group, "rules": [document["id"] for document in rules]}

    def endpoints(self) -> list[Endpoint]:
        every, one = "/api/v1/rule-groups", "/api/v1/rule-groups/{id}"
        group, exists = ("The group with the ids of its rules", "RuleGroup"), ("It exists already", "Error")
        switched = ("Its rules are so now", "RuleGroupSwitched")
        has_rules = ("It has rules, and nothing was said of them", "Error")
        about = "What becomes of its rules: `refuse` to remove it, remove them too, or only take them out"
        query = (Parameter("rules", about, {"type": "string", "enum": list(WITH_RULES), "default": "refuse"}),)
        return [
            Endpoint("GET", every, self.index, "List groups by id", {200: ("Groups", "RuleGroups"), 422: BAD}, TAG),
            Endpoint(
                "POST", every, self.create, "Define a group", {201: group, 409: exists, 422: BAD}, TAG,
                body="RuleGroupDefinition", body_types=BODY_TYPES,
            ),
            Endpoint("GET", one, self.show, "Show a group", {200: group, 404: UNKNOWN, 422: BAD}, TAG),
            Endpoint(
                "PUT", one, self.replace, "Define or replace a group",
                {200: group, 201: group, 409: MOVED, 422: BAD}, TAG,
                body="RuleGroupDefinition", body_types=BODY_TYPES,
            ),
            Endpoint(
                "POST", f"{one}/enable", self.enable, "Enable all rules of a group",
                {200: switched, 404: UNKNOWN, 422: BAD}, TAG,
                "All at once. Also those that were stopped because they fed themselves.",
            ),
            Endpoint(
                "POST", f"{one}/disable", self.disable, "Disable all rules of a group",
                {200: switched, 404: UNKNOWN, 422: BAD}, TAG,
                "All at once. Their timers end, their open alarms are marked and resolved.",
            ),
            Endpoint(
                "DELETE", one, self.remove, "Remove a group",
                {204: ("Gone", None), 404: UNKNOWN, 409: has_rules, 422: BAD}, TAG, query=query,
            ),
        ]  # fmt: skip
