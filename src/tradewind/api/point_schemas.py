"""JSON schemas of what the API says about points, channels, models and commands, with examples. Data only."""

from __future__ import annotations

from tradewind.api.channel_book import STATES
from tradewind.api.schema_parts import (
    COUNT,
    FLAG,
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
from tradewind.points.command_record import CommandStatus, Result
from tradewind.points.spec import Kind, Quality

OBJECT: Schema = {"type": "object"}
_AS_GIVEN: Schema = {**OBJECT, "description": "the definition as it was given"}
MS: Schema = {"type": "integer", "description": "milliseconds since the epoch"}
ADDRESS: Schema = {**TEXT, "description": "`comsrv:{channel}:{kind}:{point}` or `modsrv:{model}:measurement:{field}`"}
KIND: Schema = {"type": "string", "enum": [kind.value for kind in Kind]}
PROBLEMS: Schema = list_of(object_of({"code": TEXT, "path": TEXT, "hint": TEXT}))

_POINT = {
    "address": "comsrv:1001:m:10001", "value": 25.1, "ts": 1700000000000, "quality": "good", "age_ms": 12, "unit": "kW",
    "state": "ok",
}  # fmt: skip
_SAMPLE = {"channels": {"1001": {"m": {"10001": 25.1}, "s": {"20001": 1}}}, "ts": 1700000000000}
_CHANNEL_DEFINITION = {
    "id": 1001, "name": "PV", "protocol": "modbus_tcp", "poll_interval_ms": 1000,
    "parameters": {"host": "192.0.2.5", "port": 502},
    "points": [{"kind": "m", "id": 10001, "name": "power", "unit": "kW", "scale": 0.1,
                "mapping": {"slave_id": 1, "function_code": 3, "register_address": 0}}],
}  # fmt: skip
_MODEL_DEFINITION = {
    "name": "power_calc",
    "inputs": [{"name": "pv", "source": "comsrv:1001:m:10001"}, {"name": "load", "source": "comsrv:1002:m:10001"}],
    "calculations": [{"id": "net", "expression": "load - pv"}],
    "outputs": [{"field": "net_power", "source": "net", "unit": "kW"}],
    "controls": {"power_limit": {"address": "comsrv:1001:a:40001", "min": 0, "max": 100}},
}  # fmt: skip
_TEMPLATE = {
    "name": "meter", "properties": {"channel": {"type": "integer"}},
    "inputs": [{"name": "p", "source": "comsrv:{channel}:m:10001"}],
    "calculations": [{"id": "energy", "function": "integrate", "inputs": ["p"]}],
    "outputs": [{"field": "energy", "source": "energy"}],
}  # fmt: skip
_COMMAND_REQUEST = {
    "address": "comsrv:1001:a:40001", "value": 55.5, "reason": "peak shaving", "who": "ada", "idempotency_key": "k-1",
}  # fmt: skip
_COMMAND_ID = "cmd_0a8f5f0e-6a5a-4d9f-9a6b-6e0d7f2b1c3d"

POINT_FIELDS: dict[str, Schema] = {
    "address": ADDRESS,
    "value": {**or_null(NUMBER), "description": "null while there is none"},
    "ts": or_null(MS),
    "quality": {"type": "string", "enum": [quality.value for quality in Quality]},
    "age_ms": or_null({"type": "integer"}),
    "unit": TEXT,
    "state": {
        "type": "string",
        "enum": ["ok", "substituted", "stale", "bad", "no_value", "pushed", "undeclared"],
        "description": "`bad`: its device gives no value; `no_value`: declared, and nothing has come yet; `pushed`: a "
        "value of a point that nobody has "
        "declared; `undeclared`: neither declared nor ever written; `substituted`: see `substitution`",
    },
}
_SUBSTITUTION: dict[str, Schema] = {
    "address": ADDRESS,
    "value": NUMBER,
    "reason": TEXT,
    "who": TEXT,
    "source": TEXT,
    "since": TIME,
    "until": {**TIME, "description": "the device's value is shown again from then on"},
    "device": {
        **object_of(
            {
                "value": or_null(NUMBER),
                "ts": or_null(MS),
                "quality": {"type": "string", "enum": ["good", "uncertain", "bad"]},
                "held": {**COUNT, "description": "readings that were not shown"},
            }
        ),
        "description": "what the device said last",
    },
}
_SAID: dict[str, Schema] = {
    "substitution": {**ref("Substitution"), "description": "only where a person has substituted the value"}
}
_LAST: dict[str, Schema] = {
    "command": {
        **or_null(
            object_of(
                {
                    "id": TEXT,
                    "value": or_null(NUMBER),
                    "status": TEXT,
                    "result": TEXT,
                    "message": TEXT,
                    "who": TEXT,
                    "source": TEXT,
                    "at": TIME,
                    "unsure": {**FLAG, "description": "what the point stands at is not known since"},
                }
            )
        ),
        "description": "of c and a points: how the last command ended",
    }
}
_TARGET: dict[str, Schema] = {
    "address": {**TEXT, "description": "a point of kind c or a"},
    "model": {**TEXT, "description": "instead of an address, with `field`"},
    "field": {**TEXT, "description": "a control of the model"},
    "value": NUMBER,
    "reason": {**TEXT, "maxLength": 500},
    "who": {**TEXT, "maxLength": 200},
    "source": {**TEXT, "description": "the program it comes from", "default": "api_request"},
}
_CHANNEL_FIELDS: dict[str, Schema] = {
    "id": TEXT,
    "name": TEXT,
    "protocol": TEXT,
    "enabled": FLAG,
    "version": {**or_null(TEXT), "description": "changes with what the definition says; null: only pushed"},
    "counts": {**or_null({"type": "object", "additionalProperties": COUNT}), "description": "declared points by kind"},
    "state": {"type": "string", "enum": list(STATES), "description": "`unattended`: no process polls it"},
    "status": object_of(
        {
            "since_ms": {**or_null(MS), "description": "since when it is online or offline"},
            "last_ms": {**or_null(MS), "description": "the last poll that succeeded"},
            "heard_ms": {**or_null(MS), "description": "the newest value that was sent, where nothing is polled"},
            "polls": COUNT,
            "failures": COUNT,
            "missed": COUNT,
            "commands": COUNT,
            "dropped": {**COUNT, "description": "readings that were lost on their way to the board"},
            "refused": {**COUNT, "description": "messages of the device that were too large to be read"},
            "poll_ms": {**NUMBER, "description": "how long a poll takes"},
            "poll_ms_max": NUMBER,
            "error": TEXT,
            "owner": TEXT,
        }
    ),
}
_USERS: Schema = {
    **list_of(object_of({"code": TEXT, "path": TEXT, "hint": TEXT})),
    "description": "who uses points of what was removed",
    "example": [
        {
            "code": "in_use",
            "path": "models.plant",
            "hint": "model plant uses comsrv:1002:m:1: its outputs become uncertain",
        }
    ],
}
_MODEL_FIELDS: dict[str, Schema] = {
    "name": TEXT,
    "title": TEXT,
    "description": TEXT,
    "enabled": FLAG,
    "template": or_null(TEXT),
    "inputs": COUNT,
    "calculations": COUNT,
    "outputs": WORDS,
    "controls": WORDS,
    "problems": {**PROBLEMS, "description": "why it computes nothing"},
}

POINT_SCHEMAS: dict[str, Schema] = {
    "Point": object_of({**POINT_FIELDS, **_SAID}, _POINT, list(POINT_FIELDS)),
    "Points": items_of("Point"),
    "FoundPoint": object_of({**POINT_FIELDS, **_SAID, **_LAST, "name": TEXT}, None, list(POINT_FIELDS)),
    "FoundPoints": object_of({"items": list_of(ref("FoundPoint")), "total": COUNT}, None, ["items"]),
    "Substitution": object_of(_SUBSTITUTION),
    "Substitutions": items_of("Substitution"),
    "SubstituteRequest": object_of(
        {
            "address": {**TEXT, "description": "a point of kind m or s"},
            "value": NUMBER,
            "reason": {**TEXT, "minLength": 1, "maxLength": 500},
            "who": {**TEXT, "maxLength": 200},
            "source": {**TEXT, "maxLength": 64, "description": "the program it comes from", "default": "api_request"},
            "for_s": {**or_null(NUMBER), "description": "how long; `points.substitute_s` if absent"},
        },
        {"address": "comsrv:1001:m:10001", "value": 25.5, "reason": "sensor is being exchanged", "for_s": 3600},
        ["address", "value", "reason"],
    ),
    "PointReleaseRequest": object_of(
        {"address": TEXT, "who": {**TEXT, "maxLength": 200}, "reason": {**TEXT, "maxLength": 500}},
        {"address": "comsrv:1001:m:10001", "who": "ada", "reason": "exchanged"},
        ["address"],
    ),
    "Ingest": {
        "anyOf": [ref("Sample"), list_of(ref("Sample"), "several times")],
        "example": _SAMPLE,
    },
    "Sample": object_of(
        {
            "channels": {
                "type": "object",
                "description": "channel → kind → point → value",
                "additionalProperties": {
                    "type": "object",
                    "propertyNames": KIND,
                    "additionalProperties": {"type": "object", "additionalProperties": NUMBER},
                },
            },
            "ts": {**MS, "description": "milliseconds since the epoch; without it: now"},
        },
        _SAMPLE,
        ["channels"],
    ),
    "Ingested": object_of({"accepted": {**COUNT, "description": "values taken in"}}, {"accepted": 2}),
    "ChannelDefinition": object_of(
        {
            "id": {"anyOf": [{"type": "integer"}, TEXT]},
            "name": TEXT,
            "protocol": TEXT,
            "description": TEXT,
            "enabled": FLAG,
            "poll_interval_ms": COUNT,
            "timeout_ms": COUNT,
            "parameters": {**OBJECT, "description": "of the protocol"},
            "points": {"anyOf": [list_of(OBJECT), OBJECT], "description": "a list with kinds, or lists by kind"},
        },
        _CHANNEL_DEFINITION,
        ["id", "protocol"],
    ),
    "ChannelsChange": {
        "anyOf": [
            object_of({"channels": list_of(ref("ChannelDefinition")), "remove": WORDS}, None, []),
            list_of(ref("ChannelDefinition")),
        ],
        "example": {"channels": [_CHANNEL_DEFINITION], "remove": ["1002"]},
    },
    "ChannelsChanged": object_of(
        {
            "channels": WORDS,
            "changed": {**WORDS, "description": "those that were other than this"},
            "removed": WORDS,
            "warnings": _USERS,
        },
        {"channels": ["1001"], "changed": ["1001"], "removed": ["1002"], "warnings": []},
    ),
    "ChannelRemoved": object_of({"removed": TEXT, "warnings": _USERS}),
    "ChannelGlance": object_of(_CHANNEL_FIELDS),
    "Channel": object_of(
        {**_CHANNEL_FIELDS, "config": {**or_null(ref("ChannelDefinition")), "description": "null: only pushed"}}
    ),
    "ChannelPage": object_of({"items": list_of(ref("ChannelGlance")), "next_cursor": or_null(TEXT)}),
    "ChannelReload": object_of({"id": TEXT, "status": TEXT}, {"id": "1001", "status": "reloading"}),
    "ChannelPoint": object_of(
        {**POINT_FIELDS, **_SAID, **_LAST, "name": TEXT, "pushed": {**FLAG, "description": "not declared"}},
        {**_POINT, "name": "power", "pushed": False},
        [*POINT_FIELDS, "name", "pushed"],
    ),
    "ChannelPoints": object_of({"items": list_of(ref("ChannelPoint")), "next_cursor": or_null(TEXT)}),
    "ModelDefinition": object_of(
        {
            "name": TEXT,
            "title": TEXT,
            "description": TEXT,
            "enabled": FLAG,
            "template": {**TEXT, "description": "then it has only properties"},
            "properties": OBJECT,
            "inputs": list_of(OBJECT),
            "calculations": list_of(OBJECT),
            "outputs": list_of(OBJECT),
            "controls": OBJECT,
        },
        _MODEL_DEFINITION,
        [],
    ),
    "ModelsChange": {
        "anyOf": [
            object_of(
                {
                    "models": list_of(ref("ModelDefinition")),
                    "templates": list_of(ref("ModelTemplate")),
                    "remove": {**WORDS, "description": "names of models"},
                    "remove_templates": WORDS,
                },
                None,
                [],
            ),
            list_of(ref("ModelDefinition")),
        ],
        "example": {"models": [_MODEL_DEFINITION], "remove": ["old_model"]},
    },
    "ModelsChanged": object_of(
        {"models": WORDS, "templates": WORDS, "removed": WORDS, "removed_templates": WORDS},
        {"models": ["power_calc"], "templates": [], "removed": ["old_model"], "removed_templates": []},
    ),
    "ModelGlance": object_of(
        {**_MODEL_FIELDS, "config": {**_AS_GIVEN, "description": f"{_AS_GIVEN['description']}; if it was asked for"}},
        None,
        list(_MODEL_FIELDS),
    ),
    "Model": object_of(
        {
            **_MODEL_FIELDS,
            "config": _AS_GIVEN,
            "spec": {**or_null(OBJECT), "description": "with its template filled in"},
            "values": list_of(ref("Point")),
            "control_values": {
                "type": "object",
                "additionalProperties": object_of({"value": TEXT, "ts": MS, "source": TEXT}),
            },
        }
    ),
    "ModelPage": object_of({"items": list_of(ref("ModelGlance")), "next_cursor": or_null(TEXT)}),
    "ModelTemplate": {"type": "object", "example": _TEMPLATE},
    "ModelTemplates": items_of("ModelTemplate"),
    "CommandRequest": object_of(
        {
            **_TARGET,
            "timeout_s": {**NUMBER, "description": "how long its execution may take"},
            "expiry_s": {**NUMBER, "description": "how long it may wait"},
            "idempotency_key": {**TEXT, "maxLength": 200},
        },
        _COMMAND_REQUEST,
        ["value"],
    ),
    "CommandAccepted": object_of(
        {"id": TEXT, "status": {"type": "string", "enum": [status.value for status in CommandStatus]}},
        {"id": _COMMAND_ID, "status": "pending"},
    ),
    "CommandCancel": object_of({"who": TEXT, "reason": TEXT}, {"who": "ada", "reason": "changed my mind"}, []),
    "Command": object_of(
        {
            "id": TEXT,
            "model_name": {**TEXT, "description": "`channel_1001` for a bare point"},
            "field_name": TEXT,
            "address": TEXT,
            "value": NUMBER,
            "status": {"type": "string", "enum": [status.value for status in CommandStatus]},
            "result": {"type": "string", "enum": [result.value for result in Result]},
            "message": TEXT,
            "actual": {**or_null(NUMBER), "description": "what the read-back showed"},
            "source": TEXT,
            "who": TEXT,
            "reason": TEXT,
            "owner": {**TEXT, "description": "the process that carried it out"},
            "timeout_ms": COUNT,
            "created_at": TIME,
            "updated_at": TIME,
            "expires_at": or_null(TIME),
            "idempotency_key": or_null(TEXT),
        }
    ),
    "Commands": items_of("Command"),
    "SelectRequest": object_of(
        {**_TARGET, "lasts_s": {**NUMBER, "default": 30}},
        {"address": "comsrv:1001:c:30001", "value": 1, "who": "ada"},
        ["value", "who"],
    ),
    "Selection": object_of({"address": TEXT, "value": NUMBER, "who": TEXT, "until": TIME}),
    "ReleaseRequest": object_of({"address": TEXT, "who": TEXT}, {"address": "comsrv:1001:c:30001", "who": "ada"}),
    "OwedWrites": object_of(
        {
            "items": list_of(
                object_of(
                    {
                        "address": TEXT,
                        "command_id": TEXT,
                        "value": {**NUMBER, "description": "what the point stands at once it is done"},
                        "since": TIME,
                        "due": TIME,
                        "is_told": {**FLAG, "description": "it is late: an alarm says so"},
                    }
                )
            )
        }
    ),
    "DismissRequest": object_of(
        {"address": TEXT, "who": {**TEXT, "maxLength": 200}, "reason": {**TEXT, "maxLength": 500}},
        {"address": "comsrv:1001:c:30001", "who": "ada", "reason": "the device is gone for good"},
        ["address", "reason"],
    ),
    "Dismissed": object_of({"dismissed": FLAG}, {"dismissed": True}),
    "Released": object_of({"released": FLAG}, {"released": True}),
}
