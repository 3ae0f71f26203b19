"""JSON schemas of recovery."""

from __future__ import annotations

from tradewind.api.schema_parts import COUNT, FLAG, TEXT, TIME, WORDS, Schema, list_of, object_of, or_null, ref
from tradewind.recovery.kind_names import KINDS

_KINDS: Schema = {"type": "array", "items": {"type": "string", "enum": list(KINDS)}, "minItems": 1}
_BY_KIND_EXAMPLE = {"rules": {"copied": 12, "missing": 12, "examples": ["boiler_high"]}}

RECOVERY_SCHEMAS: dict[str, Schema] = {
    "Missing": object_of(
        {"copied": COUNT, "missing": COUNT, "examples": WORDS}, example={"copied": 12, "missing": 12, "examples": ["a"]}
    ),
    "Recovery": object_of(
        {
            "state": {"type": "string", "enum": ["ok", "new", "adopt", "lost", "foreign"]},
            "station_id": TEXT,
            "lost_at": or_null(TIME),
            "detail": TEXT,
            "hint": TEXT,
            "recover": {"type": "string", "enum": ["manual", "auto"]},
            "copied_at": or_null(TIME),
            "kinds": {"type": "object", "additionalProperties": ref("Missing")},
            "restore": or_null(ref("RestoreState")),
        },
        example={
            "state": "lost", "station_id": "mi2x4k0a7d93hq1c0001", "lost_at": "2026-11-16T08:00:00.000Z",
            "detail": "Redis came back without the data of this station", "hint": "tradewind restore --from sql",
            "recover": "manual", "copied_at": "2026-11-16T07:59:40.000Z", "kinds": _BY_KIND_EXAMPLE, "restore": None,
        },
    ),
    "RestoreRequest": object_of(
        {
            "from": {"type": "string", "enum": ["sql"], "default": "sql"},
            "kinds": _KINDS,
            "replace": {**FLAG, "description": "also overwrite what is in Redis"},
            "dry_run": FLAG,
            "accept": {**FLAG, "description": "restore nothing: Redis is as it shall be"},
        },
        needs=[],
        example={"from": "sql", "kinds": ["channels", "rules"]},
    ),
    "Release": object_of(
        {
            "id": TEXT,
            "state": {"type": "string", "enum": ["preparing", "open", "rolling_back"]},
            "note": TEXT,
            "started_at": TIME,
            "seen_at": TIME,
            "is_ready": FLAG,
            "total": COUNT,
            "done": COUNT,
        },
        example={
            "id": "k3j2h1g0", "state": "open", "note": "plant", "started_at": "2026-11-16T08:00:05.000Z",
            "seen_at": "2026-11-16T08:00:06.000Z", "is_ready": True, "total": 7, "done": 3,
        },
    ),
    "ReleaseRequest": object_of(
        {"changes": {"type": "object", "additionalProperties": WORDS}, "note": TEXT},
        needs=[],
        example={"changes": {"channels": ["1001"], "rules": ["boiler_high"]}, "note": "plant"},
    ),
    "ReleaseSteps": object_of(
        {"from": COUNT, "steps": list_of(ref("ReleaseStep")), "is_last": FLAG}, needs=["from", "steps"],
        example={"from": 0, "steps": [{"method": "PUT", "path": "/flows/f", "body": {}}], "is_last": True},
    ),
    "ReleaseStepPage": object_of({"steps": list_of(ref("ReleaseStep"))}),
    "ReleaseStep": object_of(
        {"method": {"type": "string", "enum": ["PUT", "POST", "DELETE"]}, "path": TEXT, "body": {}, "what": TEXT},
        needs=["method", "path"], example={"method": "PUT", "path": "/flows/f", "body": {}, "what": "flow f"},
    ),
    "ReleaseDone": object_of({"done": COUNT}, example={"done": 3}),
    "RolledBack": object_of(
        {"restored": WORDS, "removed": WORDS, "failed": WORDS},
        example={"restored": ["channels 1001"], "removed": ["flow f"], "failed": []},
    ),
    "RestorePlan": {"type": "object", "example": {"dry_run": True, "kinds": _BY_KIND_EXAMPLE}},
    "RestoreState": object_of(
        {
            "id": TEXT,
            "by": TEXT,
            "state": {"type": "string", "enum": ["running", "done", "incomplete", "failed", "accepted"]},
            "started_at": TIME,
            "ended_at": or_null(TIME),
            "kind": TEXT,
            "done": COUNT,
            "total": COUNT,
            "error": TEXT,
            "result": {
                "type": "object",
                "additionalProperties": object_of(
                    {
                        "restored": COUNT,
                        "kept": COUNT,
                        "ended": COUNT,
                        "failed": list_of(object_of({"id": TEXT, "error": TEXT})),
                    }
                ),
            },
        },
        example={
            "id": "k3j2h1g0", "by": "plant-1a2b3c4d", "state": "done", "started_at": "2026-11-16T08:00:05.000Z",
            "ended_at": "2026-11-16T08:00:06.000Z", "kind": "flows", "done": 3, "total": 3, "error": "",
            "result": {"rules": {"restored": 12, "kept": 0, "ended": 0, "failed": []}},
        },
    ),
}  # fmt: skip
