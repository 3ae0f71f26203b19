"""The journal of a release over HTTP: what `tradewind apply` notes before, while and after it changes definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, read_object
from tradewind.api.routing import Endpoint, Parameter, json_response, long_response
from tradewind.clock import iso
from tradewind.errors import Invalid, Problem
from tradewind.recovery.kind_names import RELEASED

#: Channels may be that long, too.
MAX_BODY_BYTES = 64_000_000
BEGIN_S, ROLLBACK_S = 60.0, 300.0


class Release(Protocol):
    id: str
    state: str
    note: str
    started_ms: int
    beat_ms: int
    is_ready: bool
    total: int
    done: int


class Releases(Protocol):
    """What the API needs of the journal."""

    async def current(self) -> Release: ...
    async def begin(self, changes: Mapping[str, Sequence[str]], note: str) -> Release: ...
    async def add_steps(self, release_id: str, start: int, steps: Sequence[Any], *, is_last: bool) -> None: ...
    async def steps(self, release_id: str, start: int) -> list[Any]: ...
    async def set_done(self, release_id: str, done: int) -> None: ...
    async def finish(self, release_id: str) -> None: ...
    async def roll_back(self, release_id: str) -> Any: ...


class ReleaseOwner(Protocol):
    @property
    def releases(self) -> Releases: ...


class ReleaseRoutes:
    def __init__(self, recovery: ReleaseOwner, max_body_bytes: int) -> None:
        self._recovery = recovery
        self._max_body_bytes = max(max_body_bytes, MAX_BODY_BYTES)

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(_view(await self._recovery.releases.current()))

    async def begin(self, request: Request) -> Response:
        body = await read_object(request, self._max_body_bytes, frozenset({"changes", "note"}))
        changes, note, problems = body.get("changes", {}), body.get("note", ""), []
        if not isinstance(note, str):
            problems.append(Problem("not_a_text", "note", "say in a few words what is applied"))
        if not isinstance(changes, dict) or not all(isinstance(names, list) for names in changes.values()):
            problems.append(Problem("bad_changes", "changes", f"lists of ids by kind: {', '.join(RELEASED)}"))
        if problems:
            raise Invalid("the release is not valid", code="bad_release", hint="see problems", problems=problems)
        return json_response(_view(await self._recovery.releases.begin(changes, note)), 201)

    async def add(self, request: Request) -> Response:
        body = await read_object(request, self._max_body_bytes, frozenset({"from", "steps", "is_last"}))
        start, steps, is_last = body.get("from"), body.get("steps"), body.get("is_last", False)
        problems = [*_whole(start, "from")]
        if not isinstance(steps, list):
            problems.append(Problem("not_a_list", "steps", "a list of steps"))
        if not isinstance(is_last, bool):
            problems.append(Problem("not_a_flag", "is_last", "true or false"))
        if problems:
            raise Invalid("the steps are not valid", code="bad_step", hint="see problems", problems=problems)
        await self._recovery.releases.add_steps(
            request.path_params["id"], int(start or 0), steps or [], is_last=is_last
        )
        return Response(status_code=204)

    async def steps(self, request: Request) -> Response:
        check_query(request, frozenset({"from"}))
        text = request.query_params.get("from", "0")
        if not text.isdecimal() or len(text) > 9:
            problem = Problem("not_a_number", "from", "a whole number from 0 on")
            raise Invalid("from is not valid", hint=problem.hint, problems=[problem])
        found = await self._recovery.releases.steps(request.path_params["id"], int(text))
        return await long_response(lambda: {"steps": found})

    async def done(self, request: Request) -> Response:
        body = await read_object(request, self._max_body_bytes, frozenset({"done"}))
        if problems := list(_whole(body.get("done"), "done")):
            raise Invalid("done is not valid", code="bad_release", hint="see problems", problems=problems)
        await self._recovery.releases.set_done(request.path_params["id"], body["done"])
        return Response(status_code=204)

    async def finish(self, request: Request) -> Response:
        await self._recovery.releases.finish(request.path_params["id"])
        return Response(status_code=204)

    async def roll_back(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(msgspec.to_builtins(await self._recovery.releases.roll_back(request.path_params["id"])))

    def endpoints(self) -> list[Endpoint]:
        every, one, tag = "/api/v1/release", "/api/v1/release/{id}", "station"
        moved = {404: ("No release is open", "Error"), 409: ("Another one has taken over", "Error")}
        bad = {422: ("Not valid", "Error")}
        busy = {409: ("A rollback is under way, or what is there cannot be read", "Error")}
        start = Parameter("from", "The first step", {"type": "integer", "minimum": 0, "maximum": 999_999_999})
        return [
            Endpoint(
                "GET", every, self.show, "The release under way, or interrupted",
                {200: ("It", "Release"), 404: ("None is open", "Error")}, tag,
            ),
            Endpoint(
                "POST", every, self.begin, "Begin a release: note what is there",
                {201: ("It", "Release"), **busy, **bad}, tag, body="ReleaseRequest", limit_s=BEGIN_S,
                about="One that was interrupted is taken over: what was before it stays noted. At most 100,000 ids.",
            ),
            Endpoint("DELETE", one, self.finish, "End a release", {204: ("Its journal is gone", None), **moved}, tag),
            Endpoint(
                "POST", f"{one}/steps", self.add, "Note what will be done", {204: ("Noted", None), **moved, **bad}, tag,
                "At most 1000 steps at once, and 100,000 in all.", body="ReleaseSteps",
            ),
            Endpoint(
                "GET", f"{one}/steps", self.steps, "Read what was to be done",
                {200: ("Some of them", "ReleaseStepPage"), **moved, **bad}, tag, query=(start,),
            ),
            Endpoint(
                "POST", f"{one}/done", self.done, "Note how many steps are done",
                {204: ("Noted", None), **moved, **bad}, tag, body="ReleaseDone",
            ),
            Endpoint(
                "POST", f"{one}/rollback", self.roll_back, "Bring back what was before the release",
                {200: ("What was done; with `failed` the journal stays", "RolledBack"), **moved}, tag,
                "The release gets another id: whoever carries it out is refused from then on.", limit_s=ROLLBACK_S,
            ),
        ]  # fmt: skip


def _whole(value: Any, path: str) -> list[Problem]:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000
    return [] if is_whole else [Problem("not_a_number", path, "a whole number from 0 to 1000000")]


def _view(release: Release) -> dict[str, Any]:
    return {
        "id": release.id,
        "state": release.state,
        "note": release.note,
        "started_at": iso(release.started_ms),
        "seen_at": iso(release.beat_ms),
        "is_ready": release.is_ready,
        "total": release.total,
        "done": release.done,
    }
