"""Definitions that use every part of their room's language, and hostile values to put in place of any part."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

MODEL: dict[str, Any] = {
    "name": "power_calc",
    "title": "balance",
    "enabled": True,
    "description": "of {site}",
    "properties": {"site": "hall", "factor": 2},
    "inputs": [
        {"name": "pv", "source": "comsrv:1:m:1", "default": 0, "max_age": "30s", "unit": "kW"},
        {"name": "load", "address": "comsrv:1:m:2"},
        {"name": "other", "source": {"model": "power_calc", "field": "limit"}},
    ],
    "calculations": [
        {"id": "net", "expression": "load - pv"},
        {"id": "mean", "function": "moving_average", "inputs": ["net"], "params": {"window": 5}},
        {"id": "most", "function": "max", "inputs": ["net", 3]},
    ],
    "outputs": [{"field": "total", "source": "net", "unit": "kW", "min": 0, "max": 9, "deadband": 0.1}],
    "controls": {"limit": {"address": "comsrv:1:a:4", "min": 0, "max": 100, "step": 1, "unit": "kW"}},
}
TARGETED: dict[str, Any] = {
    "id": "m1",
    "name": "Power",
    "inputs": [{"name": "pv", "source": "comsrv:1:m:1"}],
    "calculations": [{"id": "net", "function": "expression", "params": {"expression": "pv * 2"}}],
    "outputs": [{"name": "total", "source": "net", "target": "modsrv:power:measurement"}],
}
TEMPLATE: dict[str, Any] = {
    "name": "meter",
    "properties": {"channel": {"type": "integer", "min": 1, "max": 9, "default": 1, "choices": [1, 2]}},
    "inputs": [{"name": "p", "source": "comsrv:{channel}:m:1"}],
    "calculations": [{"id": "double", "expression": "p * 2"}],
    "outputs": [{"field": "double", "source": "double"}],
}
LISTED: dict[str, Any] = {**TEMPLATE, "name": "listed", "properties": [{"name": "channel", "type": "integer"}]}
INSTANCE: dict[str, Any] = {"name": "m2", "template": "meter", "properties": {"channel": 2}}
MODELS: dict[str, Any] = {
    "models": [MODEL, INSTANCE, TARGETED],
    "templates": [TEMPLATE, LISTED],
    "remove": ["old"],
    "remove_templates": ["old"],
}
SOURCE = "comsrv:1:m:1"
RULE: dict[str, Any] = {
    "id": "hot",
    "name": "Hot",
    "description": "{value}",
    "group_id": "g",
    "enabled": True,
    "priority": 5,
    "logic": "any",
    "for_ms": 10,
    "off_delay_ms": 10,
    "cooldown_ms": 10,
    "hysteresis": 1,
    "on_bad": "hold",
    "on_startup": "skip",
    "latched": False,
    "inhibited_by": ["other"],
    "version": 0,
    "created_at": "2026-01-01T00:00:00Z",
    "conditions": [
        {"type": "compare", "field": "t", "source": SOURCE, "operator": ">", "value": 75, "hysteresis": 1},
        {"source": SOURCE, "operator": "==", "value": "on"},
        {"source": "modsrv:m:control:mode", "operator": "regex", "value": "a+b"},
        {"type": "range", "source": SOURCE, "min": 1, "max": 9, "inside": False, "deadband": 1},
        {"type": "rate", "source": SOURCE, "operator": ">", "value": 1, "over_ms": 1000},
        {"type": "window", "source": SOURCE, "function": "avg", "window_ms": 1000, "operator": ">", "value": 1},
        {"type": "change", "source": SOURCE, "from": 0, "to": 1},
        {"type": "schedule", "cron": "0 8 * * 1-5", "duration_ms": 3600000, "timezone": "Europe/Berlin"},
        {"type": "expression", "expression": "a > b", "inputs": {"a": SOURCE, "b": "comsrv:1:m:2"}},
        {"type": "alarm", "rule_id": "other", "source": SOURCE, "status": ["New"]},
        {"logic": "all", "conditions": [{"not": {"source": SOURCE, "operator": "<", "value": 1, "for_ms": 5}}]},
    ],
    "actions": [
        {
            "type": "create_alarm",
            "on": "rise",
            "parameters": {
                "level": "Critical",
                "title": "{value:.1f}",
                "description": "d",
                "category": "c",
                "tags": ["a"],
                "latched": True,
                "escalate_ms": 5,
                "notify": ["office"],
            },
        },
        {"type": "send_control", "parameters": {"channel_id": 1, "point_id": 4, "type": "a", "value": "=value * 2"}},
        {"type": "send_control", "parameters": {"address": "comsrv:1:c:3", "value": True}},
        {"type": "send_notification", "parameters": {"recipients": ["office"], "message": "{value}"}},
        {"type": "log_event", "parameters": {"level": "info", "message": "{value}"}},
        {"type": "start_flow", "parameters": {"flow_id": "f", "payload": {"a": ["{value}"]}}},
        {"type": "submit_task", "parameters": {"type": "echo", "args": ["=value"], "kwargs": {"a": 1}}},
        {"type": "set_value", "on": "both", "parameters": {"model": "m", "field": "f", "value": "{value}"}},
    ],
}
GROUP: dict[str, Any] = {"id": "g", "name": "G", "description": "d", "enabled": True, "version": 0}
SHORT: dict[str, Any] = {"id": "two", "conditions": RULE["conditions"][:1], "actions": RULE["actions"][:1]}
RULES: dict[str, Any] = {"rules": [SHORT, {**SHORT, "id": "three"}], "groups": [GROUP], "remove": ["old"]}
CHANNEL: dict[str, Any] = {
    "id": 1001,
    "name": "PV",
    "protocol": "modbus_tcp",
    "enabled": False,
    "poll_interval_ms": 1000,
    "parameters": {"host": "192.0.2.1", "port": 502, "timeout_ms": 500},
    "points": [
        {
            "kind": "m",
            "id": 10001,
            "name": "power",
            "unit": "kW",
            "scale": 0.1,
            "offset": 1,
            "deadband": 0.5,
            "mapping": {"slave_id": 1, "function_code": 3, "register_address": 0, "data_type": "uint16"},
        },
        {"kind": "s", "id": 2, "name": "on", "reverse": True, "mapping": {"slave_id": 1, "function_code": 1,
                                                                          "register_address": 0, "bit_position": 1}},
        {"kind": "a", "id": 3, "name": "set", "min": 0, "max": 9, "step": 1, "interlock": "value > 1",
         "select": True, "readback": True, "mapping": {"slave_id": 1, "function_code": 6, "register_address": 3}},
    ],
}  # fmt: skip
MQTT: dict[str, Any] = {
    "id": 1003,
    "name": "mq",
    "protocol": "mqtt",
    "enabled": False,
    "parameters": {"url": "mqtt://192.0.2.1", "topics": ["a/#"], "username": "u", "password": "p", "qos": 1},
    "points": [{"kind": "m", "id": 1, "name": "a", "mapping": {"topic": "a/b", "path": "x.y"}}],
}
OPCUA: dict[str, Any] = {
    "id": 1004,
    "name": "ua",
    "protocol": "opcua",
    "enabled": False,
    "parameters": {"url": "opc.tcp://192.0.2.1:4840", "security": "none", "publishing_ms": 500},
    "points": [{"kind": "m", "id": 1, "name": "a", "mapping": {"node_id": "ns=2;s=a", "queue_size": 5}}],
}
VIRTUAL: dict[str, Any] = {
    "id": 1005,
    "name": "v",
    "protocol": "virtual",
    "enabled": False,
    "parameters": {"seed": 3},
    "points": [{"kind": "m", "id": 1, "name": "a", "mapping": {"expression": "sin(t)", "noise": 0.1}}],
}
CHANNELS: dict[str, Any] = {"channels": [CHANNEL, MQTT, OPCUA, VIRTUAL], "remove": ["9"]}
FLOW: dict[str, Any] = {
    "id": "f1",
    "name": "Doubling",
    "description": "d",
    "interval": "1m",
    "timeout": "30s",
    "overlap": "skip",
    "labels": ["a"],
    "nodes": [
        {
            "id": "price",
            "type": "constant",
            "config": {"value": 42},
            "timeout": "5s",
            "retries": 2,
            "rule": "all_done",
            "position": {"x": 1, "y": 2},
        },
        {"id": "double", "type": "expression", "config": {"expression": "price * 2"}},
        {"id": "branch", "type": "condition", "config": {"expression": "price > 1"}},
        {"id": "later", "type": "delay", "config": {"seconds": 1}},
        {"id": "ask", "type": "http_request", "config": {"url": "https://example.com", "headers": {"a": "b"}}},
        {"id": "sub", "type": "subflow", "config": {"flow": "other"}},
    ],
    "edges": [{"source": "price", "source_handle": "value", "target": "double", "target_handle": "price"}],
    "triggers": [{"point": SOURCE, "when": "value > 1"}],
}
SCHEDULED: dict[str, Any] = {
    **FLOW,
    "interval": None,
    "schedule": {"cron": "0 8 * * *", "timezone": "Europe/Berlin", "start": "2026-01-01T00:00:00Z", "jitter": "1s"},
}
POLICY: dict[str, Any] = {
    "targets": {
        "office": {"url": "https://hooks.example.com/station", "headers": {"X-Token": "t"}},
        "mail": {"url": "mailto://user:pw@example.com"},
    },
    "routes": [
        {
            "min_level": "High",
            "targets": ["office"],
            "match": {"level": ["High"], "source": ["comsrv:*"], "category": "c", "rule_id": ["r"], "tags": ["t"]},
            "quiet_hours": {"from": "22:00", "to": "06:00", "timezone": "Europe/Berlin", "except_level": "Critical"},
        }
    ],
    "quiet_hours": {"from": "22:00", "to": "06:00", "timezone": "Europe/Berlin"},
    "escalation": [{"after_s": 60, "targets": ["mail"], "min_level": "High"}],
}
HISTORY: dict[str, Any] = {
    "batch_config": {"size": 1000, "timeout_ms": 5000, "type_filter": ["m", "s"]},
    "subscribe": ["comsrv:*"],
    "policies": [
        {"match": "comsrv:1001:m:*", "record": True, "deadband": 0.1, "min_interval_ms": 1000, "class": "brief"}
    ],
    "classes": {"brief": {"raw_days": 7, "minute_days": 90}},
}
TASK: dict[str, Any] = {
    "type": "echo",
    "args": ["hi"],
    "kwargs": {"value": 1},
    "priority": "high",
    "delay_s": 0,
    "eta": "2026-01-01T00:00:00Z",
    "timeout_s": 30,
    "deadline": "2036-01-01T00:00:00Z",
    "max_attempts": 3,
    "backoff_s": 1,
    "backoff_max_s": 9,
    "idempotency_key": "k",
    "tags": ["a"],
    "labels": ["b"],
    "exclusive": True,
    "id": "t-1",
}
SCHEDULE: dict[str, Any] = {"type": "echo", "args": ["tick"], "kwargs": {"value": 1}, "every": "30s", "options": {}}
WORKER: dict[str, Any] = {
    "id": "mailer",
    "address": "http://192.0.2.1:9000",
    "capacity": 10,
    "types": ["send_email"],
    "labels": ["a"],
    "name": "n",
}
INGEST: dict[str, Any] = {"channels": {"1001": {"m": {"1": 25.1}, "s": {"2": 1}}}, "ts": 1_700_000_000_000}
SAMPLES: dict[str, Any] = {
    "samples": [{"address": SOURCE, "value": 1, "ts": 1_700_000_000_000, "quality": "good"}],
}
COMMAND: dict[str, Any] = {
    "address": "comsrv:1001:a:3",
    "value": 5,
    "reason": "peak",
    "who": "ada",
    "idempotency_key": "k",
    "timeout_s": 5,
}
BACKTEST: dict[str, Any] = {
    "rule": SHORT,
    "samples": {SOURCE: [[1_704_103_200_000, 70], [1_704_103_201_000, 85.6, 1]]},
    "from": "2024-01-01T00:00:00Z",
    "to": "2024-01-02T00:00:00Z",
}
ROWS: dict[str, Any] = {"rows": [[SOURCE, 1_704_103_200_000, 12.5], [SOURCE, 1_704_103_201_000, 12.5, 1]]}
ALARM: dict[str, Any] = {
    "source": "pump-3",
    "title": "Pump 3 leaks",
    "description": "d",
    "level": "High",
    "category": "mechanics",
    "tags": ["hall2"],
    "actual": "2.5",
    "threshold": "0",
    "who": "ada",
}
ACTION: dict[str, Any] = {"note": "on my way", "who": "ada", "ids": ["alarm_1"], "duration_s": 3600}
RUN: dict[str, Any] = {"signals": {"double.price": 21}, "node": "double", "mode": "single", "run_id": "r"}

#: (method, path, body): each is sent again with every hostile value in place of every part.
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/models/validate", MODEL),
    ("POST", "/models/validate", TARGETED),
    ("POST", "/models/validate", MODELS),
    ("PUT", "/models", {"models": [TARGETED], "remove": ["old"]}),
    ("PUT", "/models/power", TARGETED),
    ("PUT", "/model-templates/meter", TEMPLATE),
    ("PUT", "/model-templates/listed", LISTED),
    ("POST", "/rules/validate", RULE),
    ("POST", "/rules/validate", RULES),
    ("PUT", "/rules", {"rules": [SHORT], "groups": [GROUP]}),
    ("PUT", "/rules/two", {**SHORT, "group_id": ""}),
    ("POST", "/rules/hot/test", {"rule": SHORT}),
    ("PUT", "/rule-groups/g", GROUP),
    ("POST", "/rules/hot/backtest", BACKTEST),
    ("POST", "/channels/validate", CHANNEL),
    ("POST", "/channels/validate", CHANNELS),
    ("PUT", "/channels", {"channels": [VIRTUAL], "remove": ["9"]}),
    ("PUT", "/channels/1005", VIRTUAL),
    ("POST", "/flows/validate", FLOW),
    ("POST", "/flows/validate", SCHEDULED),
    (
        "PUT",
        "/flows/f1",
        {"id": "f1", "schedule": {"manual": True}, "nodes": FLOW["nodes"][:2], "edges": FLOW["edges"]},
    ),
    ("POST", "/flows/f1/cycles", RUN),
    ("POST", "/flows/f1/cycles/1/stop", {"reason": "r"}),
    ("POST", "/flows/f1/cycles/1/nodes/double/input", {"handle": "decision", "value": {"approved": True}}),
    ("POST", "/notifications/policy/validate", POLICY),
    ("PUT", "/notifications/policy", {"targets": {}, "routes": [], "escalation": []}),
    ("POST", "/notifications/test", {"target": "nobody"}),
    ("PUT", "/history/policy", HISTORY),
    ("POST", "/history/import", ROWS),
    ("POST", "/tasks", TASK),
    ("POST", "/tasks/batch", {"tasks": [TASK]}),
    ("PUT", "/schedules/tick", SCHEDULE),
    ("PUT", "/rate-limits/echo", {"limit": 100, "window_s": 1}),
    ("POST", "/workers", WORKER),
    ("POST", "/workers/mailer/heartbeat", {"generation": "g"}),
    ("POST", "/points", INGEST),
    ("POST", "/points", SAMPLES),
    ("POST", "/commands", COMMAND),
    ("POST", "/commands/select", {"address": "comsrv:1001:c:1", "value": 1, "who": "ada"}),
    ("POST", "/commands/release", {"address": "comsrv:1001:c:1", "who": "ada"}),
    ("POST", "/commands/x/cancel", {"who": "ada", "reason": "r"}),
    ("POST", "/alarms", ALARM),
    ("POST", "/alarms/shelve", ACTION),
    ("POST", "/alarms/alarm_1/acknowledge", {"note": "n", "who": "ada"}),
]

DEEP: Any = 1
for _ in range(85):
    DEEP = [DEEP]

#: Put at every place: what cannot be hashed.
ALWAYS: list[Any] = [{"a": []}]
#: Names for a field that nobody expects.
KEYS = ("", "a\x00b", "__class__", "x" * 5000, "a.b[0]", "\U0001f300")
#: One of each kind that a reader may trip over: what cannot be hashed, compared, ordered, shown or stored.
VALUES: list[Any] = [
    None,
    True,
    [],
    {},
    [[]],
    [{}],
    {"a": {"b": []}},
    [None, 1, "a"],
    {"": 1},
    -1,
    0,
    0.5,
    2**63,
    2**64 - 1,
    -(2**63),
    1e308,
    -1e308,
    5e-324,
    "",
    "a\x00b",
    "\n",
    "*",
    "{",
    "{0.__class__}",
    "a:b:c:d",
    "\U0001f300",
    "é" * 70,
    "9" * 400,
    "1e999",
    "nan",
    "x" * 5000,
    "(" * 300,
    DEEP,
]


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(document, dict):
        for key, item in document.items():
            yield from places(item, (*path, key))
    elif isinstance(document, list):
        for i, item in enumerate(document):
            yield from places(item, (*path, i))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = copy.deepcopy(document)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return made


def with_key(document: Any, path: tuple[Any, ...], key: str) -> Any:
    """The last step of the path called otherwise."""
    made = copy.deepcopy(document)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[key] = inner.pop(path[-1])
    return made
