"""What Redis and the workers run of a flow: each node with its wires, made once per definition. No I/O.

The version is a hash of the plan; a cycle keeps to the version that it was opened with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tradewind import codec
from tradewind.flows.graph import Graph, analyse
from tradewind.flows.spec import FlowSpec, Handle, NodeSpec, NodeType

#: Where a signal from outside stands among the inputs of a node.
OUTSIDE = "*:*->"
#: A node id that could be the tail of another flow's task ids; see DESIGN section 5.
_TAIL = re.compile(r"(?:^|_)[0-9]+_")


class Wire(msgspec.Struct, frozen=True, array_like=True):
    """One edge as its source sees it; `is_optional`: the target does without it."""

    handle: str
    target: str
    target_handle: str
    is_optional: bool = False


class PlannedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """`external`: handles that wait for a signal from outside; `listens`: those that take one but do not wait for it.
    `sources`: input handle → (node, handle) of its edges."""

    spec: NodeSpec
    component: int
    out: tuple[Wire, ...] = ()
    sources: dict[str, list[tuple[str, str]]] = {}
    external: tuple[str, ...] = ()
    listens: tuple[str, ...] = ()
    max_attempts: int = 1
    timeout_ms: int = 0

    @property
    def id(self) -> str:
        return self.spec.id

    def waits_for(self) -> list[str]:
        """The keys of all inputs that it waits for."""
        edges = [edge_key(s, h, handle) for handle, pairs in self.sources.items() for s, h in pairs]
        return edges + [OUTSIDE + handle for handle in self.external]

    def edges_of(self, handle: str, source: str = "", source_handle: str = "") -> list[str]:
        """Which inputs a signal for that handle may stand for, the likeliest first; [] = there is no such handle."""
        pairs = self.sources.get(handle, [])
        if (source, source_handle) in pairs:
            return [edge_key(source, source_handle, handle)]
        if handle in self.external or handle in self.listens:
            return [OUTSIDE + handle]
        return [edge_key(s, h, handle) for s, h in pairs]


def edge_key(source: str, source_handle: str, target_handle: str) -> str:
    return f"{source}:{source_handle}->{target_handle}"


class Plan(msgspec.Struct, frozen=True):
    """`nodes` are in topological order."""

    spec: FlowSpec
    nodes: dict[str, PlannedNode]
    version: str = ""

    @property
    def has_tails(self) -> bool:
        return any(_TAIL.search(node) for node in self.nodes)

    def graph(self) -> Graph:
        return graph_of(self.spec)

    @property
    def waits_for_people(self) -> bool:
        return any(node.external or node.listens for node in self.nodes.values())

    def encode(self) -> bytes:
        return codec.encode(self)


_decoder = msgspec.json.Decoder(Plan)
decode_plan = _decoder.decode


def graph_of(spec: FlowSpec) -> Graph:
    return analyse([n.id for n in spec.nodes], [(e.source, e.target) for e in spec.edges])


def make_plan(spec: FlowSpec, types: Mapping[str, NodeType], default_timeout_ms: int) -> Plan:
    """The flow must have been checked. A type that is not described takes any handle and needs all of them."""
    graph = graph_of(spec)
    specs = {node.id: node for node in spec.nodes}
    handles = {node.id: _handles(types.get(node.type)) for node in spec.nodes}
    out: dict[str, list[Wire]] = {name: [] for name in specs}
    sources: dict[str, dict[str, list[tuple[str, str]]]] = {name: {} for name in specs}
    for e in spec.edges:
        handle = handles[e.target].get(e.target_handle)
        out[e.source].append(
            Wire(e.source_handle, e.target, e.target_handle, handle is not None and not handle.required)
        )
        sources[e.target].setdefault(e.target_handle, []).append((e.source, e.source_handle))
    nodes = {}
    for name in graph.order:
        node, kind = specs[name], types.get(specs[name].type)
        wanted = {h.name for h in handles[name].values() if h.external and h.required} | set(node.external)
        listens = {h.name for h in handles[name].values() if h.external} - wanted
        retries = node.retries if node.retries is not None else (kind.retries if kind else 0)
        seconds = node.timeout_s or (kind.timeout_s if kind else 0)
        nodes[name] = PlannedNode(
            spec=node,
            component=graph.component_of[name],
            out=tuple(out[name]),
            sources=sources[name],
            external=tuple(sorted(h for h in wanted if h not in sources[name] and h not in node.inputs)),
            listens=tuple(sorted(h for h in listens if h not in sources[name] and h not in node.inputs)),
            max_attempts=retries + 1,
            timeout_ms=round(seconds * 1000) or default_timeout_ms,
        )
    plan = Plan(spec, nodes)
    return msgspec.structs.replace(plan, version=hashlib.sha1(plan.encode()).hexdigest()[:12])


def redis_fields(plan: Plan) -> dict[str, bytes]:
    """The fields of `flow:{id}:plan:{version}`; lua/cycle.lua says what they mean."""
    graph = plan.graph()
    fields = {
        ":all": _pack(list(plan.nodes)),
        ":components": str(len(graph.components)).encode(),
        ":plan": plan.encode(),
    }
    for component in graph.components:
        fields[f":{component.id}"] = _pack(list(component.nodes))
    for name, node in plan.nodes.items():
        spec = node.spec
        request: dict[str, Any] = {"max_attempts": node.max_attempts, "timeout_ms": node.timeout_ms}
        if spec.backoff_s != 1.0:
            request["backoff_ms"] = round(spec.backoff_s * 1000)
        if spec.labels:
            request["labels"] = list(spec.labels)
        record: dict[str, Any] = {
            "t": spec.type, "k": node.component, "i": len(node.waits_for()), "r": spec.trigger_rule.value,
            "o": [[w.handle, w.target, w.target_handle, int(w.is_optional)] for w in node.out],
            "p": spec.priority, "m": node.max_attempts, "u": node.timeout_ms,
            "c": codec.encode(spec.config).decode(), "q": "," + codec.encode(request).decode()[1:-1],
        }  # fmt: skip
        if node.listens:
            record["x"] = list(node.listens)
        if spec.labels:
            record["l"] = ",".join(spec.labels)
        fields[name] = _pack(record)
    return fields


def _pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def _handles(kind: NodeType | None) -> dict[str, Handle]:
    return {handle.name: handle for handle in kind.inputs} if kind else {}
