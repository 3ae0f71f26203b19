"""Weather Syntax: a JSON-like document becomes a FlowSpec, or one Invalid that lists all that is wrong. Pure.

This file knows what a flow looks like; whether its nodes exist and fit together is `check.py`'s to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from tradewind import codec
from tradewind.errors import Invalid, Problem
from tradewind.flows.slots import parse_cron, parse_interval
from tradewind.flows.spec import Edge, FlowSpec, NodeSpec, ScheduleSpec, TriggerRule
from tradewind.flows.syntax_fields import NAME, NAME_HINT, Fields, Report, join
from tradewind.flows.syntax_full import is_full, to_plain
from tradewind.flows.syntax_text import read_text
from tradewind.ids import is_id
from tradewind.problems import Problems, left_out_of

__all__ = ["parse_flow", "read_flow", "read_text"]

_FLOW = "id description interval schedule nodes edges cycle_timeout signal_ttl max_failures on_failure webhook triggers"
_NODE = "id type config inputs trigger_rule timeout retries backoff labels priority external"
_EDGE = "id source source_handle sourceHandle target target_handle targetHandle"
_SCHEDULE = "interval cron once manual anchor misfire overlap grace"
FLOW_FIELDS = frozenset(_FLOW.split())
NODE_FIELDS = frozenset(_NODE.split())
EDGE_FIELDS = frozenset(_EDGE.split())
SCHEDULE_FIELDS = frozenset(_SCHEDULE.split())
MISFIRE = ("latest", "skip", "all")
OVERLAP = ("buffer_latest", "skip", "cancel_previous", "allow")
ON_FAILURE = ("isolate", "stop_component", "stop_flow")
PRIORITIES = ("normal", "high")
TRIGGERS = ("point", "alarm", "webhook")
_RULES = tuple(rule.value for rule in TriggerRule)


def parse_flow(document: Any, *, flow_id: str | None = None) -> FlowSpec:
    """`flow_id` stands in for a missing `id`, and must be the same as one that is given. Raises Invalid.

    `config` of the result is the document in its plain form; parsed again, it gives the same.
    """
    spec, problems = read_flow(document, flow_id=flow_id)
    if problems:
        raise invalid_flow(spec.id if spec else "", problems)
    assert spec is not None
    return spec


def invalid_flow(flow_id: str, problems: list[Problem]) -> Invalid:
    name = f"flow {flow_id!r}" if flow_id else "the flow"
    if len(problems) == 1:
        only = problems[0]
        return Invalid(f"{name} is not valid at {only.path}", code=only.code, hint=only.hint, problems=problems)
    count = len(problems) + left_out_of(problems)
    return Invalid(f"{name} has {count} problems", code="invalid_flow", hint="see problems", problems=problems)


def read_flow(document: Any, *, flow_id: str | None = None) -> tuple[FlowSpec | None, Problems]:
    """As much of the flow as can be read, and everything that is wrong with it.

    With problems, the spec is only good for checking on: what could not be read is empty, at its place in the list.
    None: not even that.
    """
    report = Report()
    if not isinstance(document, dict):
        report.add("not_an_object", "$", "give an object with interval, nodes and edges")
        return None, report.problems
    try:
        data = codec.encode(document)
        if codec.lost_non_finite(document, data):
            for path in _non_finite(document):
                report.add("not_finite", path, "NaN and Infinity are not JSON")
        raw: dict[str, Any] = codec.decode(data)  # a copy of its own, of JSON values only
    except (TypeError, ValueError, OverflowError, RecursionError, Invalid) as error:
        report.add("not_json", "$", f"the flow must be JSON: {error}")
        return None, report.problems
    full = is_full(raw)
    if full:
        raw = to_plain(raw, report, flow_fields=FLOW_FIELDS, node_fields=NODE_FIELDS, edge_fields=EDGE_FIELDS)
    fields = Fields({key: value for key, value in raw.items() if not key.startswith("x-")}, "", report)
    fields.check_keys(FLOW_FIELDS)
    fields.kept["id"] = own_id = _read_id(fields, flow_id, full)
    spec = FlowSpec(
        id=own_id,
        description=fields.text("description", 10_000),
        schedule=_read_schedule(fields),
        cycle_timeout_s=fields.seconds("cycle_timeout"),
        signal_ttl_s=fields.seconds("signal_ttl"),
        max_failures=fields.whole("max_failures", 1_000_000) or 0,
        on_failure=fields.choice("on_failure", ON_FAILURE),
        webhook=fields.flag("webhook"),
        triggers=_read_triggers(fields),
        nodes=_read_nodes(fields),
        edges=_read_edges(fields),
    )
    return msgspec.structs.replace(spec, config=fields.kept), report.problems


def _non_finite(document: Any) -> Iterator[str]:
    todo: list[tuple[str, Any]] = [("", document)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, float) and not math.isfinite(value):
            yield path
        elif isinstance(value, dict):
            todo.extend((join(path, str(key)), child) for key, child in reversed(value.items()))
        elif isinstance(value, list | tuple):
            todo.extend((f"{path}[{i}]", value[i]) for i in reversed(range(len(value))))


def _read_id(fields: Fields, flow_id: str | None, is_full_form: bool) -> str:
    given = fields.raw.get("id")
    if given is None or (flow_id is not None and is_full_form):  # the id of an editor's own book-keeping
        given = flow_id
    if given is None:
        fields.bad("missing_id", "id", f"give the flow an id: {NAME_HINT}")
    elif not isinstance(given, str) or not is_id(given):
        fields.bad("bad_id", "id", f"{NAME_HINT}, no reserved word")
    elif flow_id is not None and given != flow_id:
        fields.bad(
            "id_mismatch", "id", f"the flow is addressed as {flow_id[:64]!r}; leave the id out, or give the same"
        )
    else:
        return given
    return ""


def _read_schedule(fields: Fields) -> ScheduleSpec:
    given = fields.raw.get("schedule")
    if given is not None and not isinstance(given, dict):
        fields.bad("not_an_object", "schedule", 'give an object such as {"interval": "30s", "misfire": "skip"}')
        given = None
    inner = Fields(given or {}, "schedule", fields.report)
    inner.check_keys(SCHEDULE_FIELDS)
    times: list[ScheduleSpec] = []
    is_given = False
    for place, name in ((fields, "interval"), (inner, "interval"), (inner, "cron")):
        value = place.raw.get(name)
        if value is None:
            continue
        is_given = True
        try:
            times.append(parse_interval(value) if name == "interval" else ScheduleSpec(cron=parse_cron(value)))
            place.kept[name] = value
        except Invalid as error:
            place.bad(error.code, name, error.hint)
    if inner.flag("once"):
        times.append(ScheduleSpec())
    if inner.flag("manual"):
        times.append(ScheduleSpec(manual=True))
    if not times and not is_given:
        fields.bad("missing_interval", "interval", 'give 0 for once, seconds, "30s", "5m", "1h", "1d", or a cron')
    elif any(time != times[0] for time in times):
        hint = "give one of interval, cron, once and manual"
        fields.bad("two_schedules", "schedule" if given else "interval", hint)
    time = times[0] if times else ScheduleSpec()
    schedule = ScheduleSpec(
        interval_ms=time.interval_ms,
        cron=time.cron,
        manual=time.manual,
        anchor_ms=inner.moment("anchor"),
        misfire=inner.choice("misfire", MISFIRE),
        overlap=inner.choice("overlap", OVERLAP),
        grace_s=inner.seconds("grace"),
    )
    if inner.kept:
        fields.kept["schedule"] = inner.kept
    return schedule


def _read_triggers(fields: Fields) -> tuple[dict[str, Any], ...]:
    given = fields.raw.get("triggers")
    if given is None:
        return ()
    if not isinstance(given, list):
        fields.bad("not_a_list", "triggers", 'give a list such as [{"type": "webhook"}]')
        return ()
    triggers = []
    for i, trigger in enumerate(given):
        if not isinstance(trigger, dict):
            fields.report.add("not_an_object", f"triggers[{i}]", 'give an object such as {"type": "webhook"}')
        elif trigger.get("type") not in TRIGGERS:
            hint = fields.report.guess(str(trigger.get("type")), TRIGGERS)
            fields.report.add("unknown_trigger", f"triggers[{i}].type", hint)
        else:
            triggers.append(trigger)
    fields.kept["triggers"] = triggers
    return tuple(triggers)


def _read_nodes(fields: Fields) -> tuple[NodeSpec, ...]:
    given = fields.raw.get("nodes")
    if not isinstance(given, list) or not given:
        code = "missing_nodes" if given in (None, []) else "not_a_list"
        fields.bad(code, "nodes", 'give a list with at least one node, such as {"id": "a", "type": "constant"}')
        given = []
    kept: list[dict[str, Any]] = []
    fields.kept["nodes"] = kept
    return tuple(_read_node(raw, f"nodes[{i}]", fields.report, kept) for i, raw in enumerate(given))


def _read_node(raw: Any, path: str, report: Report, kept: list[dict[str, Any]]) -> NodeSpec:
    if not isinstance(raw, dict):
        report.add("not_an_object", path, 'give an object such as {"id": "a", "type": "constant"}')
        return NodeSpec(id="", type="")
    node = Fields(raw, path, report)
    node.check_keys(NODE_FIELDS)
    node_id, kind = raw.get("id"), raw.get("type")
    if not isinstance(node_id, str) or not NAME.fullmatch(node_id):
        node.bad("bad_id", "id", NAME_HINT)
    if not isinstance(kind, str) or not is_id(kind):
        node.bad("bad_type", "type", f"give a node type: {NAME_HINT}")
        kind = ""
    node.kept.update(id=node_id, type=kind, config={})
    kept.append(node.kept)
    spec = NodeSpec(
        id=node_id if isinstance(node_id, str) else "",
        type=kind,
        config=node.mapping("config"),
        inputs=node.mapping("inputs"),
        trigger_rule=TriggerRule(node.choice("trigger_rule", _RULES)),
        timeout_s=node.seconds("timeout"),
        retries=node.whole("retries", 999),
        backoff_s=node.seconds("backoff", 1.0),
        labels=node.names("labels", 20),
        priority=node.choice("priority", PRIORITIES),
        external=node.names("external", 1000),
    )
    for handle in spec.inputs:
        if not NAME.fullmatch(handle):
            report.add("bad_handle", join(f"{path}.inputs", handle), NAME_HINT)
    return spec


def _read_edges(fields: Fields) -> tuple[Edge, ...]:
    given = fields.raw.get("edges")
    if given is None:
        given = []
    if not isinstance(given, list):
        fields.bad("not_a_list", "edges", "give a list of edges")
        given = []
    edges = tuple(_read_edge(raw, f"edges[{i}]", fields.report) for i, raw in enumerate(given))
    fields.kept["edges"] = [msgspec.structs.asdict(edge) for edge in edges]
    return edges


def _read_edge(raw: Any, path: str, report: Report) -> Edge:
    """An end that cannot be read is empty."""
    if not isinstance(raw, dict):
        hint = 'give an object such as {"source": "a", "source_handle": "x", "target": "b", "target_handle": "y"}'
        report.add("not_an_object", path, hint)
        return Edge("", "", "", "")
    edge = Fields(raw, path, report)
    edge.check_keys(EDGE_FIELDS)
    ends = []
    for name in ("source", "source_handle", "target", "target_handle"):
        value = raw.get(name)
        if name.endswith("_handle"):
            camel = raw.get(name.replace("_h", "H"))
            if value is None:
                value = camel
            elif camel is not None and camel != value:
                edge.bad("both_given", name, f"{name.replace('_h', 'H')} says otherwise; give one of them")
        if value is None or value == "":
            what = "the node's id" if name in ("source", "target") else "the handle's name"
            edge.bad("missing_field", name, f"give {what}")
            value = ""
        elif not isinstance(value, str) or not NAME.fullmatch(value):
            edge.bad("bad_handle" if name.endswith("_handle") else "bad_id", name, NAME_HINT)
            value = ""
        ends.append(value)
    return Edge(*ends)
