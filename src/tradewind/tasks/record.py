"""What a task is: its states, what a caller asks for, and what a reader sees. Data only."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tradewind import codec
from tradewind.clock import iso


class Status(StrEnum):
    """The life of a task: PENDING → QUEUED → ASSIGNED → PROCESSING → one of TERMINAL, with RETRYING between attempts.

    PENDING and RETRYING wait in `queue:delayed`. FAILED is an error that is not to be retried, DEAD is attempts used
    up (or a task that kept killing its worker), TIMEOUT a timeout or deadline that passed.
    """

    PENDING = "PENDING"
    QUEUED = "QUEUED"
    ASSIGNED = "ASSIGNED"
    PROCESSING = "PROCESSING"
    RETRYING = "RETRYING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    DEAD = "DEAD"


TERMINAL = frozenset({Status.SUCCESS, Status.FAILED, Status.CANCELLED, Status.TIMEOUT, Status.DEAD})
#: Ended badly, by itself: what `task dead` lists and `task retry` brings back.
DEAD_LETTERS = (Status.DEAD, Status.FAILED, Status.TIMEOUT)
#: Spellings of the seed documents that are accepted on input.
ALIASES = {"RUNNING": Status.PROCESSING, "COMPLETED": Status.SUCCESS, "DELAYED": Status.PENDING}


def parse_status(text: str) -> Status:
    """The status of that name, in any case, seed spellings too. Raises ValueError."""
    name = text.upper()
    return ALIASES.get(name) or Status(name)


class Priority(StrEnum):
    HIGH = "high"
    NORMAL = "normal"


class Request(msgspec.Struct, omit_defaults=True):
    """Everything about a task that only its worker and its readers need: the first line of `task:{id}:body`."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    max_attempts: int = 1
    timeout_ms: int = 0
    deadline_ms: int = 0
    backoff_ms: int = 1000
    backoff_max_ms: int = 300_000
    tags: list[str] = []
    labels: list[str] = []
    exclusive: str = ""
    idempotency_key: str = ""
    #: One attempt was asked for, it is not just the default: then a Retry is not followed either.
    only_one: bool = False


class Submission(msgspec.Struct):
    """One task to be submitted, already validated: see `check.py`. `line` is the request as JSON."""

    id: str
    type: str
    request: Request
    line: bytes
    priority: str = "normal"
    delay_ms: int = 0
    eta_ms: int = 0


class Failure(msgspec.Struct, omit_defaults=True):
    """Why an attempt ended badly."""

    type: str
    message: str
    traceback: str = ""


class Outcome(msgspec.Struct, omit_defaults=True):
    """The last line of `task:{id}:body` once the task has ended."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None


class Task(msgspec.Struct):
    """A task as readers see it; times in milliseconds, 0 while unknown."""

    id: str
    type: str
    status: Status
    priority: str = "normal"
    attempt: int = 0
    stalls: int = 0
    created_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    due_ms: int = 0
    worker_id: str = ""
    progress: Any = None
    request: Request = msgspec.field(default_factory=Request)
    result: Any = None
    error: Failure | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    def view(self) -> dict[str, Any]:
        """The public shape, as the API, the CLI and `task:cache:{id}` show it."""
        request = self.request
        return {
            "id": self.id,
            "type": self.type,
            "status": str(self.status),
            "priority": self.priority,
            "attempt": self.attempt,
            "max_attempts": request.max_attempts,
            "args": request.args,
            "kwargs": request.kwargs,
            "tags": request.tags,
            "labels": request.labels,
            "idempotency_key": request.idempotency_key or None,
            "timeout_s": request.timeout_ms / 1000 if request.timeout_ms else None,
            "deadline": iso(request.deadline_ms) if request.deadline_ms else None,
            "result": self.result,
            "error": msgspec.to_builtins(self.error) if self.error else None,
            "progress": self.progress,
            "worker_id": self.worker_id or None,
            "stalls": self.stalls,
            "due_at": iso(self.due_ms) if self.due_ms else None,
            "created_at": iso(self.created_ms) if self.created_ms else None,
            "started_at": iso(self.started_ms) if self.started_ms else None,
            "finished_at": iso(self.finished_ms) if self.finished_ms else None,
            "waiting_for": None,  # filled by `waiting.fill`: it depends on more than the task
        }


_request_decoder = msgspec.json.Decoder(Request)
_outcome_decoder = msgspec.json.Decoder(Outcome)
decode_request = _request_decoder.decode
decode_outcome = _outcome_decoder.decode


def split_body(body: bytes) -> tuple[bytes, bytes]:
    """Request line and outcome line (empty while the task lives); JSON never holds a bare newline."""
    request, _, outcome = body.partition(b"\n")
    return request, outcome


def from_redis(task_id: str, fields: dict[str, str], body: bytes | None) -> Task:
    """Build a Task from its hash and body as the scripts write them."""
    request_line, outcome_line = split_body(body or b"")
    request = decode_request(request_line) if request_line else Request()
    result, error = None, None
    if outcome_line:
        outcome = decode_outcome(outcome_line)
        result, error = codec.decode(outcome.result), outcome.error
    elif fields.get("err"):
        error = Failure(type="", message=fields["err"])
    progress = fields.get("prog")
    return Task(
        id=task_id,
        type=fields["type"],
        status=Status(fields["status"]),
        priority=fields.get("pri", "normal"),
        attempt=int(fields.get("n", 0)),
        stalls=int(fields.get("stalls", 0)),
        created_ms=int(fields.get("at", 0)),
        started_ms=int(fields.get("start", 0)),
        finished_ms=int(fields.get("end", 0)),
        due_ms=int(fields.get("due", 0)),
        worker_id=fields.get("worker", ""),
        progress=codec.decode(progress) if progress else None,
        request=request,
        result=result,
        error=error,
    )
