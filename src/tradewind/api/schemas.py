"""JSON schemas of everything the API takes and gives, with examples. Data only; the rooms do the checking."""

from __future__ import annotations

from tradewind.api.schema_parts import (
    ANY,
    COUNT,
    FLAG,
    MORE_PROBLEMS,
    NUMBER,
    TEXT,
    TIME,
    WORDS,
    Schema,
    items_of,
    list_of,
    object_of,
    or_null,
    ref,
)
from tradewind.tasks.check import MAX_BATCH
from tradewind.tasks.record import Status

PRIORITY: Schema = {"type": "string", "enum": ["high", "normal"], "default": "normal"}
STATUS: Schema = {"type": "string", "enum": [str(status) for status in Status]}

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
    "finished_at": "2026-11-16T08:00:00.002Z", "waiting_for": None,
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


def _part(data: Schema, *, has_total: bool = False) -> Schema:
    """A part of a snapshot with its age; without an answer ever, `data`, `at` and `total` are null."""
    state: Schema = {"type": "string", "enum": ["current", "stale", "unknown"]}
    total: dict[str, Schema] = {"total": or_null(COUNT)} if has_total else {}
    return object_of({"data": or_null(data), "at": or_null(TIME), "state": state, **total})


SCHEMAS: dict[str, Schema] = {
    "Error": object_of(
        {
            "error": object_of(
                {
                    "code": {**TEXT, "description": "for programs"},
                    "message": {**TEXT, "description": "what happened, and where"},
                    "hint": {**TEXT, "description": "what to do"},
                    "problems": list_of(
                        object_of({"code": TEXT, "path": TEXT, "hint": TEXT}), "everything that is wrong"
                    ),
                    **MORE_PROBLEMS,
                    "allowed": {
                        **WORDS,
                        "description": "what can be done instead, with an alarm whose state forbids it",
                    },
                },
                None,
                ["code", "message", "hint", "problems"],
            )
        },
        _ERROR_EXAMPLE,
    ),
    "TaskRequest": object_of(
        {
            "type": {**TEXT, "description": "a type that a worker offers; see /api/v1/task-types"},
            "args": list_of(ANY),
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
    "TaskBatch": object_of(
        {"tasks": {**list_of(ref("TaskRequest")), "maxItems": MAX_BATCH}},
        {"tasks": [_REQUEST_EXAMPLE, {"type": "sleep", "args": [0.5]}]},
    ),
    "TaskIds": object_of({"ids": WORDS}, {"ids": ["mi2x4k0a7d93hq1c0001", "mi2x4k0a7d93hq1c0002"]}),
    "Task": object_of(
        {
            "id": TEXT,
            "type": TEXT,
            "status": STATUS,
            "priority": PRIORITY,
            "attempt": COUNT,
            "max_attempts": COUNT,
            "args": list_of(ANY),
            "kwargs": {"type": "object"},
            "tags": WORDS,
            "labels": WORDS,
            "idempotency_key": or_null(TEXT),
            "timeout_s": or_null(NUMBER),
            "deadline": or_null(TIME),
            "result": ANY,
            "error": or_null(object_of({"type": TEXT, "message": TEXT, "traceback": TEXT}, needs=["type", "message"])),
            "progress": ANY,
            "worker_id": or_null(TEXT),
            "stalls": {**COUNT, "description": "how often its worker was lost"},
            "due_at": or_null(TIME),
            "created_at": or_null(TIME),
            "started_at": or_null(TIME),
            "finished_at": or_null(TIME),
            "waiting_for": {
                **or_null(TEXT),
                "description": "why it cannot start now: no live worker supports its type, its type is paused, …",
            },
        },
        _TASK_EXAMPLE,
    ),
    "TaskPage": object_of({"items": list_of(ref("Task")), "next_cursor": or_null(TEXT)}),
    "TaskType": object_of(
        {
            "type": TEXT,
            "doc": TEXT,
            "params": list_of(object_of({"name": TEXT, "types": WORDS, "required": FLAG, "keyword_only": FLAG})),
            "var_args": FLAG,
            "var_kwargs": FLAG,
            "timeout_s": or_null(NUMBER),
            "max_attempts": COUNT,
        }
    ),
    "TaskTypes": items_of("TaskType"),
    "Queue": object_of(
        {"name": TEXT, "length": COUNT, "parked": COUNT, "paused": FLAG},
        {"name": "high", "length": 12, "parked": 0, "paused": False},
    ),
    "Queues": items_of("Queue"),
    "Worker": object_of(
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
            "address": or_null(TEXT),
            "last_heartbeat": or_null(TIME),
            "started_at": or_null(TIME),
        },
        _WORKER_EXAMPLE,
    ),
    "Workers": items_of("Worker"),
    "WorkerRequest": object_of(
        {
            "id": TEXT,
            "name": TEXT,
            "address": {**TEXT, "description": "http(s)://host:port"},
            "capacity": {"type": "integer", "minimum": 1, "default": 1},
            "types": WORDS,
            "labels": WORDS,
        },
        {"id": "mailer", "address": "http://192.0.2.7:9000", "capacity": 10, "types": ["send_email"], "labels": []},
        ["id", "address", "types"],
    ),
    "Registration": object_of(
        {"generation": TEXT, "heartbeat_s": NUMBER}, {"generation": "k3j9x0aa", "heartbeat_s": 10.0}
    ),
    "Generation": object_of({"generation": TEXT}, {"generation": "k3j9x0aa"}),
    "Beat": object_of({"status": TEXT}, {"status": "active"}),
    "RateLimitRequest": object_of(
        {"limit": {"type": "integer", "minimum": 1}, "window_s": {"type": "integer", "minimum": 1, "default": 1}},
        {"limit": 100, "window_s": 1},
        ["limit"],
    ),
    "RateLimit": object_of(
        {"type": TEXT, "limit": COUNT, "window_s": COUNT, "used": COUNT},
        {"type": "echo", "limit": 100, "window_s": 1, "used": 7},
    ),
    "RateLimits": items_of("RateLimit"),
    "ScheduleRequest": object_of(
        {
            "type": TEXT,
            "every": {"anyOf": [NUMBER, TEXT], "description": 'seconds, or "30s", "5m", "1h", "1d"'},
            "cron": {**TEXT, "description": "five fields, UTC"},
            "args": list_of(ANY),
            "kwargs": {"type": "object"},
            "priority": PRIORITY,
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": 1000},
            "timeout_s": NUMBER,
        },
        {"type": "echo", "args": ["tick"], "every": "30s"},
        ["type"],
    ),
    "Schedule": object_of(
        {
            "name": TEXT,
            "type": TEXT,
            "every_s": or_null(NUMBER),
            "cron": or_null(TEXT),
            "args": list_of(ANY),
            "kwargs": {"type": "object"},
            "priority": PRIORITY,
            "max_attempts": COUNT,
            "timeout_s": or_null(NUMBER),
            "next_at": or_null(TIME),
        }
    ),
    "Schedules": items_of("Schedule"),
    "HealthPart": object_of(
        {
            "status": {"type": "string", "enum": ["ok", "off", "degraded", "down", "unknown"]},
            "detail": TEXT,
            "hint": TEXT,
        },
        {"status": "ok", "detail": "valkey 9.1"},
        needs=["status", "detail"],
    ),
    "Health": object_of(
        {
            "status": {"type": "string", "enum": ["ok", "degraded", "down"]},
            "version": TEXT,
            "parts": {"type": "object", "additionalProperties": ref("HealthPart")},
        },
        {"status": "ok", "version": "0.1.0", "parts": {"redis": {"status": "ok", "detail": "valkey 9.1"}}},
    ),
    "Snapshot": object_of(
        {
            "at": TIME,
            "station": object_of({"name": TEXT, "version": TEXT}),
            "health": ref("Health"),
            "queues": _part(list_of(object_of({"name": TEXT, "length": COUNT, "paused": FLAG}))),
            "counts": _part({"type": "object", "additionalProperties": COUNT}),
            "workers": _part(list_of(ref("Worker"))),
            "tasks": _part(list_of(ref("Task"), "the newest; long values are null")),
            "flows": _part(list_of(ref("FlowGlance"), "the first by id, each with its last cycle"), has_total=True),
            "channels": _part(list_of(ref("ChannelGlance"), "the first by number"), has_total=True),
            "models": _part(list_of(ref("ModelGlance"), "the first by name"), has_total=True),
            "commands": _part(list_of(ref("Command"), "those that changed last")),
            "alarms": _part(list_of(ref("Alarm"), "the newest that are open"), has_total=True),
            "substitutions": _part(list_of(ref("Substitution"), "points that people have substituted"), has_total=True),
        }
    ),
}
