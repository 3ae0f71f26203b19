"""Recovery over HTTP: what Redis has lost, and the restore from the copy in SQL."""

from __future__ import annotations

from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, read_object
from tradewind.api.routing import Endpoint, json_response
from tradewind.errors import Invalid, Problem
from tradewind.recovery.kind_names import KINDS

_FIELDS = frozenset({"from", "kinds", "replace", "dry_run", "accept"})


class RecoveryService(Protocol):
    """What the API needs of the station's recovery."""

    async def view(self) -> dict[str, Any]: ...
    async def plan(self, kinds: list[str]) -> dict[str, Any]: ...
    async def start_restore(self, kinds: list[str], *, replace: bool = False) -> dict[str, Any]: ...
    async def accept(self) -> None: ...


class RecoveryRoutes:
    def __init__(self, recovery: RecoveryService, max_body_bytes: int) -> None:
        self._recovery = recovery
        self._max_body_bytes = max_body_bytes

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(await self._recovery.view())

    async def restore(self, request: Request) -> Response:
        body = await read_object(request, self._max_body_bytes, _FIELDS)
        kinds = _checked(body)
        if body.get("accept"):
            await self._recovery.accept()
            return json_response({"accepted": True})
        if body.get("dry_run"):
            return json_response({"dry_run": True, "kinds": await self._recovery.plan(kinds)})
        return json_response(await self._recovery.start_restore(kinds, replace=body.get("replace", False)), 202)

    def endpoints(self) -> list[Endpoint]:
        tag = "station"
        return [
            Endpoint(
                "GET", "/api/v1/station/recovery", self.show, "What Redis has lost, what the copy in SQL has",
                {200: ("State, missing things by kind, the last restore", "Recovery")}, tag,
            ),
            Endpoint(
                "POST", "/api/v1/station/restore", self.restore, "Restore from the copy in SQL",
                {
                    200: ("`dry_run`: what would be restored; `accept`: the loss is over", "RestorePlan"),
                    202: ("It has begun: see /station/recovery", "RestoreState"),
                    409: ("Another restore runs, there is no copy, or nothing is lost", "Error"),
                    422: ("Not valid", "Error"),
                },
                tag,
                about="What is in Redis stays unless `replace` is true. `accept` ends a loss and restores nothing.",
                body="RestoreRequest",
            ),
        ]  # fmt: skip


def _checked(body: dict[str, Any]) -> list[str]:
    """The kinds to restore. Raises Invalid with every problem."""
    problems = []
    if body.get("from", "sql") != "sql":
        problems.append(Problem("unknown_source", "from", 'copies are in SQL: give "sql"'))
    for name in ("replace", "dry_run", "accept"):
        if not isinstance(body.get(name, False), bool):
            problems.append(Problem("not_a_flag", name, "true or false"))
    kinds = body.get("kinds", list(KINDS))
    is_short = isinstance(kinds, list) and 0 < len(kinds) <= len(KINDS)
    if not is_short or not all(isinstance(kind, str) and kind in KINDS for kind in kinds):
        problems.append(Problem("unknown_kind", "kinds", f"a list of {', '.join(KINDS)}"))
    if problems:
        raise Invalid("the restore is not valid", code="bad_restore", hint="see problems", problems=problems)
    return list(kinds)
