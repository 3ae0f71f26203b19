"""JSON schemas of what the API says about rules, with examples. Data only."""

from __future__ import annotations

from tradewind.api.rule_room import STATES
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
from tradewind.rules.spec import LOGICS, ON_BAD, ON_STARTUP

OBJECT: Schema = {"type": "object"}
MS: Schema = {"type": "integer", "minimum": 0, "description": "milliseconds"}
VALUE: Schema = {"anyOf": [NUMBER, TEXT, {"type": "null"}]}
_PROBLEMS: Schema = list_of(object_of({"code": TEXT, "path": TEXT, "hint": TEXT}))

_WARNINGS: Schema = {**_PROBLEMS, "description": "what the rules name that is not there; they are stored all the same"}

_RULE = {
    "id": "rule_temperature_monitor", "name": "Temperature", "description": "too hot", "group_id": "", "enabled": True,
    "priority": 5,
    "conditions": [{"field": "temperature", "operator": ">", "value": "75.0", "source": "comsrv:1001:m:10001"}],
    "actions": [{"type": "create_alarm", "parameters": {"level": "Critical", "title": "Too hot: {value}"}}],
    "for_ms": 5000, "hysteresis": 2,
}  # fmt: skip
_GROUP = {"id": "group_temperature", "name": "Temperatures", "description": ""}
_EXECUTION = {
    "id": "exec_0a8f5f0e-6a5a-4d9f-9a6b-6e0d7f2b1c3d", "rule_id": "rule_temperature_monitor",
    "timestamp": 1704103200000, "triggered": True,
    "conditions_result": {"temperature": {"matched": True, "actual_value": 85.6}},
    "actions_executed": ["create_alarm"], "success": True, "duration_ms": 3, "error_message": None,
    "context": {"source_data": "comsrv:1001:m:10001", "trigger_value": 85.6},
}  # fmt: skip
_CHECKED: Schema = {
    "type": "object",
    "additionalProperties": object_of({"matched": or_null(FLAG), "actual_value": {"anyOf": [FLAG, *VALUE["anyOf"]]}}),
    "description": "by the field of the condition; `matched` null: it could not be judged",
}
_RULE_FIELDS: dict[str, Schema] = {
    "id": TEXT,
    "name": TEXT,
    "description": TEXT,
    "group_id": TEXT,
    "enabled": {**FLAG, "default": True},
    "priority": {"type": "integer", "description": "higher ones are judged first"},
    "logic": {"type": "string", "enum": list(LOGICS), "default": "all"},
    "conditions": list_of(OBJECT, "compare, range, rate, window, change, schedule, expression, alarm, group, not"),
    "actions": list_of(
        OBJECT,
        "create_alarm, send_control, send_notification, log_event, start_flow, submit_task, set_value",
    ),
    "for_ms": {**MS, "description": "how long it must hold"},
    "off_delay_ms": {**MS, "description": "how long it must not hold any more"},
    "cooldown_ms": {**MS, "description": "does not act again for so long"},
    "hysteresis": NUMBER,
    "on_bad": {"type": "string", "enum": list(ON_BAD), "default": "hold"},
    "on_startup": {"type": "string", "enum": list(ON_STARTUP), "default": "skip"},
    "inhibited_by": {**WORDS, "description": "ids of rules whose open alarms suppress those of this one"},
    "latched": FLAG,
    "version": {**COUNT, "description": "when given, it must be the stored one"},
}
_STORED: dict[str, Schema] = {
    **_RULE_FIELDS,
    "created_at": TIME,
    "updated_at": TIME,
    "state": {
        "type": "string",
        "enum": list(STATES),
        "description": "`waiting`: not judged yet; `stopped`: it fed itself",
    },
    "figures": object_of(
        {
            "executions": COUNT,
            "triggered": COUNT,
            "failed": COUNT,
            "success_rate": or_null(NUMBER),
            "mean_ms": or_null(NUMBER),
            "last_at": {**or_null(TIME), "description": "its last edge, rise or fall"},
            "fired_at": {**or_null(TIME), "description": "when it last became active"},
            "stopped_at": or_null(TIME),
        }
    ),
    "problems": {**_PROBLEMS, "description": "why it is not judged"},
    "warnings": {**_PROBLEMS, "description": "in the answer to a change: what it names that is not there"},
}
_NEEDED = ["id", "name", "enabled", "priority", "conditions", "actions", "version", "state", "figures", "problems"]
_GROUP_FIELDS: dict[str, Schema] = {"id": TEXT, "name": TEXT, "description": TEXT, "version": COUNT}

RULE_SCHEMAS: dict[str, Schema] = {
    "RuleDefinition": object_of(_RULE_FIELDS, _RULE, ["id", "conditions"]),
    "Rule": object_of(_STORED, None, _NEEDED),
    "RulePage": object_of({"items": list_of(ref("Rule")), "next_cursor": or_null(TEXT)}),
    "RulesChange": {
        "anyOf": [
            object_of(
                {
                    "rules": list_of(ref("RuleDefinition")),
                    "groups": list_of(ref("RuleGroupDefinition")),
                    "remove": {**WORDS, "description": "ids of rules"},
                },
                None,
                [],
            ),
            list_of(ref("RuleDefinition")),
        ],
        "example": {"rules": [_RULE], "groups": [_GROUP], "remove": ["old_rule"]},
    },
    "RulesChanged": object_of(
        {"rules": WORDS, "groups": WORDS, "removed": WORDS, "warnings": _WARNINGS},
        {
            "rules": ["rule_temperature_monitor"],
            "groups": ["group_temperature"],
            "removed": ["old_rule"],
            "warnings": [
                {
                    "code": "unknown_flow",
                    "path": "actions[0].parameters.flow_id",
                    "hint": "there is no flow 'cool'",
                }
            ],
        },
    ),
    "RuleValidation": object_of(
        {"valid": FLAG, "problems": _PROBLEMS, **MORE_PROBLEMS, "warnings": _WARNINGS},
        {"valid": True, "problems": [], "warnings": []},
        ["valid", "problems", "warnings"],
    ),
    "RuleTestRequest": object_of(
        {"rule": {**ref("RuleDefinition"), "description": "instead of what is stored"}}, {}, []
    ),
    "RuleTest": object_of(
        {
            "rule_id": TEXT,
            "at": TIME,
            "level": {**or_null(FLAG), "description": "of all conditions; null: unknown"},
            "conditions": _CHECKED,
            "sources": {
                "type": "object",
                "additionalProperties": object_of({"value": VALUE, "at": or_null(TIME), "quality": TEXT}),
            },
            "actions": list_of(
                object_of({"type": TEXT, "parameters": OBJECT, "error": TEXT}, None, ["type"]),
                "what it would do if it became true now",
            ),
            "error": TEXT,
        }
    ),
    "BacktestRequest": object_of(
        {
            "rule": {**ref("RuleDefinition"), "description": "instead of what is stored"},
            "csv": {**TEXT, "description": "`ts,address,value[,quality]`; times in milliseconds or ISO"},
            "samples": {
                "type": "object",
                "additionalProperties": list_of({"type": "array", "items": VALUE}),
                "description": "address → `[[ts, value], …]`, `[ts, value, quality]` with 2 for bad",
            },
            "from": {
                "anyOf": [TEXT, MS],
                "description": "what the history has since: ISO, milliseconds, or such as `24h`",
            },
            "to": {"anyOf": [TEXT, MS], "description": "until then; now, or with samples the last one, if absent"},
            "stale_s": {"type": "number", "description": "a source that is silent for so long is stale"},
            "max_events": {**COUNT, "maximum": 10_000},
        },
        {"samples": {"comsrv:1001:m:10001": [[1704103200000, 70], [1704103201000, 85.6]]}},
        [],
    ),
    "Backtest": object_of(
        {
            "rule_id": TEXT,
            "from": {**or_null(TIME), "description": "of the first sample"},
            "until": or_null(TIME),
            "samples": COUNT,
            "rises": COUNT,
            "falls": COUNT,
            "active_ms": MS,
            "is_active": {**FLAG, "description": "at the end"},
            "alarms": COUNT,
            "raised": {**COUNT, "description": "how often, repeats of an open alarm included"},
            "actions": {"type": "object", "additionalProperties": COUNT},
            "events": list_of(
                object_of(
                    {
                        "edge": {"type": "string", "enum": ["rise", "fall"]},
                        "at": TIME,
                        "cause": TEXT,
                        "source": TEXT,
                        "field": TEXT,
                        "value": VALUE,
                        "conditions": _CHECKED,
                    }
                )
            ),
            "is_cut": {**FLAG, "description": "there were more events"},
            "silent": {**WORDS, "description": "sources without any sample"},
            "is_vectorised": FLAG,
            "error": TEXT,
        }
    ),
    "Execution": object_of(
        {
            "id": TEXT,
            "rule_id": TEXT,
            "timestamp": {**MS, "description": "milliseconds since the epoch"},
            "triggered": {**FLAG, "description": "false: it became inactive"},
            "conditions_result": _CHECKED,
            "actions_executed": WORDS,
            "success": FLAG,
            "duration_ms": MS,
            "error_message": or_null(TEXT),
            "context": object_of({"source_data": TEXT, "trigger_value": VALUE}),
            "cause": {**TEXT, "description": "startup, timer, edited, …; absent: a value changed"},
            "substituted": {**WORDS, "description": "sources whose values people had given; absent: none"},
            "results": list_of(
                object_of(
                    {"type": TEXT, "success": FLAG, "id": TEXT, "code": TEXT, "error": TEXT}, None, ["type", "success"]
                )
            ),
        },
        _EXECUTION,
        list(_EXECUTION),
    ),
    "ExecutionPage": object_of({"items": list_of(ref("Execution")), "next_cursor": or_null(TEXT)}),
    "RuleGroupDefinition": object_of(_GROUP_FIELDS, _GROUP, ["id"]),
    "RuleGroup": object_of(
        {**_GROUP_FIELDS, "created_at": TIME, "updated_at": TIME, "rules": {**WORDS, "description": "their ids"}}
    ),
    "RuleGroups": items_of("RuleGroup"),
    "RuleGroupSwitched": object_of(
        {
            "id": TEXT,
            "enabled": FLAG,
            "rules": {**WORDS, "description": "all that are so now"},
            "changed": {**WORDS, "description": "those that were not so before, or that the loop guard had stopped"},
        },
        {"id": "group_temperature", "enabled": False, "rules": ["hot", "cold"], "changed": ["hot"]},
    ),
}
