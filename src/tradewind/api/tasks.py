"""Tasks over HTTP: submit one or many, list, read, wait for, cancel, bring back; and the types there are."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, is_short, query_limit, query_number, read_json, read_object
from tradewind.api.known_types import KnownTypes
from tradewind.api.paging import gather_page
from tradewind.api.routing import LIMIT_S, Endpoint, Parameter, json_response
from tradewind.api.waiting import Endings
from tradewind.errors import Conflict, Invalid, Problem
from tradewind.ids import is_id, is_task_id
from tradewind.offload import offload
from tradewind.settings import Settings
from tradewind.tasks.check import MAX_BATCH, check_tasks
from tradewind.tasks.control import TaskControl
from tradewind.tasks.listing import MAX_LIMIT, Filter, Page, TaskListing
from tradewind.tasks.record import Status, parse_status
from tradewind.tasks.store import Accepted, TaskNotFound, TaskStore
from tradewind.tasks.waiting import fill

MAX_WAIT_S = 60.0
_BATCH = frozenset({"tasks"})
_FILTERS = frozenset({"status", "type", "tag", "cursor", "limit"})
_PAGING = (
    Parameter("cursor", "`next_cursor` of the page before", {"type": "string"}),
    Parameter("limit", "Tasks on a page", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 50}),
)
_TASK = ("The task", "Task")
_UNKNOWN = ("There is no such task", "Error")
_BAD = ("Not valid; every problem is listed", "Error")


class TaskRoutes:
    def __init__(
        self, settings: Settings, store: TaskStore, control: TaskControl, listing: TaskListing, endings: Endings
    ) -> None:
        self._settings = settings
        self._store = store
        self._control = control
        self._listing = listing
        self._endings = endings
        self._types = KnownTypes(control)

    async def submit(self, request: Request) -> Response:
        raw = await read_json(request, self._settings.api.max_body_bytes)
        accepted = (await self._accept([raw], single=True, is_short=is_short(request)))[0]
        try:
            task = await self._store.get(accepted.id)  # not through the cache: a submission should not write it
        except TaskNotFound as error:
            raise Conflict(
                f"the idempotency key brought in task {accepted.id!r}, which has ended and is forgotten",
                code="already_forgotten",
                hint="use a new key to run it again",
            ) from error
        return json_response(task.view(), 201 if accepted.is_new else 200)

    async def submit_batch(self, request: Request) -> Response:
        body = await read_object(request, self._settings.api.max_body_bytes, _BATCH)
        raws = body.get("tasks")
        if not isinstance(raws, list):
            problem = Problem("not_a_list", "tasks", 'give {"tasks": [...]}')
            raise Invalid("the batch is not valid", code=problem.code, hint=problem.hint, problems=[problem])
        if len(raws) > MAX_BATCH:  # before anybody goes through them
            message, hint = f"{len(raws)} tasks in one batch", f"send at most {MAX_BATCH} at once"
            raise Invalid(message, code="batch_too_large", hint=hint)
        accepted = await self._accept(raws, single=False)
        return json_response({"ids": [one.id for one in accepted]}, 201)

    async def _accept(self, raws: list[Any], *, single: bool, is_short: bool = False) -> list[Accepted]:
        names = {kind for raw in raws if isinstance(raw, dict) and isinstance(kind := raw.get("type"), str)}
        types = await self._types.find(names)
        now_ms, max_payload = self._store.plane.clock.now_ms(), self._settings.tasks.max_payload_bytes
        how: dict[str, Any] = {"now_ms": now_ms, "max_payload": max_payload, "single": single}
        if single and is_short:
            return await self._store.submit(check_tasks(raws, types, **how))
        submissions = await offload(check_tasks, raws, types, **how)
        return await self._store.submit(submissions)

    async def index(self, request: Request) -> Response:
        check_query(request, _FILTERS, repeated=frozenset({"status"}))
        query = request.query_params
        wanted = Filter(_statuses(query.getlist("status")), _word(request, "type"), _word(request, "tag"))

        async def fetch(cursor: str | None, count: int) -> tuple[list[Any], str | None]:
            return await self._views(await self._listing.page(wanted, cursor, count))

        return await gather_page(fetch, query.get("cursor"), query_limit(request, MAX_LIMIT))

    async def dead(self, request: Request) -> Response:
        check_query(request, frozenset({"cursor", "limit"}))

        async def fetch(cursor: str | None, count: int) -> tuple[list[Any], str | None]:
            return await self._views(await self._listing.dead(cursor, count))

        return await gather_page(fetch, request.query_params.get("cursor"), query_limit(request, MAX_LIMIT))

    async def _views(self, page: Page) -> tuple[list[Any], str | None]:
        views = [task.view() for task in page.items]
        await fill(self._store.plane, views)
        return views, page.next_cursor

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset({"wait"}))
        task_id = _task_id(request)
        wait_s = query_number(request, "wait", 0, MAX_WAIT_S)
        if wait_s:
            await self._endings.wait(task_id, wait_s)
        return json_response(await self._store.view(task_id))

    async def cancel(self, request: Request) -> Response:
        task_id = _task_id(request)
        cancelled = (await self._store.cancel([task_id]))[0]
        if not cancelled.is_done and cancelled.status is not Status.CANCELLED:
            raise Conflict(
                f"task {task_id!r} has already ended: {cancelled.status}",
                code="already_ended",
                hint="a task that has ended keeps its state",
            )
        is_asked = cancelled.status is not Status.CANCELLED
        return json_response(await self._store.view(task_id), 202 if is_asked else 200)

    async def retry(self, request: Request) -> Response:
        task_id = _task_id(request)
        await self._store.retry(task_id)
        return json_response(await self._store.view(task_id))

    async def types(self, request: Request) -> Response:
        check_query(request, frozenset())
        found = await self._control.types()
        items = [
            {
                "type": name,
                "doc": known.doc,
                "params": [
                    {"name": p.name, "types": p.types, "required": p.required, "keyword_only": p.keyword_only}
                    for p in known.params
                ],
                "var_args": known.var_args,
                "var_kwargs": known.var_kwargs,
                "timeout_s": known.timeout_ms / 1000 if known.timeout_ms else None,
                "max_attempts": known.max_attempts,
            }
            for name, known in sorted(found.items())
        ]
        return json_response({"items": items})

    def endpoints(self) -> list[Endpoint]:
        status = Parameter(
            "status",
            "May repeat or be separated by commas, in any case",
            {"type": "array", "items": {"type": "string", "enum": [str(s) for s in Status]}},
        )
        filters = (
            status,
            Parameter("type", "Only tasks of this type", {"type": "string"}),
            Parameter("tag", "Only tasks with this tag", {"type": "string"}),
            *_PAGING,
        )
        wait = Parameter("wait", "Seconds to wait for its end", {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S})
        one = "/api/v1/tasks/{id}"
        refused = {422: _BAD, 429: ("Too much is waiting: try again after Retry-After", "Error")}
        return [
            Endpoint(
                "POST", "/api/v1/tasks", self.submit, "Submit a task",
                {201: ("Accepted", "Task"), 200: ("Its idempotency key had brought it in before", "Task"),
                 409: ("The id or the idempotency key belongs to another task", "Error"), **refused},
                body="TaskRequest",
            ),
            Endpoint(
                "POST", "/api/v1/tasks/batch", self.submit_batch, "Submit many tasks, all or none",
                {201: ("Accepted, in the order given", "TaskIds"), **refused}, body="TaskBatch",
            ),
            Endpoint(
                "GET", "/api/v1/tasks", self.index, "List tasks", {200: ("A page", "TaskPage"), 422: _BAD},
                query=filters,
                about="First what runs, then what waits, then what has ended, newest first. A page may be short "
                "and still have a next one.",
            ),
            Endpoint(
                "GET", "/api/v1/tasks/dead", self.dead, "List dead letters, newest first",
                {200: ("A page", "TaskPage"), 422: _BAD}, query=_PAGING,
            ),
            Endpoint(
                "GET", one, self.show, "Show a task, at once or when it has ended",
                {200: _TASK, 404: _UNKNOWN, 422: _BAD}, query=(wait,), limit_s=LIMIT_S + MAX_WAIT_S,
            ),
            Endpoint(
                "POST", f"{one}/cancel", self.cancel, "Cancel a task",
                {200: ("It is cancelled", "Task"), 202: ("It runs and was asked to stop", "Task"), 404: _UNKNOWN,
                 409: ("It had ended before", "Error")},
            ),
            Endpoint(
                "POST", f"{one}/retry", self.retry, "Bring back a task that ended badly",
                {200: _TASK, 404: _UNKNOWN, 409: ("Its state forbids it", "Error")},
            ),
            Endpoint(
                "GET", "/api/v1/task-types", self.types, "List the task types that workers offer",
                {200: ("All types", "TaskTypes")},
            ),
        ]  # fmt: skip


def _task_id(request: Request) -> str:
    task_id: str = request.path_params["id"]
    if not is_task_id(task_id):
        problem = Problem("bad_id", "id", "letters, digits, _ and -, at most 160 characters, no reserved word")
        raise Invalid(f"{task_id[:64]!r} is not a task id", code=problem.code, hint=problem.hint, problems=[problem])
    return task_id


def _word(request: Request, name: str) -> str | None:
    text = request.query_params.get(name)
    if text is not None and not is_id(text):
        problem = Problem(f"bad_{name}", name, "letters, digits, _ and -, at most 64 characters")
        raise Invalid("the query is not valid", code=problem.code, hint=problem.hint, problems=[problem])
    return text


def _statuses(texts: list[str]) -> frozenset[Status] | None:
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    found, problems = set(), []
    for word in words:
        try:
            found.add(parse_status(word))
        except ValueError:
            known = ", ".join(Status)
            problems.append(Problem("unknown_status", "status", f"{word[:32]!r} is none of {known}"))
    if problems:
        raise Invalid("the query is not valid", hint=problems[0].hint, problems=problems[:20])
    return frozenset(found) or None
