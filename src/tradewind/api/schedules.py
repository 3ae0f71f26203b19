"""Periodic tasks over HTTP: list, show, set, remove."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, read_object
from tradewind.api.known_types import KnownTypes
from tradewind.api.routing import Endpoint, json_response
from tradewind.clock import iso
from tradewind.errors import Invalid, Problem
from tradewind.settings import Settings
from tradewind.tasks.check import check_task
from tradewind.tasks.control import TaskControl
from tradewind.tasks.periodic import Schedule, ScheduleStore, check_schedule, parse_every

_TASK_FIELDS = frozenset({"type", "args", "kwargs", "priority", "max_attempts", "timeout_s"})
_FIELDS = _TASK_FIELDS | {"every", "cron"}


def schedule_view(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "type": schedule.type,
        "every_s": schedule.every_ms / 1000 if schedule.every_ms else None,
        "cron": schedule.cron or None,
        "args": schedule.args,
        "kwargs": schedule.kwargs,
        "priority": schedule.priority,
        "max_attempts": schedule.max_attempts,
        "timeout_s": schedule.timeout_ms / 1000 if schedule.timeout_ms else None,
        "next_at": iso(schedule.next_ms) if schedule.next_ms else None,
    }


class ScheduleRoutes:
    def __init__(self, settings: Settings, store: ScheduleStore, control: TaskControl) -> None:
        self._settings = settings
        self._store = store
        self._types = KnownTypes(control)

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response({"items": [schedule_view(schedule) for schedule in await self._store.list()]})

    async def show(self, request: Request) -> Response:
        return json_response(schedule_view(await self._store.get(request.path_params["name"])))

    async def set(self, request: Request) -> Response:
        body = await read_object(request, self._settings.api.max_body_bytes, _FIELDS)
        schedule = await self._read(request.path_params["name"], body)
        return json_response(schedule_view(await self._store.set(schedule)))

    async def remove(self, request: Request) -> Response:
        await self._store.remove(request.path_params["name"])
        return Response(status_code=204)

    async def _read(self, name: str, body: dict[str, Any]) -> Schedule:
        """The task part is checked as a submission would be. Raises Invalid with every problem."""
        kind = body.get("type")
        types = await self._types.find([kind] if isinstance(kind, str) else [])
        task, problems = check_task(
            {field: value for field, value in body.items() if field in _TASK_FIELDS},
            types,
            now_ms=self._store.plane.clock.now_ms(),
            max_payload=self._settings.tasks.max_payload_bytes,
            new_id=name,
        )
        schedule = Schedule(name, task.type if task else "", cron=_cron(body.get("cron"), problems))
        if task is not None:
            schedule.args, schedule.kwargs = task.request.args, task.request.kwargs
            schedule.priority, schedule.max_attempts = task.priority, task.request.max_attempts
            schedule.timeout_ms = task.request.timeout_ms
        try:
            schedule.every_ms = _every(body.get("every"))
            check_schedule(schedule)
        except Invalid as error:
            problems += error.problems
        if problems:
            raise Invalid("the schedule is not valid", code="invalid_schedule", hint="see problems", problems=problems)
        return schedule

    def endpoints(self) -> list[Endpoint]:
        one, tag = "/api/v1/schedules/{name}", "schedules"
        unknown = ("There is no such schedule", "Error")
        return [
            Endpoint("GET", "/api/v1/schedules", self.index, "List schedules", {200: ("All", "Schedules")}, tag),
            Endpoint("GET", one, self.show, "Show a schedule", {200: ("It", "Schedule"), 404: unknown}, tag),
            Endpoint(
                "PUT", one, self.set, "Create or replace a schedule",
                {200: ("As it stands now", "Schedule"), 422: ("Not valid", "Error")}, tag, body="ScheduleRequest",
            ),
            Endpoint("DELETE", one, self.remove, "Remove a schedule", {204: ("Removed", None), 404: unknown}, tag),
        ]  # fmt: skip


def _every(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        problem = Problem("bad_interval", "every", 'give seconds or "30s", "5m", "1h", "1d"')
        raise Invalid("the interval is not valid", hint=problem.hint, problems=[problem])
    return parse_every(value)


def _cron(value: object, problems: list[Problem]) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and 0 < len(value) <= 200:
        return value
    problems.append(Problem("bad_cron", "cron", 'give five fields such as "*/5 * * * *"'))
    return ""
