"""Workers over HTTP: who works, and how any HTTP service becomes a worker: register, heartbeat, leave."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from tradewind import codec
from tradewind.api.body import check_query, read_object
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.clock import now_ms
from tradewind.errors import Conflict, Invalid, Problem
from tradewind.ids import is_id, short_random
from tradewind.masking import masked_url
from tradewind.tasks.control import TaskControl, Worker
from tradewind.tasks.plane import Plane
from tradewind.tasks.worker_store import WorkerStore

_FIELDS = frozenset({"id", "name", "address", "capacity", "types", "labels"})
_MAX_CAPACITY = 100_000
_MAX_TYPES = 1000


def worker_view(worker: Worker) -> dict[str, Any]:
    return {
        "id": worker.id,
        "name": worker.name,
        "status": worker.status,
        "capacity": worker.capacity,
        "load": worker.load,
        "queued": worker.queued,
        "running": worker.running,
        "types": worker.types,
        "labels": worker.labels,
        "address": masked_url(worker.address) or None,
        "last_heartbeat": worker.last_heartbeat or None,
        "started_at": worker.started_at,
    }


class WorkerRoutes:
    def __init__(self, control: TaskControl, max_body_bytes: int) -> None:
        self._control = control
        self._max_body_bytes = max_body_bytes
        self._plane = _patient(control.plane)

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response({"items": [worker_view(worker) for worker in await self._control.workers()]})

    async def register(self, request: Request) -> Response:
        body = await read_object(request, self._max_body_bytes, _FIELDS)
        address = _check(body)
        worker_id, types, capacity = body["id"], sorted(set(body["types"])), body.get("capacity", 1)
        for other in await self._control.workers():
            if other.id == worker_id and other.address != address:
                raise Conflict(
                    f"worker {worker_id!r} is alive at {masked_url(other.address) or 'another process'}",
                    code="worker_id_taken",
                    hint="choose another id, or wait until its record expires",
                )
        names = codec.encode(types)
        store = WorkerStore(self._plane, worker_id, short_random())
        fields: dict[str, str | bytes | int | float] = {
            "id": worker_id, "name": body.get("name") or worker_id, "address": address, "api_url": address,
            "capacity": capacity, "current_load": 0, "supported_types": names, "supported_nodes": names,
            "status": "active", "labels": ",".join(sorted(set(body.get("labels") or []))), "started_ms": now_ms(),
        }  # fmt: skip
        await store.register(fields, dict.fromkeys(types, b""))
        heartbeat_s = self._plane.all_settings.scheduler.heartbeat_ttl_s / 3
        return json_response({"generation": store.generation, "heartbeat_s": heartbeat_s}, 201)

    async def heartbeat(self, request: Request) -> Response:
        body = await read_object(request, self._max_body_bytes, frozenset({"generation"}))
        await self._store(request, body.get("generation")).beat()
        return json_response({"status": "active"})

    async def leave(self, request: Request) -> Response:
        """What it still holds goes to others at once; it does not count as an attempt."""
        check_query(request, frozenset({"generation"}))
        store = self._store(request, request.query_params.get("generation"))
        running = [(task_id, "") for task_id, _, _ in await store.sync()]
        await store.release(running, queue_too=True)
        if not await store.leave():
            raise Conflict(f"worker {store.id!r} got new work while it left", code="worker_busy", hint="try again")
        return Response(status_code=204)

    def _store(self, request: Request, generation: object) -> WorkerStore:
        worker_id: str = request.path_params["id"]
        problems = []
        if not is_id(worker_id):
            problems.append(Problem("bad_id", "id", "letters, digits, _ and -, at most 64 characters"))
        if not isinstance(generation, str) or not is_id(generation):
            problems.append(Problem("bad_generation", "generation", "give the generation that registering answered"))
        if problems:
            raise Invalid("the worker is not named well", hint=problems[0].hint, problems=problems)
        return WorkerStore(self._plane, worker_id, str(generation))

    def endpoints(self) -> list[Endpoint]:
        one, tag = "/api/v1/workers/{id}", "workers"
        lost = ("Not registered any more: register again", "Error")
        generation = Parameter("generation", "As registering answered", {"type": "string"})
        return [
            Endpoint("GET", "/api/v1/workers", self.index, "List live workers", {200: ("All", "Workers")}, tag),
            Endpoint(
                "POST", "/api/v1/workers", self.register, "Register an HTTP service as a worker",
                {201: ("Registered", "Registration"), 409: ("The id is taken", "Error"), 422: ("Not valid", "Error")},
                tag, body="WorkerRequest",
                about="It then gets `POST {address}/execute` for each task, and sends a heartbeat every `heartbeat_s`.",
            ),
            Endpoint(
                "POST", f"{one}/heartbeat", self.heartbeat, "Stay registered",
                {200: ("It is", "Beat"), 409: lost}, tag, body="Generation",
            ),
            Endpoint(
                "DELETE", one, self.leave, "Leave; its tasks go to others", {204: ("Gone", None), 409: lost}, tag,
                query=(generation,),
            ),
        ]  # fmt: skip


def _patient(plane: Plane) -> Plane:
    """For workers that beat over HTTP, a third of the record's life apart: their lease lasts as long as the record."""
    settings = plane.all_settings
    scheduler = settings.scheduler.model_copy(update={"lease_s": float(settings.scheduler.heartbeat_ttl_s)})
    return Plane(plane.link, settings.model_copy(update={"scheduler": scheduler}), plane.clock)


def _check(body: dict[str, Any]) -> str:
    """The address without a trailing slash. Raises Invalid with every problem."""
    problems = []
    if not isinstance(body.get("id"), str) or not is_id(body["id"]):
        problems.append(Problem("bad_id", "id", "letters, digits, _ and -, at most 64 characters"))
    name = body.get("name")
    if name is not None and (not isinstance(name, str) or len(name) > 200):
        problems.append(Problem("bad_name", "name", "give text of at most 200 characters"))
    capacity = body.get("capacity", 1)
    if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= _MAX_CAPACITY:
        problems.append(Problem("out_of_range", "capacity", f"give a whole number from 1 to {_MAX_CAPACITY}"))
    for field, must in (("types", True), ("labels", False)):
        words = body.get(field)
        if words is None and not must:
            continue
        is_fine = isinstance(words, list) and all(isinstance(word, str) and is_id(word) for word in words)
        if not is_fine or len(words or ()) > _MAX_TYPES or (must and not words):
            problems.append(Problem("bad_words", field, "give a list of words of letters, digits, _ and -"))
    address = _address(body.get("address"))
    if address is None:
        problems.append(Problem("bad_address", "address", "give http://host:port or https://host:port"))
    if problems or address is None:
        raise Invalid("the worker is not valid", code="invalid_worker", hint="see problems", problems=problems)
    return address


def _address(text: object) -> str | None:
    if not isinstance(text, str) or len(text) > 300 or not text.isascii() or any(c.isspace() for c in text):
        return None
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return None
    is_plain = url.path in ("", "/") and not (url.query or url.fragment or url.username or url.password)
    if url.scheme not in ("http", "https") or not url.hostname or not port or not is_plain:
        return None
    return text.rstrip("/")
