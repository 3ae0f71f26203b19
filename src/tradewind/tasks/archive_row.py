"""One finished task as a row of the table `tasks`: values only, JSON left as it was encoded."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tradewind import codec
from tradewind.tasks.record import Failure, Status, Task, decode_outcome, decode_request, split_body


class ArchiveRow(NamedTuple):
    """The columns in the order of the table, then the tags. `request`, `result`, `progress` are JSON, or empty."""

    id: str
    type: str
    status: str
    priority: str
    attempt: int
    stalls: int
    worker_id: str
    created_ms: int
    started_ms: int
    finished_ms: int
    request: str
    result: str
    error_type: str = ""
    error_message: str = ""
    error_traceback: str = ""
    progress: str = ""
    tags: tuple[str, ...] = ()


class _Tagged(msgspec.Struct):
    tags: tuple[str, ...] = ()


_decode_tagged = msgspec.json.Decoder(_Tagged).decode


def row_from_redis(task_id: str, fields: dict[str, str], body: bytes) -> ArchiveRow:
    """From the hash and the body as the scripts write them, without decoding arguments or result."""
    get = fields.get
    request, outcome_line = split_body(body)
    result, failure = "", None
    if outcome_line:
        outcome = decode_outcome(outcome_line)
        result, failure = bytes(outcome.result).decode(), outcome.error
    elif get("err"):
        failure = Failure(type="", message=fields["err"])
    return ArchiveRow(
        task_id,
        fields["type"],
        fields["status"],
        get("pri", "normal"),
        int(get("n", 0)),
        int(get("stalls", 0)),
        get("worker", ""),
        int(get("at", 0)),
        int(get("start", 0)),
        int(get("end", 0)),
        request.decode(),
        result,
        *((_clean(failure.type), _clean(failure.message), _clean(failure.traceback)) if failure else ("", "", "")),
        get("prog", ""),
        _decode_tagged(request).tags if b'"tags"' in request else (),
    )


def row_from_task(task: Task) -> ArchiveRow:
    error = task.error
    return ArchiveRow(
        task.id,
        task.type,
        str(task.status),
        task.priority,
        task.attempt,
        task.stalls,
        task.worker_id,
        task.created_ms,
        task.started_ms,
        task.finished_ms,
        codec.encode(task.request).decode(),
        codec.encode(task.result).decode(),
        *((_clean(error.type), _clean(error.message), _clean(error.traceback)) if error else ("", "", "")),
        "" if task.progress is None else codec.encode(task.progress).decode(),
        tuple(task.request.tags),
    )


def task_from_columns(row: Any) -> Task:
    """From a database row with the columns of `tasks`."""
    has_error = row.error_type or row.error_message or row.error_traceback
    return Task(
        id=row.id,
        type=row.type,
        status=Status(row.status),
        priority=row.priority,
        attempt=row.attempt,
        stalls=row.stalls,
        created_ms=row.created_ms,
        started_ms=row.started_ms,
        finished_ms=row.finished_ms,
        worker_id=row.worker_id,
        progress=codec.decode(row.progress) if row.progress else None,
        request=decode_request(row.request or "{}"),
        result=codec.decode(row.result) if row.result else None,
        error=Failure(row.error_type, row.error_message, row.error_traceback) if has_error else None,
    )


def _clean(text: str) -> str:
    # PostgreSQL takes no NUL in a text. JSON columns cannot hold one: there it is the escape \u0000.
    return text.replace("\0", "\ufffd")
