"""JSON schemas of everything the API takes and gives, with examples. Data only; the rooms do the checking."""

from __future__ import annotations

from typing import Any

from tradewind.tasks.check import MAX_BATCH
from tradewind.tasks.record import Status

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
TIME: Schema = {"type": "string", "format": "date-time"}
WORDS: Schema = {"type": "array", "items": TEXT}
PRIORITY: Schema = {"type": "string", "enum": ["high", "normal"], "default": "normal"}
STATUS: Schema = {"type": "string", "enum": [str(status) for status in Status]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(schema: Schema, about: str = "") -> Schema:
    return {"type": "array", "items": schema, **({"description": about} if about else {})}


def _object(properties: dict[str, Schema], example: Any = None, needs: list[str] | None = None) -> Schema:
    """`needs` names the required properties; all of them when it is left out, as in answers."""
    found: Schema = {"type": "object", "properties": properties}
    required = list(properties) if needs is None else needs
    if required:
        found["required"] = required
    if example is not None:
        found["example"] = example
    return found


def _items(name: str) -> Schema:
    return _object({"items": _list(_ref(name))})


_REQUEST_EXAMPLE = {
    "type": "echo", "args": ["hi"], "kwargs": {}, "priority": "high", "delay_s": 0, "timeout_s": 30, "max_attempts": 3,
    "idempotency_key": "k", "tags": ["a"],
}  # fmt: skip
_TASK_EXAMPLE = {
    "id": "mi2x4k0a7d93hq1c0001", "type": "echo", "status": "SUCCESS", "priority": "high", "attempt": 1,
    "max_attempts": 3, "args": ["hi"], "kwargs": {}, "tags": ["a"], "labels": [], "idempotency_key": "k",
    "timeout_s": 30.0, "deadline": None,
    "result": "hi", "error": None, "progress": None, "worker_id": "w-1", "stalls": 0, "due_at": None,
    "created_at": "2026-11-16T08:00:00.000Z", "started_at": "2026-11-16T08:00:00.001Z",
    "finished_at": "2026-11-16T08:00:00.002Z",
}  # fmt: skip
_WORKER_EXAMPLE = {
    "id": "w-1", "name": "press shop", "status": "active", "capacity": 100, "load": 3, "queued": 1, "running": 2,
    "types": ["echo", "sleep"], "labels": ["gpu"], "address": None, "last_heartbeat": "2026-11-16T08:00:00.000Z",
    "started_at": "2026-11-16T07:00:00.000Z",
}  # fmt: skip
_PROBLEM_EXAMPLE = {"code": "out_of_range", "path": "delay_s", "hint": "give a value from 0 to 3.1e+08"}
_ERROR_EXAMPLE = {
    "error": {
        "code": "out_of_range",
        "message": "the task is not valid",
        "hint": _PROBLEM_EXAMPLE["hint"],
        "problems": [_PROBLEM_EXAMPLE],
    }
}
_MOMENT: Schema = {"anyOf": [TIME, {"type": "integer", "description": "milliseconds since the epoch"}]}

SCHEMAS: dict[str, Schema] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "code": {**TEXT, "description": "for programs"},
                    "message": {**TEXT, "description": "what happened, and where"},
                    "hint": {**TEXT, "description": "what to do"},
                    "problems": _list(_object({"code": TEXT, "path": TEXT, "hint": TEXT}), "everything that is wrong"),
                }
            )
        },
        _ERROR_EXAMPLE,
    ),
    "TaskRequest": _object(
        {
            "type": {**TEXT, "description": "a type that a worker offers; see /api/v1/task-types"},
            "args": _list(ANY),
            "kwargs": {"type": "object"},
            "priority": PRIORITY,
            "delay_s": {**NUMBER, "minimum": 0},
            "eta": _MOMENT,
            "timeout_s": {**NUMBER, "exclusiveMinimum": 0, "description": "of one attempt"},
            "deadline": {**_MOMENT, "description": "of the whole task"},
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": 1000},
            "backoff_s": {**NUMBER, "minimum": 0, "description": "first pause between attempts; doubles, with jitter"},
            "backoff_max_s": {**NUMBER, "minimum": 0},
            "idempotency_key": {**TEXT, "maxLength": 200},
            "tags": {**WORDS, "maxItems": 20},
            "labels": {**WORDS, "maxItems": 20, "description": "only a worker that has all of them runs it"},
            "exclusive": {"anyOf": [FLAG, TEXT], "description": "true, or the name of a lock"},
            "id": {**TEXT, "maxLength": 160, "description": "left out, a new one is made"},
        },
        _REQUEST_EXAMPLE,
        ["type"],
    ),
    "TaskBatch": _object(
        {"tasks": {**_list(_ref("TaskRequest")), "maxItems": MAX_BATCH}},
        {"tasks": [_REQUEST_EXAMPLE, {"type": "sleep", "args": [0.5]}]},
    ),
    "TaskIds": _object({"ids": WORDS}, {"ids": ["mi2x4k0a7d93hq1c0001", "mi2x4k0a7d93hq1c0002"]}),
    "Task": _object(
        {
            "id": TEXT,
            "type": TEXT,
            "status": STATUS,
            "priority": PRIORITY,
            "attempt": COUNT,
            "max_attempts": COUNT,
            "args": _list(ANY),
            "kwargs": {"type": "object"},
            "tags": WORDS,
            "labels": WORDS,
            "idempotency_key": _or_null(TEXT),
            "timeout_s": _or_null(NUMBER),
            "deadline": _or_null(TIME),
            "result": ANY,
            "error": _or_null(_object({"type": TEXT, "message": TEXT, "traceback": TEXT}, needs=["type", "message"])),
            "progress": ANY,
            "worker_id": _or_null(TEXT),
            "stalls": {**COUNT, "description": "how often its worker was lost"},
            "due_at": _or_null(TIME),
            "created_at": _or_null(TIME),
            "started_at": _or_null(TIME),
            "finished_at": _or_null(TIME),
        },
        _TASK_EXAMPLE,
    ),
    "TaskPage": _object({"items": _list(_ref("Task")), "next_cursor": _or_null(TEXT)}),
    "TaskType": _object(
        {
            "type": TEXT,
            "doc": TEXT,
            "params": _list(_object({"name": TEXT, "types": WORDS, "required": FLAG, "keyword_only": FLAG})),
            "var_args": FLAG,
            "var_kwargs": FLAG,
            "timeout_s": _or_null(NUMBER),
            "max_attempts": COUNT,
        }
    ),
    "TaskTypes": _items("TaskType"),
    "Queue": _object(
        {"name": TEXT, "length": COUNT, "parked": COUNT, "paused": FLAG},
        {"name": "high", "length": 12, "parked": 0, "paused": False},
    ),
    "Queues": _items("Queue"),
    "Worker": _object(
        {
            "id": TEXT,
            "name": TEXT,
            "status": TEXT,
            "capacity": COUNT,
            "load": {**COUNT, "description": "queued + running"},
            "queued": COUNT,
            "running": COUNT,
            "types": WORDS,
            "labels": WORDS,
            "address": _or_null(TEXT),
            "last_heartbeat": _or_null(TIME),
            "started_at": _or_null(TIME),
        },
        _WORKER_EXAMPLE,
    ),
    "Workers": _items("Worker"),
    "WorkerRequest": _object(
        {
            "id": TEXT,
            "name": TEXT,
            "address": {**TEXT, "description": "http(s)://host:port"},
            "capacity": {"type": "integer", "minimum": 1, "default": 1},
            "types": WORDS,
            "labels": WORDS,
        },
        {"id": "mailer", "address": "http://10.0.0.7:9000", "capacity": 10, "types": ["send_email"], "labels": []},
        ["id", "address", "types"],
    ),
    "Registration": _object(
        {"generation": TEXT, "heartbeat_s": NUMBER}, {"generation": "k3j9x0aa", "heartbeat_s": 10.0}
    ),
    "Generation": _object({"generation": TEXT}, {"generation": "k3j9x0aa"}),
    "Beat": _object({"status": TEXT}, {"status": "active"}),
    "RateLimitRequest": _object(
        {"limit": {"type": "integer", "minimum": 1}, "window_s": {"type": "integer", "minimum": 1, "default": 1}},
        {"limit": 100, "window_s": 1},
        ["limit"],
    ),
    "RateLimit": _object(
        {"type": TEXT, "limit": COUNT, "window_s": COUNT, "used": COUNT},
        {"type": "echo", "limit": 100, "window_s": 1, "used": 7},
    ),
    "RateLimits": _items("RateLimit"),
    "ScheduleRequest": _object(
        {
            "type": TEXT,
            "every": {"anyOf": [NUMBER, TEXT], "description": 'seconds, or "30s", "5m", "1h", "1d"'},
            "cron": {**TEXT, "description": "five fields, UTC"},
            "args": _list(ANY),
            "kwargs": {"type": "object"},
            "priority": PRIORITY,
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": 1000},
            "timeout_s": NUMBER,
        },
        {"type": "echo", "args": ["tick"], "every": "30s"},
        ["type"],
    ),
    "Schedule": _object(
        {
            "name": TEXT,
            "type": TEXT,
            "every_s": _or_null(NUMBER),
            "cron": _or_null(TEXT),
            "args": _list(ANY),
            "kwargs": {"type": "object"},
            "priority": PRIORITY,
            "max_attempts": COUNT,
            "timeout_s": _or_null(NUMBER),
            "next_at": _or_null(TIME),
        }
    ),
    "Schedules": _items("Schedule"),
    "Health": _object(
        {
            "status": {"type": "string", "enum": ["ok", "degraded", "down"]},
            "version": TEXT,
            "parts": {"type": "object", "additionalProperties": _object({"status": TEXT, "detail": ANY})},
        },
        {"status": "ok", "version": "0.1.0", "parts": {"redis": {"status": "ok", "detail": "valkey 9.1"}}},
    ),
    "Snapshot": _object(
        {
            "at": TIME,
            "station": _object({"name": TEXT, "version": TEXT}),
            "health": _ref("Health"),
            "queues": _list(_object({"name": TEXT, "length": COUNT, "paused": FLAG})),
            "counts": {"type": "object", "additionalProperties": COUNT},
            "workers": _list(_ref("Worker")),
            "tasks": _list(_ref("Task"), "the newest; long values are null"),
        }
    ),
}
