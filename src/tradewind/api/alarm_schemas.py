"""JSON schemas of what the API says about alarms and notifications, with examples. Data only."""

from __future__ import annotations

from tradewind.alarms.record import LEVELS
from tradewind.alarms.transitions import Action, Status
from tradewind.api.notifications import STATUSES
from tradewind.api.schema_parts import (
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

OBJECT: Schema = {"type": "object"}
MS: Schema = {"type": "integer", "description": "milliseconds since the epoch"}
LEVEL: Schema = {"type": "string", "enum": [level.value for level in LEVELS]}
STATUS: Schema = {"type": "string", "enum": [status.value for status in Status]}
COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}
_ID = "alarm_123e4567-e89b-12d3-a456-426614174000"
_NEW = {
    "source": "pump-3", "title": "Pump 3 leaks", "level": "High", "category": "mechanics", "tags": ["hall2"],
    "actual": "2.5", "threshold": "0",
}  # fmt: skip

_ALARM: dict[str, Schema] = {
    "id": TEXT,
    "title": TEXT,
    "description": TEXT,
    "level": LEVEL,
    "status": STATUS,
    "category": TEXT,
    "priority": {"type": "integer", "minimum": 1, "maximum": 5},
    "tags": WORDS,
    "source_point": TEXT,
    "threshold_value": TEXT,
    "actual_value": TEXT,
    "created_at": TIME,
    "updated_at": TIME,
    "acknowledged_by": or_null(TEXT),
    "acknowledged_at": or_null(TIME),
    "resolved_at": or_null(TIME),
    "data": OBJECT,
    "rule_id": TEXT,
    "count": {**COUNT, "description": "how often it was raised"},
    "first_seen": MS,
    "last_seen": MS,
    "shelved_until": or_null(MS),
    "cause": {**or_null(TEXT), "description": "id of the alarm that suppresses it"},
    "held_by": {**or_null(TEXT), "description": "the operator who suppresses it"},
    "cleared_at": {**or_null(TIME), "description": "when the condition of a latched one ended"},
    "latched": FLAG,
    "escalations": COUNT,
    "escalate_ms": or_null(COUNT),
    "note": {**or_null(TEXT), "description": "the last one"},
    "version": {**COUNT, "description": "counts transitions"},
    "announced_ms": MS,
    "ended_ms": or_null(MS),
    "colour": TEXT,
}
_ACTION: dict[str, Schema] = {
    "note": {**TEXT, "maxLength": 2000},
    "who": {**TEXT, "maxLength": 200, "default": "operator"},
}
_ONE: dict[str, Schema] = {
    **_ACTION,
    "version": {**COUNT, "description": "refused if the alarm has another one"},
}
_MANY: dict[str, Schema] = {**_ACTION, "ids": {**WORDS, "minItems": 1, "maxItems": 5000}}
_SHELVE: dict[str, Schema] = {
    "duration_s": {**NUMBER, "description": "seconds, at most `alarms.shelve_max_s`"},
    "until": {"anyOf": [TIME, MS], "description": "instead of duration_s"},
}
_BY = {"note": "on my way", "who": "ada"}

ALARM_SCHEMAS: dict[str, Schema] = {
    "Text": TEXT,
    "Alarm": object_of(_ALARM),
    "AlarmPage": object_of({"items": list_of(ref("Alarm")), "next_cursor": or_null(TEXT)}),
    "AlarmWithJournal": object_of(
        {
            **_ALARM,
            "allowed": list_of({"type": "string", "enum": [action.value for action in Action]}),
            "journal": list_of(
                object_of(
                    {
                        "version": COUNT,
                        "event": TEXT,
                        "from": or_null(STATUS),
                        "to": STATUS,
                        "at": TIME,
                        "who": TEXT,
                        "note": TEXT,
                        "level": LEVEL,
                        "count": COUNT,
                        "actual_value": TEXT,
                    }
                ),
                "every transition, oldest first",
            ),
        }
    ),
    "NewAlarm": object_of(
        {
            "rule_id": {**TEXT, "default": "external"},
            "source": {**TEXT, "description": "what it is about; also `source_point`"},
            "title": {**TEXT, "maxLength": 200},
            "level": {**TEXT, "description": f"{', '.join(LEVELS)}; also Major, Minor, Warning", "default": "Medium"},
            "description": TEXT,
            "category": {**TEXT, "default": "general"},
            "tags": WORDS,
            "threshold": {**TEXT, "description": "also `threshold_value`"},
            "actual": {**TEXT, "description": "also `actual_value`"},
            "data": OBJECT,
            "latched": FLAG,
            "escalate_ms": {**or_null(COUNT), "description": "null: as the settings say; 0: never"},
            "notify": {**or_null(WORDS), "description": "targets; null: as the routes say"},
            "inhibited_by": {**WORDS, "description": "rules whose open alarms suppress it"},
        },
        _NEW,
        ["source", "title"],
    ),
    "AlarmAction": object_of(_ONE, _BY, []),
    "AlarmShelve": object_of({**_ONE, **_SHELVE}, {**_BY, "duration_s": 3600}, []),
    "AlarmsAction": object_of(_MANY, {**_BY, "ids": [_ID]}, ["ids"]),
    "AlarmsShelve": object_of({**_MANY, **_SHELVE}, {**_BY, "ids": [_ID], "duration_s": 3600}, ["ids"]),
    "AlarmsActed": object_of(
        {
            "items": list_of(
                object_of(
                    {
                        "id": TEXT,
                        "status": STATUS,
                        "version": COUNT,
                        "changed": {**FLAG, "description": "false: it was so already"},
                    }
                )
            ),
            "errors": list_of(
                object_of(
                    {
                        "id": TEXT,
                        "error": object_of(
                            {
                                "code": TEXT,
                                "message": TEXT,
                                "hint": TEXT,
                                "problems": list_of(OBJECT),
                                "allowed": WORDS,
                            },
                            None,
                            ["code", "message", "hint", "problems"],
                        ),
                    }
                )
            ),
        },
        {"items": [{"id": _ID, "status": "Acknowledged", "version": 2, "changed": True}], "errors": []},
    ),
    "AlarmEvent": object_of({"event": TEXT, "at": MS, "alarm": ref("Alarm")}),
    "AlarmStatistics": object_of(
        {
            "open": {**COUNTS, "description": "by level"},
            "statuses": COUNTS,
            "raised": {**COUNT, "description": "since `since_ms`"},
            "raised_by_level": COUNTS,
            "acknowledged": COUNT,
            "resolved": COUNT,
            "acknowledge_s": {**or_null(NUMBER), "description": "mean time to acknowledge"},
            "resolve_s": {**or_null(NUMBER), "description": "mean time to resolve"},
            "resolve_rate": {**or_null(NUMBER), "description": "a share of 1"},
            "talkers": list_of(object_of({"rule_id": TEXT, "source": TEXT, "raised": COUNT})),
            "standing": {**COUNT, "description": "open for more than a day"},
            "recent": {**COUNT, "description": "raised within the window of floods"},
            "is_flood": FLAG,
            "flood_since_ms": or_null(MS),
            "floods": COUNT,
            "flood_share": {**NUMBER, "description": "of the time since `since_ms`"},
            "since_ms": or_null(MS),
            "journal_waiting": {**COUNT, "description": "transitions that not all readers have"},
            "journal_dropped": {**COUNTS, "description": "by reader: transitions that it never had"},
            "outbox_waiting": {**COUNT, "description": "messages that are not planned yet"},
            "outbox_dropped": {**COUNT, "description": "messages that nobody was told"},
        }
    ),
    "AlarmPeriod": object_of(
        {
            "from_ms": MS,
            "to_ms": MS,
            "raised": {**COUNT, "description": "new alarms"},
            "raised_by_level": COUNTS,
            "acknowledged": COUNT,
            "resolved": COUNT,
            "acknowledge_s": {**or_null(NUMBER), "description": "mean time to acknowledge"},
            "resolve_s": {**or_null(NUMBER), "description": "mean time to resolve"},
            "resolve_rate": {**or_null(NUMBER), "description": "of those raised in the period, by its end"},
            "talkers": list_of(object_of({"rule_id": TEXT, "source": TEXT, "raised": COUNT})),
            "recorded_until_ms": {**or_null(MS), "description": "what happened since is on its way to SQL"},
        }
    ),
    "AlarmFigures": {"oneOf": [ref("AlarmStatistics"), ref("AlarmPeriod")]},
    "NotificationPolicy": object_of(
        {
            "version": {**COUNT, "description": "when given, it must be the stored one"},
            "targets": {
                "type": "object",
                "additionalProperties": object_of(
                    {"url": TEXT, "headers": OBJECT, "enabled": FLAG, "events": WORDS}, None, ["url"]
                ),
            },
            "routes": list_of(OBJECT),
            "quiet_hours": or_null(OBJECT),
            "escalation": list_of(object_of({"after_s": NUMBER, "targets": WORDS}, None, ["after_s", "targets"])),
            "group_wait_s": or_null(NUMBER),
            "group_interval_s": or_null(NUMBER),
        },
        {
            "targets": {"office": {"url": "https://hooks.example.com/station"}},
            "routes": [{"min_level": "High", "targets": ["office"]}],
            "quiet_hours": {"from": "22:00", "to": "06:00", "timezone": "Europe/Berlin"},
        },
        [],
    ),
    "PolicyValidation": object_of(
        {
            "valid": FLAG,
            "problems": list_of(object_of({"code": TEXT, "path": TEXT, "hint": TEXT})),
            **MORE_PROBLEMS,
            "changed": {**FLAG, "description": "it is other than what is stored, be it in a secret"},
            "policy": {**or_null(ref("NotificationPolicy")), "description": "as it would be shown"},
        },
        None,
        ["valid", "problems", "changed", "policy"],
    ),
    "NotificationTestRequest": object_of({"target": TEXT}, {"target": "office"}),
    "NotificationTest": object_of({"target": TEXT, "ok": FLAG, "error": TEXT, "duration_ms": COUNT}),
    "Delivery": object_of(
        {
            "id": TEXT,
            "target": TEXT,
            "status": {"type": "string", "enum": list(STATUSES)},
            "count": {**COUNT, "description": "messages in it"},
            "attempts": COUNT,
            "error": TEXT,
            "at": {**or_null(TIME), "description": "of the next try, or of its end"},
        }
    ),
    "Deliveries": items_of("Delivery"),
}
