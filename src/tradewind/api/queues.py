"""Queues over HTTP: how long they are, pause, resume."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query
from tradewind.api.routing import Endpoint, json_response
from tradewind.tasks.control import Queue, TaskControl


def queue_view(queue: Queue) -> dict[str, Any]:
    return {"name": queue.name, "length": queue.length, "parked": queue.parked, "paused": queue.is_paused}


class QueueRoutes:
    def __init__(self, control: TaskControl) -> None:
        self._control = control

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response({"items": [queue_view(queue) for queue in await self._control.queues()]})

    async def pause(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self._control.pause(name)
        return await self._show(name)

    async def resume(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self._control.resume(name)
        return await self._show(name)

    async def _show(self, name: str) -> Response:
        # A type has no queue of its own; it is listed only while it is paused.
        found = next((queue for queue in await self._control.queues() if queue.name == name), Queue(name, 0))
        return json_response(queue_view(found))

    def endpoints(self) -> list[Endpoint]:
        one = "/api/v1/queues/{name}"
        answers: dict[int, tuple[str, str | None]] = {
            200: ("The queue as it is now", "Queue"),
            404: ("There is no such queue", "Error"),
        }
        about = "`name` is `high`, `normal` or `type:NAME` for one task type."
        return [
            Endpoint("GET", "/api/v1/queues", self.index, "List queues", {200: ("All", "Queues")}, "queues"),
            Endpoint("POST", f"{one}/pause", self.pause, "Stop assigning from a queue", answers, "queues", about),
            Endpoint("POST", f"{one}/resume", self.resume, "Assign from a queue again", answers, "queues", about),
        ]
