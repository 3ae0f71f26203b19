"""Commands over HTTP: send, select, list, show, cancel. The only way to change something at a device."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_object, check_query, query_limit, query_number, read_json_or_none, read_object
from tradewind.api.flow_request import path_id, query_id
from tradewind.api.point_request import BAD
from tradewind.api.point_room import PointServices
from tradewind.api.routing import LIMIT_S, Endpoint, Parameter, json_response
from tradewind.clock import iso
from tradewind.errors import Invalid, Problem, TimedOut
from tradewind.points.command_check import MAX_S
from tradewind.points.command_record import Command, CommandNotFound, CommandRequest
from tradewind.points.commands import SELECT_S

TAG = "commands"
MAX_LIMIT = 1000
MAX_WAIT_S = 60.0
_REQUEST = frozenset(CommandRequest.__struct_fields__)
_SELECT = (_REQUEST | {"lasts_s"}) - {"idempotency_key", "timeout_s", "expiry_s"}
UNKNOWN = ("There is no such command", "Error")
FORBIDDEN = ("The state of the plant or of the point forbids it", "Error")


def command_view(command: Command) -> dict[str, Any]:
    """Times as ISO, the value as a number."""
    view: dict[str, Any] = msgspec.to_builtins(command)
    for name in ("expires_ms", "token", "key", "select"):
        del view[name]
    return {
        **view,
        "value": command.number,
        "created_at": iso(command.created_at),
        "updated_at": iso(command.updated_at),
        "expires_at": iso(command.expires_ms) if command.expires_ms else None,
        "idempotency_key": command.key or None,
    }


class CommandRoutes:
    def __init__(self, room: PointServices, max_body_bytes: int) -> None:
        self._commands = room.commands
        self._max_body_bytes = max_body_bytes

    async def submit(self, request: Request) -> Response:
        check_query(request, frozenset())
        wanted = _request(await read_object(request, self._max_body_bytes, _REQUEST))
        accepted = await self._commands.submit(wanted)
        return json_response({"id": accepted.id, "status": accepted.status}, 202 if accepted.is_new else 200)

    async def select(self, request: Request) -> Response:
        check_query(request, frozenset())
        body = await read_object(request, self._max_body_bytes, _SELECT)
        lasts_s = body.pop("lasts_s", SELECT_S)
        problems = []
        if type(lasts_s) not in (int, float) or not 1 <= lasts_s <= MAX_S:
            problems.append(Problem("out_of_range", "lasts_s", f"give seconds from 1 to {MAX_S:g}"))
        selection = await self._commands.select(_request(body, problems), lasts_s)
        return json_response(
            {
                "address": selection.address,
                "value": selection.value,
                "who": selection.owner,
                "until": iso(selection.until_ms),
            }
        )

    async def release(self, request: Request) -> Response:
        check_query(request, frozenset())
        body = await read_object(request, self._max_body_bytes, frozenset({"address", "who"}))
        problems: list[Problem] = []
        address, who = (_text(body, name, problems) for name in ("address", "who"))
        _refuse(problems)
        return json_response({"released": await self._commands.release(address, who)})

    async def owed(self, request: Request) -> Response:
        check_query(request, frozenset())
        items = [
            {
                "address": str(owed.address),
                "command_id": owed.command_id,
                "value": owed.value,
                "since": iso(owed.since_ms),
                "due": iso(owed.due_ms),
                "is_told": owed.is_told,
            }
            for owed in await self._commands.owed()
        ]
        return json_response({"items": sorted(items, key=lambda item: str(item["address"]))})

    async def dismiss(self, request: Request) -> Response:
        check_query(request, frozenset())
        body = await read_object(request, self._max_body_bytes, frozenset({"address", "who", "reason"}))
        problems: list[Problem] = []
        address, who, reason = (
            _text(body, name, problems, most) for name, most in (("address", 0), ("who", 200), ("reason", 500))
        )
        if not reason:
            problems.append(Problem("no_reason", "reason", "say why nobody needs to switch the output off any more"))
        _refuse(problems)
        return json_response({"dismissed": await self._commands.dismiss(address, who, reason)})

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset({"model", "limit"}))
        model, limit = query_id(request, "model") or "", query_limit(request, MAX_LIMIT, default=100)
        commands = await self._commands.list(model, limit)
        return json_response({"items": [command_view(command) for command in commands]})

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset({"wait"}))
        command_id, wait_s = _command_id(request), query_number(request, "wait", 0, MAX_WAIT_S)
        if wait_s:
            with suppress(TimedOut):
                await self._commands.wait(command_id, wait_s)
        return json_response(command_view(await self._commands.get(command_id)))

    async def cancel(self, request: Request) -> Response:
        check_query(request, frozenset())
        command_id = _command_id(request)
        found = await read_json_or_none(request, self._max_body_bytes)
        body = {} if found is None else check_object(found, frozenset({"who", "reason"}))
        problems: list[Problem] = []
        who, reason = _text(body, "who", problems, 200), _text(body, "reason", problems, 500)
        _refuse(problems)
        return json_response(command_view(await self._commands.cancel(command_id, who, reason)))

    def endpoints(self) -> list[Endpoint]:
        every, one = "/api/v1/commands", "/api/v1/commands/{id}"
        seconds = {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S}
        limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 100}
        return [
            Endpoint(
                "POST", every, self.submit, "Send a command",
                {202: ("Accepted; it is carried out at most once", "CommandAccepted"),
                 200: ("Its idempotency key had brought it in before", "CommandAccepted"),
                 409: ("Interlocked, not selected, or the key belongs to another request", "Error"), 422: BAD,
                 429: ("Too many wait for this channel", "Error")}, TAG,
                "To a point of kind c or a (`address`), or to a control of a model (`model` and `field`). If the "
                "channel is offline it waits for `expiry_s`, then it ends as `timeout`.", body="CommandRequest",
            ),
            Endpoint(
                "POST", f"{every}/select", self.select, "Reserve a point for a value, to operate it next",
                {200: ("Reserved", "Selection"), 409: FORBIDDEN, 422: BAD}, TAG,
                "For points that must be selected before they are operated. Send the command with the same `who` and "
                "value.", body="SelectRequest",
            ),
            Endpoint(
                "POST", f"{every}/release", self.release, "Give a selection up",
                {200: ("Whether there was one", "Released"), 409: ("It is somebody else's", "Error"), 422: BAD}, TAG,
                body="ReleaseRequest",
            ),
            Endpoint(
                "GET", f"{every}/owed", self.owed, "List what devices are owed",
                {200: ("Writes that must still follow, such as the 0 of a pulse", "OwedWrites"), 422: BAD}, TAG,
                "Whoever polls the channel next does them first of all; while one is late, a Critical alarm says so.",
            ),
            Endpoint(
                "POST", f"{every}/owed/dismiss", self.dismiss, "Give up what a device is owed",
                {200: ("Whether something was owed", "Dismissed"), 422: BAD}, TAG,
                "Only when somebody has made sure that the output is off, or the device is gone for good.",
                body="DismissRequest",
            ),
            Endpoint(
                "GET", every, self.index, "List commands, newest first", {200: ("Commands", "Commands"), 422: BAD}, TAG,
                "The last 1,000 of a model, or of `channel_1001` for bare points; without `model` those that changed "
                "last. They are kept for 24 hours.",
                query=(Parameter("model", "A model, or `channel_` and a number", {"type": "string"}),
                       Parameter("limit", "At most so many", limit)),
            ),
            Endpoint(
                "GET", one, self.show, "Show a command", {200: ("The command", "Command"), 404: UNKNOWN, 422: BAD}, TAG,
                query=(Parameter("wait", "Answer when it has ended, or after so many seconds", seconds),),
                limit_s=MAX_WAIT_S + LIMIT_S,
            ),
            Endpoint(
                "POST", f"{one}/cancel", self.cancel, "Cancel a command that waits",
                {200: ("Cancelled", "Command"), 404: UNKNOWN, 409: ("It has started or ended", "Error"), 422: BAD}, TAG,
                body="CommandCancel", body_optional=True,
            ),
        ]  # fmt: skip


def _request(body: dict[str, Any], problems: list[Problem] | None = None) -> CommandRequest:
    """Only the form; what may be written where is for the room to say. Raises Invalid."""
    problems = problems if problems is not None else []
    given = {name: value for name, value in body.items() if value is not None}
    value = given.get("value")
    if type(value) is bool and value in (True, False):
        given["value"] = int(value)
    elif type(value) not in (int, float):
        problems.append(Problem("not_a_number" if "value" in given else "missing_field", "value", "give a number"))
    for name in ("timeout_s", "expiry_s"):
        if type(given.get(name, 0)) not in (int, float):
            problems.append(Problem("not_a_number", name, "give seconds"))
    for name in ("address", "model", "field", "reason", "source", "who", "idempotency_key"):
        _text(given, name, problems)
    _refuse(problems)
    return CommandRequest(**given)


def _text(body: dict[str, Any], name: str, problems: list[Problem], most: int = 0) -> str:
    found = body.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        problems.append(Problem("not_a_text", name, "give text"))
        return ""
    if most and len(found) > most:
        problems.append(Problem("too_long", name, f"at most {most} characters"))
    return found


def _refuse(problems: list[Problem]) -> None:
    if problems:
        few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
        raise Invalid(f"the command is refused: {few}", code="bad_command", hint="see problems", problems=problems)


def _command_id(request: Request) -> str:
    """Other keys begin like those of commands, so only what looks like an id may get there."""
    command_id = path_id(request)
    if not command_id.startswith("cmd_"):
        raise CommandNotFound(command_id)
    return command_id
