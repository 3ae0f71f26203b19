"""JSON schemas of what the API says about flows, with examples. Data only; the flow room checks definitions."""

from __future__ import annotations

from tradewind.api.flow_cycles import STATUSES as CYCLE_STATUSES
from tradewind.api.flows import STATUSES
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
from tradewind.flows.record_query import LEVELS
from tradewind.flows.starting import MODES

OBJECT: Schema = {"type": "object"}
CYCLE: Schema = {"type": "integer", "minimum": -1, "description": "-1 before the first one"}
FLOW_STATUS: Schema = {"type": "string", "enum": list(STATUSES)}
CYCLE_STATUS: Schema = {"type": "string", "enum": list(CYCLE_STATUSES)}
NODE_STATUS: Schema = {
    "type": "string",
    "enum": ["pending", "awaiting_input", "running", "completed", "failed", "skipped", "terminated"],
}
DUE: Schema = {**NUMBER, "description": "seconds since the epoch; 0 when none is due"}
LEVEL: Schema = {"type": "string", "enum": list(LEVELS)}

_DEFINITION = {
    "id": "f1", "interval": "1m",
    "nodes": [
        {"id": "price", "type": "constant", "config": {"value": 42}},
        {"id": "double", "type": "expression", "config": {"expression": "price * 2"}},
    ],
    "edges": [{"source": "price", "source_handle": "value", "target": "double", "target_handle": "price"}],
}  # fmt: skip
_STRUCTURE = {
    "component_count": 1, "entry_nodes": ["price"],
    "components": {"0": {"nodes": ["price", "double"], "entry_nodes": ["price"], "node_count": 2, "is_dag": True}},
}  # fmt: skip
_AT, _LATER = "2026-11-16T08:00:00.000Z", "2026-11-16T08:00:00.004Z"
_COUNTS = {"total": 2, "open": 0, "completed": 2, "failed": 0, "skipped": 0, "terminated": 0}
_NODE = {
    "status": "completed", "error_message": None, "started_at": _AT, "finished_at": _LATER, "worker_id": "w-1",
    "type": "constant", "component_id": 0, "attempt": 1, "message": "", "progress": None,
    "waiting_for": None,
}  # fmt: skip
_CYCLE = {
    "flow_id": "f1", "cycle": 7, "status": "completed", "start_time": _AT, "end_time": _LATER, "trigger": "schedule",
    "slot": _AT, "counts": _COUNTS, "stopped_by": None, "reason": None, "error": None, "version": "9f2c51d0aa31",
    "parent": None,
}  # fmt: skip
_FLOW = {
    "id": "f1", "status": "running", "config": _DEFINITION, "structure": _STRUCTURE, "last_cycle": 7,
    "next_execution": 1794816060.0, "created_at": _AT, "updated_at": _AT, "version": "9f2c51d0aa31", "missed_slots": 0,
    "skipped_slots": 0, "failures_in_a_row": 0, "current_cycle_status": None,
}  # fmt: skip
_LOG = {
    "flow_id": "f1", "cycle": 7, "node_id": "double", "log_level": "INFO", "log_source": "node", "message": "84",
    "log_metadata": None, "created_at": _LATER,
}  # fmt: skip
_SIGNAL = {
    "id": "mi2x4k0a7d93hq1c0001", "flow_id": "f1", "cycle": 7, "source_node": "price", "source_handle": "value",
    "target_node": "double", "target_handle": "price", "type": "ANY", "payload": 42, "created_at": _LATER,
}  # fmt: skip
_HANDLE = {
    "name": "price", "type": "float", "required": True, "aggregate": False, "unit": "", "description": "",
    "default": None, "external": False, "max_age_s": None,
}  # fmt: skip
_STATISTICS = (
    "total_nodes", "running_nodes", "completed_nodes", "failed_nodes", "error_nodes", "skipped_nodes",
    "terminated_nodes", "pending_nodes",
)  # fmt: skip

_cycle: dict[str, Schema] = {
    "flow_id": TEXT, "cycle": COUNT, "status": CYCLE_STATUS, "start_time": TIME, "end_time": or_null(TIME),
    "trigger": {**TEXT, "description": "schedule, manual, partial, again, webhook, subflow and others"},
    "slot": {**or_null(TIME), "description": "when it was due; null when it was not of the schedule"},
    "counts": {"type": "object", "additionalProperties": COUNT}, "stopped_by": or_null(TEXT), "reason": or_null(TEXT),
    "error": {**or_null(TEXT), "description": "the first node that failed, and how"},
    "version": or_null(TEXT), "parent": or_null(TEXT),
}  # fmt: skip
_log: dict[str, Schema] = {
    "flow_id": TEXT, "cycle": COUNT, "node_id": or_null(TEXT), "log_level": LEVEL, "log_source": TEXT, "message": TEXT,
    "log_metadata": ANY, "created_at": TIME,
}  # fmt: skip
_nodes: Schema = {"type": "object", "additionalProperties": ref("NodeStatus")}
_handle = object_of(
    {
        "name": TEXT, "type": {**TEXT, "description": "any, bool, int, float, str, list, dict, or some joined by |"},
        "required": FLAG, "aggregate": FLAG, "unit": TEXT, "description": TEXT, "default": ANY,
        "external": {**FLAG, "description": "filled from outside, without an edge"}, "max_age_s": or_null(NUMBER),
    },
    _HANDLE,
)  # fmt: skip

FLOW_SCHEMAS: dict[str, Schema] = {
    "FlowDefinition": object_of(
        {
            "id": TEXT,
            "interval": {"anyOf": [NUMBER, TEXT], "description": 'seconds, "30s" "5m" "1h" "1d", cron, 0 for once'},
            "schedule": OBJECT, "nodes": list_of(OBJECT), "edges": list_of(OBJECT), "description": TEXT,
        },
        _DEFINITION,
        ["nodes"],
    ),
    "Validation": object_of(
        {"valid": FLAG, "problems": list_of(object_of({"code": TEXT, "path": TEXT, "hint": TEXT})), **MORE_PROBLEMS},
        {
            "valid": False,
            "problems": [{"code": "unknown_type", "path": "nodes[1].type", "hint": "did you mean 'delay'?"}],
        },
        ["valid", "problems"],
    ),
    "Flow": object_of(
        {
            "id": TEXT, "status": FLOW_STATUS, "config": OBJECT, "structure": OBJECT, "last_cycle": CYCLE,
            "next_execution": DUE, "created_at": TIME, "updated_at": TIME, "version": TEXT, "missed_slots": COUNT,
            "skipped_slots": COUNT, "failures_in_a_row": COUNT, "current_cycle_status": or_null(ref("Cycle")),
        },
        _FLOW,
        [name for name in _FLOW if name != "current_cycle_status"],
    ),
    "FlowItem": object_of(
        {
            "id": TEXT, "status": FLOW_STATUS, "interval": ANY, "schedule": ANY, "description": TEXT,
            "node_count": COUNT, "last_cycle": CYCLE, "running_cycles": COUNT, "next_execution": DUE,
            "created_at": TIME, "missed_slots": COUNT,
        },
    ),
    "FlowPage": object_of({"items": list_of(ref("FlowItem")), "next_cursor": or_null(TEXT)}),
    "FlowMoved": object_of({"flow_id": TEXT, "status": FLOW_STATUS}, {"flow_id": "f1", "status": "running"}),
    "WebhookPayload": {"description": "any JSON", "example": {"order": 17}},
    "RunRequest": object_of(
        {
            "signals": {**OBJECT, "description": "`node.handle` → value"},
            "node": {**TEXT, "description": "run only a part, seen from this node"},
            "mode": {"type": "string", "enum": list(MODES), "default": MODES[0]},
            "from_cycle": {**COUNT, "description": "where signals of left-out nodes come from"},
            "again": {**COUNT, "description": "as that cycle; nothing else is given then"},
            "run_id": {**TEXT, "description": "asked again with the same one, the same cycle is answered"},
        },
        {"signals": {"double.price": 21}, "node": "double", "mode": "single"},
        [],
    ),
    "CycleStarted": object_of(
        {"flow_id": TEXT, "cycle": COUNT, "status": CYCLE_STATUS}, {"flow_id": "f1", "cycle": 7}, ["flow_id", "cycle"]
    ),
    "CycleItem": object_of(_cycle, _CYCLE),
    "CyclePage": object_of(
        {"items": list_of(ref("CycleItem")), "next_cursor": {**or_null(TEXT), "description": "for `before`"}}
    ),
    "NodeStatus": object_of(
        {
            "status": NODE_STATUS, "error_message": or_null(TEXT), "started_at": or_null(TIME),
            "finished_at": or_null(TIME), "worker_id": or_null(TEXT), "type": TEXT, "component_id": COUNT,
            "attempt": COUNT, "message": TEXT, "progress": ANY,
            "waiting_for": {**or_null(TEXT), "description": "why its task cannot start now"},
        },
        _NODE,
        ["status", "error_message", "started_at", "finished_at", "worker_id", "message"],
    ),
    "Cycle": object_of(
        {**_cycle, "nodes": _nodes, "node_count": COUNT}, {**_CYCLE, "nodes": {"price": _NODE}, "node_count": 1}
    ),
    "FlowStatus": object_of(
        {
            "flow_id": TEXT, "cycle": CYCLE, "flow_status": FLOW_STATUS, "cycle_status": or_null(CYCLE_STATUS),
            "start_time": TIME, "end_time": or_null(TIME), "trigger": TEXT, "stopped_by": or_null(TEXT),
            "error": or_null(TEXT), "nodes": _nodes, "statistics": object_of(dict.fromkeys(_STATISTICS, COUNT)),
        },
        {
            "flow_id": "f1", "cycle": 7, "flow_status": "running", "cycle_status": "completed",
            "nodes": {"price": _NODE},
            "statistics": {name: int(name in ("total_nodes", "completed_nodes")) for name in _STATISTICS},
        },
        ["flow_id", "cycle", "flow_status", "cycle_status", "nodes", "statistics"],
    ),
    "Reason": object_of({"reason": {**TEXT, "maxLength": 500}}, {"reason": "the market is closed"}, []),
    "CycleStopped": object_of(
        {"flow_id": TEXT, "cycle": COUNT, "component_id": COUNT, "node_id": TEXT, "status": CYCLE_STATUS},
        {"flow_id": "f1", "cycle": 7, "status": "stopped"},
        ["flow_id", "cycle", "status"],
    ),
    "NodeInput": object_of(
        {"handle": {**TEXT, "description": "may be left out when one alone waits for a signal"}, "value": ANY},
        {"handle": "decision", "value": {"approved": True, "by": "ada"}},
        ["value"],
    ),
    "InputGiven": object_of(
        {"flow_id": TEXT, "cycle": COUNT, "node_id": TEXT, "accepted": FLAG},
        {"flow_id": "f1", "cycle": 7, "node_id": "ask", "accepted": True},
    ),
    "WhyWaiting": object_of(
        {
            "flow_id": TEXT, "cycle": COUNT, "node_id": TEXT, "status": NODE_STATUS, "reason": TEXT,
            "missing": list_of(object_of({"input": TEXT, "from": or_null(TEXT), "source_status": TEXT})),
            "arrived": WORDS,
        },
        {
            "flow_id": "f1", "cycle": 7, "node_id": "double", "status": "pending", "reason": "waits for price:value",
            "missing": [{"input": "price", "from": "price:value", "source_status": "running"}], "arrived": [],
        },
    ),
    "Log": object_of({"seq": COUNT, **_log}, {"seq": 1201, **_LOG}),
    "LogPage": object_of({"items": list_of(ref("Log")), "next_cursor": or_null(TEXT)}),
    "LiveLog": object_of(_log, _LOG),
    "Signal": object_of(
        {
            "id": TEXT, "flow_id": TEXT, "cycle": COUNT, "source_node": TEXT, "source_handle": TEXT,
            "target_node": {**TEXT, "description": "empty for an output that leads nowhere"}, "target_handle": TEXT,
            "type": TEXT, "payload": ANY, "created_at": TIME,
        },
        _SIGNAL,
    ),
    "SignalPage": object_of({"items": list_of(ref("Signal")), "next_cursor": or_null(TEXT)}),
    "NodeType": object_of(
        {
            "type": TEXT, "description": TEXT, "category": TEXT, "inputs": list_of(_handle),
            "outputs": list_of(_handle),
            "config_schema": {**OBJECT, "description": "JSON schema"},
            "open_inputs": {**FLAG, "description": "other inputs are fine, too"}, "open_outputs": FLAG,
            "timeout_s": or_null(NUMBER), "retries": COUNT,
        },
    ),
    "NodeTypes": items_of("NodeType"),
    "FlowGlance": object_of(
        {
            "id": TEXT, "status": FLOW_STATUS, "last_cycle": CYCLE, "cycle_status": or_null(CYCLE_STATUS),
            "start_time": or_null(TIME), "end_time": or_null(TIME),
            "counts": {"type": "object", "additionalProperties": COUNT}, "next_execution": DUE, "running_cycles": COUNT,
        },
    ),
}  # fmt: skip
