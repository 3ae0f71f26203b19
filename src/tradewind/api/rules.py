"""Rules over HTTP: define, list, show, replace, switch, remove, one or many; try them on live data; what they did."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_object, check_query, query_limit, read_json_or_none
from tradewind.api.errors import listed
from tradewind.api.flow_request import YAML_TYPES, path_id, query_id, read_definition
from tradewind.api.paging import cut_page
from tradewind.api.point_request import BAD
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.api.rule_request import definition, is_change, query_flag, query_time, read_change, ungrouped
from tradewind.api.rule_room import RuleServices, rule_views, warnings_of
from tradewind.errors import Invalid, Problem
from tradewind.offload import offload
from tradewind.rules.definitions import Change
from tradewind.rules.history_record import view as execution_view

TAG = "rules"
MAX_LIMIT = 1000
MAX_SEARCH = 200
#: Some ten thousand rules at once.
MAX_BODY_BYTES = 16_000_000
BODY_TYPES = ("application/json", *YAML_TYPES[:1])
UNKNOWN = ("There is no such rule", "Error")
MOVED = ("Its `version` is not the stored one", "Error")
_FILTERS = frozenset({"group_id", "enabled", "source", "search", "limit", "cursor"})


class RuleRoutes:
    def __init__(self, room: RuleServices, max_body_bytes: int) -> None:
        self._room = room
        self._rules = room.rules
        self._max_body_bytes = max(max_body_bytes, MAX_BODY_BYTES)

    async def index(self, request: Request) -> Response:
        check_query(request, _FILTERS)
        limit, after = query_limit(request, MAX_LIMIT, default=100), query_id(request, "cursor")
        words = request.query_params
        documents = await self._rules.list(
            group_id=words.get("group_id"),
            enabled=query_flag(request, "enabled"),
            source=words.get("source", ""),
            search=words.get("search", "")[:MAX_SEARCH],
        )
        start = 0
        if after is not None:
            start = next((at + 1 for at, each in enumerate(documents) if each["id"] == after), -1)
            if start < 0:
                problem = Problem("bad_cursor", "cursor", "the rule is gone or does not fit any more: begin anew")
                raise Invalid("the query is not valid", code=problem.code, hint=problem.hint, problems=[problem])
        page = documents[start : start + limit + 1]
        items = await rule_views(self._room, page, await self._rules.load())
        return cut_page(items, lambda item: str(item["id"]), limit)

    async def create(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = definition(await read_definition(request, self._max_body_bytes))
        return await self._stored(await self._rules.change([document], is_new=True), 201)

    async def replace(self, request: Request) -> Response:
        check_query(request, frozenset())
        rule_id = path_id(request)
        document = definition(await read_definition(request, self._max_body_bytes), rule_id)
        is_new = rule_id not in (await self._rules.about([rule_id])).rules
        return await self._stored(await self._rules.change([document]), 201 if is_new else 200)

    async def change(self, request: Request) -> Response:
        """Many at once, all or none."""
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        change = await offload(read_change, document, await self._rules.ids())
        done = await self._rules.change(change.rules, remove=change.remove, groups=change.groups)
        return json_response(
            {
                "rules": [each["id"] for each in done.put],
                "groups": [each["id"] for each in change.groups],
                "removed": change.remove,
                "warnings": await warnings_of(self._room, done.specs),
            }
        )

    async def validate(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        try:
            if is_change(document):
                change = await offload(read_change, document, await self._rules.ids())
                specs = await self._rules.check(change.rules, change.remove, change.groups)
            else:
                specs = await self._rules.check([definition(document)])
        except Invalid as error:
            return json_response({"valid": False, **listed(error), "warnings": []})
        return json_response({"valid": True, "problems": [], "warnings": await warnings_of(self._room, specs)})

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        rule_id = path_id(request)
        now = await self._rules.about([rule_id])
        document = now.rules.get(rule_id) or await self._rules.get(rule_id)
        return json_response((await rule_views(self._room, [document], now))[0])

    async def remove(self, request: Request) -> Response:
        check_query(request, frozenset())
        await self._rules.remove(path_id(request))
        return Response(status_code=204)

    async def enable(self, request: Request) -> Response:
        check_query(request, frozenset())
        return await self._switched(await self._rules.enable(path_id(request)))

    async def disable(self, request: Request) -> Response:
        check_query(request, frozenset())
        return await self._switched(await self._rules.disable(path_id(request)))

    async def test(self, request: Request) -> Response:
        check_query(request, frozenset())
        rule_id = path_id(request)
        given = await read_json_or_none(request, self._max_body_bytes)
        body = {} if given is None else check_object(given, frozenset({"rule"}))
        if body.get("rule") is not None:
            spec = await self._rules.validate(ungrouped(body["rule"], rule_id))
        else:
            spec = await self._rules.get_spec(rule_id)
        return json_response(msgspec.to_builtins(await self._room.test(spec)))

    async def history(self, request: Request) -> Response:
        check_query(request, frozenset({"from", "to", "limit", "cursor"}))
        rule_id, limit = path_id(request), query_limit(request, MAX_LIMIT, default=100)
        first, last = query_time(request, "from"), query_time(request, "to")
        await self._rules.get(rule_id)
        after = request.query_params.get("cursor", "")
        keep = self._room.plane.all_settings.rules.history_keep
        found = await self._rules.history.read(rule_id, limit=keep, from_ms=first or 0, to_ms=last or 0)
        if after:  # newer ones may have come before it meanwhile
            place = next((at + 1 for at, each in enumerate(found) if each.id == after), 0)
            if not place:
                problem = Problem("bad_cursor", "cursor", "that execution is gone or does not fit any more: begin anew")
                raise Invalid("the query is not valid", code=problem.code, hint=problem.hint, problems=[problem])
            found = found[place:]
        items = [execution_view(each) for each in found[:limit]]
        return json_response({"items": items, "next_cursor": found[limit - 1].id if len(found) > limit else None})

    async def _stored(self, change: Change, status: int) -> Response:
        (shown,) = await rule_views(self._room, change.put)
        return json_response({**shown, "warnings": await warnings_of(self._room, change.specs)}, status)

    async def _switched(self, document: dict[str, Any]) -> Response:
        return json_response((await rule_views(self._room, [document]))[0])

    def endpoints(self) -> list[Endpoint]:
        every, one = "/api/v1/rules", "/api/v1/rules/{id}"
        rule, exists = ("The rule as it is stored, and how it stands", "Rule"), ("It exists already", "Error")
        about = (
            "As JSON or YAML. Every problem is listed; nothing of a refused rule is stored. "
            "`warnings` tell what it names that is not there."
        )
        text: dict[str, Any] = {"type": "string"}
        filters = (
            Parameter("group_id", "Of this group; empty: of none", text),
            Parameter("enabled", "Only enabled or disabled ones", {"type": "boolean"}),
            Parameter("source", "That read this address", text),
            Parameter("search", "With this in id, name or description", text),
        )
        return [
            Endpoint(
                "GET", every, self.index, "List rules by priority", {200: ("A page", "RulePage"), 422: BAD}, TAG,
                "Higher priorities first, then by id.", query=(*filters, *paging(100)),
            ),
            Endpoint(
                "POST", every, self.create, "Define a rule",
                {201: ("It is new; it is judged from now on", "Rule"), 409: exists, 422: BAD}, TAG, about,
                body="RuleDefinition", body_types=BODY_TYPES,
            ),
            Endpoint(
                "PUT", every, self.change, "Define, replace and remove many rules and groups",
                {200: ("All of it is done", "RulesChanged"), 409: MOVED, 422: BAD}, TAG,
                "All or nothing. A list is a list of rules. `warnings` tell what they name that is not there.",
                body="RulesChange", body_types=BODY_TYPES,
            ),
            Endpoint(
                "POST", f"{every}/validate", self.validate, "Check a rule, or many; nothing is stored",
                {200: ("All that is wrong", "RuleValidation"), 409: MOVED}, TAG, "Takes what `POST` and `PUT` take.",
                body="RuleDefinition", body_types=BODY_TYPES,
            ),
            Endpoint("GET", one, self.show, "Show a rule", {200: rule, 404: UNKNOWN, 422: BAD}, TAG),
            Endpoint(
                "PUT", one, self.replace, "Define or replace a rule",
                {200: rule, 201: ("It is new", "Rule"), 409: MOVED, 422: BAD}, TAG,
                f"{about} With `version` only if that is the stored one. Other conditions begin afresh.",
                body="RuleDefinition", body_types=BODY_TYPES,
            ),
            Endpoint(
                "DELETE", one, self.remove, "Remove a rule, its timers and its history",
                {204: ("Gone", None), 404: UNKNOWN, 422: BAD}, TAG, "Its open alarms are marked and resolved.",
            ),
            Endpoint(
                "POST", f"{one}/enable", self.enable, "Enable a rule", {200: rule, 404: UNKNOWN, 422: BAD}, TAG,
                "Also lets one go on that was stopped because it fed itself.",
            ),
            Endpoint(
                "POST", f"{one}/disable", self.disable, "Disable a rule", {200: rule, 404: UNKNOWN, 422: BAD}, TAG,
                "Its timers end, its open alarms are marked and resolved.",
            ),
            Endpoint(
                "POST", f"{one}/test", self.test, "What a rule says of the plant now; nothing is done",
                {200: ("Conditions, values, and what it would do", "RuleTest"), 404: UNKNOWN, 422: BAD}, TAG,
                "Of the stored rule, or of `rule`, which is not stored. Delays are not waited for.",
                body="RuleTestRequest", body_optional=True,
            ),
            Endpoint(
                "GET", f"{one}/history", self.history, "What a rule did, newest first",
                {200: ("Executions", "ExecutionPage"), 404: UNKNOWN, 422: BAD}, TAG,
                "Kept for `rules.history_days`, at most `rules.history_keep` a rule.",
                query=(*PERIOD, *paging(100)),
            ),
        ]  # fmt: skip


PERIOD = (
    Parameter("from", "Not before: milliseconds since 1970, ISO, `now`, or so long ago: `24h`", {"type": "string"}),
    Parameter("to", "Not after: the same", {"type": "string"}),
)


def paging(default: int) -> tuple[Parameter, ...]:
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": default}
    return (
        Parameter("cursor", "`next_cursor` of the page before", {"type": "string"}),
        Parameter("limit", "At most so many on a page", limit),
    )
