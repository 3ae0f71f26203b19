"""What operators do with alarms over HTTP, with one or with many: acknowledge, resolve, shelve, …"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.alarms.transitions import Action
from tradewind.api.alarm_request import MAX_IDS, path_alarm, read_wish
from tradewind.api.alarms import TAG, UNKNOWN
from tradewind.api.body import check_query
from tradewind.api.errors import error_body
from tradewind.api.point_request import BAD
from tradewind.api.routing import Endpoint, Handler, json_response
from tradewind.api.rule_room import RuleServices

_SUMMARIES = {
    Action.ACKNOWLEDGE: "Acknowledge",
    Action.RESOLVE: "Resolve",
    Action.SUPPRESS: "Suppress, until it is unshelved,",
    Action.SHELVE: "Shelve for a time",
    Action.UNSHELVE: "Unshelve, or end a suppression of,",
    Action.ESCALATE: "Escalate",
    Action.CLOSE: "Close",
}


class AlarmActionRoutes:
    def __init__(self, room: RuleServices, max_body_bytes: int) -> None:
        self._alarms = room.alarms
        self._max_body_bytes = max_body_bytes

    def _one(self, action: Action) -> Handler:
        async def run(request: Request) -> Response:
            check_query(request, frozenset())
            alarm_id = path_alarm(request)
            wish = await read_wish(request, action, self._max_body_bytes, is_bulk=False)
            (acted,) = await self._alarms.act(
                action,
                [alarm_id],
                wish.who,
                wish.note,
                version=wish.version,
                duration_s=wish.duration_s,
                until_ms=wish.until_ms,
            )
            if acted.error is not None:
                raise acted.error
            return json_response((await self._alarms.get(alarm_id)).to_json())

        return run

    def _many(self, action: Action) -> Handler:
        async def run(request: Request) -> Response:
            check_query(request, frozenset())
            wish = await read_wish(request, action, self._max_body_bytes, is_bulk=True)
            found = await self._alarms.act(
                action, wish.ids, wish.who, wish.note, duration_s=wish.duration_s, until_ms=wish.until_ms
            )
            items: list[dict[str, Any]] = []
            errors: list[dict[str, Any]] = []
            for acted in found:
                if acted.error is not None:
                    errors.append({"id": acted.id, "error": error_body(acted.error)})
                else:
                    items.append(
                        {
                            "id": acted.id,
                            "status": acted.status,
                            "version": acted.version,
                            "changed": acted.is_changed,
                        }
                    )
            return json_response({"items": items, "errors": errors})

        return run

    def endpoints(self) -> list[Endpoint]:
        found = []
        forbidden = ("Its state forbids it, or its version has moved; `allowed` says what can be done", "Error")
        for action, summary in _SUMMARIES.items():
            is_shelve = action is Action.SHELVE
            found += [
                Endpoint(
                    "POST", f"/api/v1/alarms/{{id}}/{action}", self._one(action), f"{summary} an alarm",
                    {200: ("The alarm; one that was so already is unchanged", "Alarm"), 404: UNKNOWN, 409: forbidden,
                     422: BAD}, TAG, body="AlarmShelve" if is_shelve else "AlarmAction", body_optional=not is_shelve,
                ),
                Endpoint(
                    "POST", f"/api/v1/alarms/{action}", self._many(action), f"{summary} many alarms",
                    {200: ("What was done, and what was refused", "AlarmsActed"), 422: BAD}, TAG,
                    f"At most {MAX_IDS}. One that is refused does not stop the others.",
                    body="AlarmsShelve" if is_shelve else "AlarmsAction",
                ),
            ]  # fmt: skip
        return found
