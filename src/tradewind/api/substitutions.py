"""Substituting points over HTTP: show another value than the device's for a limited time; list; release."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, read_object
from tradewind.api.point_request import BAD
from tradewind.api.point_room import PointServices, substitution_view
from tradewind.api.routing import Endpoint, json_response
from tradewind.errors import Invalid, Problem
from tradewind.points.substitutions import SubstituteRequest

TAG = "points"
_FIELDS = frozenset(SubstituteRequest.__struct_fields__)


class SubstitutionRoutes:
    def __init__(self, room: PointServices, max_body_bytes: int) -> None:
        self._substitutions = room.substitutions
        self._max_body_bytes = max_body_bytes

    async def substitute(self, request: Request) -> Response:
        check_query(request, frozenset())
        body = await read_object(request, self._max_body_bytes, _FIELDS)
        problems: list[Problem] = []
        texts = {name: _text(body, name, problems) for name in ("address", "reason", "who", "source")}
        value, for_s = body.get("value"), body.get("for_s")
        if type(value) not in (int, float, bool):
            problems.append(Problem("missing_field" if value is None else "not_a_number", "value", "give a number"))
        if for_s is not None and type(for_s) not in (int, float):
            problems.append(Problem("not_a_number", "for_s", "give seconds"))
        _refuse(problems)
        given = {name: text for name, text in texts.items() if text}
        wanted: dict[str, Any] = {"address": "", "reason": "", **given, "value": _number(value), "for_s": for_s}
        return json_response(substitution_view(await self._substitutions.substitute(SubstituteRequest(**wanted))))

    async def release(self, request: Request) -> Response:
        check_query(request, frozenset())
        body = await read_object(request, self._max_body_bytes, frozenset({"address", "who", "reason"}))
        problems: list[Problem] = []
        address, who, reason = (_text(body, name, problems) for name in ("address", "who", "reason"))
        problems += [
            Problem("too_long", name, f"at most {most} characters")
            for name, text, most in (("who", who, 200), ("reason", reason, 500))
            if len(text) > most
        ]
        _refuse(problems)
        return json_response({"released": await self._substitutions.release(address, who, reason)})

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response({"items": [substitution_view(item) for item in await self._substitutions.standing()]})

    def endpoints(self) -> list[Endpoint]:
        every = "/api/v1/points/substitutions"
        return [
            Endpoint(
                "GET", every, self.index, "List substituted points",
                {200: ("Who substituted which point, why and until when", "Substitutions"), 422: BAD}, TAG,
            ),
            Endpoint(
                "POST", every, self.substitute, "Substitute a point",
                {200: ("The board shows the value now", "Substitution"), 422: BAD,
                 429: ("Too many points of the channel are substituted", "Error")}, TAG,
                "Shows a value instead of the device's, with quality `substituted`, for `for_s` seconds "
                "(`points.substitute_s`). What the device says meanwhile stands beside it. Points of kind m and s "
                "only; interlocks do not trust it unless their point says so (`interlock_accepts`).",
                body="SubstituteRequest",
            ),
            Endpoint(
                "POST", f"{every}/release", self.release, "Show what the device says again",
                {200: ("Whether it was substituted", "Released"), 422: BAD}, TAG,
                body="PointReleaseRequest",
            ),
        ]  # fmt: skip


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Invalid("the value is too large", code="bad_substitution", hint="give a finite number") from None


def _text(body: dict[str, Any], name: str, problems: list[Problem]) -> str:
    found = body.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        problems.append(Problem("not_a_text", name, "give text"))
        return ""
    return found


def _refuse(problems: list[Problem]) -> None:
    if problems:
        few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
        message = f"the substitution is refused: {few}"
        raise Invalid(message, code="bad_substitution", hint="see problems", problems=problems)
