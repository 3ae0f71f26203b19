"""Whether the nodes of a flow exist, are well configured and fit together. Pure; tells all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.errors import Problem
from tradewind.flows.config_schema import compile_schema
from tradewind.flows.graph import analyse
from tradewind.flows.handles import can_feed, fits, name_of
from tradewind.flows.spec import Edge, FlowSpec, Handle, NodeSpec, NodeType
from tradewind.flows.syntax import read_flow
from tradewind.flows.syntax_fields import Report, join
from tradewind.problems import Problems

MAX_NODES = 100_000
#: Longer cycles are shown with their middle left out.
_SHOWN = 40


def validate(
    document: Any, types: Mapping[str, NodeType], *, flow_id: str | None = None, max_nodes: int = MAX_NODES
) -> tuple[FlowSpec | None, Problems]:
    """The flow and no problems, or no flow and all problems: those of its form first, then those of its meaning."""
    spec, problems = read_flow(document, flow_id=flow_id)
    if spec is not None:
        problems += check_flow(spec, types, max_nodes=max_nodes)
    return (None if problems else spec), problems


def check_flow(spec: FlowSpec, types: Mapping[str, NodeType], *, max_nodes: int = MAX_NODES) -> Problems:
    """Problems in the order of nodes, then of edges, then cycles. Empty names were reported by the syntax already."""
    if len(spec.nodes) > max_nodes:
        hint = f"{len(spec.nodes)} nodes; at most {max_nodes} in one flow"
        return Problems([Problem("too_many_nodes", "nodes", hint)])
    return _Check(spec, types).run()


class _Type:
    """A node type with what the check looks up again and again."""

    def __init__(self, described: NodeType) -> None:
        self.inputs = {handle.name: handle for handle in described.inputs}
        self.outputs = {handle.name: handle for handle in described.outputs}
        self.open_inputs = described.open_inputs
        self.open_outputs = described.open_outputs
        self.needed = [h.name for h in described.inputs if h.required and not h.external and h.default is None]
        self.config = compile_schema(described.config_schema)
        # A config key that names an input is a value for it, unless the type has a config field of that name.
        self.values = self.inputs.keys() - self.config.properties


class _Check:
    def __init__(self, spec: FlowSpec, types: Mapping[str, NodeType]) -> None:
        self.spec = spec
        self.types = types
        self.report = Report()
        self.known: dict[str, _Type] = {}
        self.types_of: dict[str, _Type | None] = {}  # by node id
        self.connected = {(edge.target, edge.target_handle) for edge in spec.edges}

    def run(self) -> Problems:
        first: dict[str, int] = {}
        for i, node in enumerate(self.spec.nodes):
            path = f"nodes[{i}]"
            if node.id and first.setdefault(node.id, i) != i:
                hint = f"nodes[{first[node.id]}] is called {node.id[:64]!r}, too"
                self.report.add("duplicate_id", f"{path}.id", hint)
            kind = self._type(node, path)
            self.types_of.setdefault(node.id, kind)
            if kind is not None:
                self._check_node(node, kind, path)
        self._check_edges()
        self._check_cycles()
        return self.report.problems

    def _type(self, node: NodeSpec, path: str) -> _Type | None:
        kind = self.known.get(node.type)
        if kind is None and node.type:
            described = self.types.get(node.type)
            if described is None:
                self.report.add("unknown_type", f"{path}.type", self.report.guess(node.type, self.types))
            else:
                kind = self.known[node.type] = _Type(described)
        return kind

    def _check_node(self, node: NodeSpec, kind: _Type, path: str) -> None:
        config = node.config
        if not config.keys().isdisjoint(kind.values):
            for name in config:
                if name in kind.values:
                    self._check_value(config[name], kind.inputs[name], join(f"{path}.config", name))
            config = {name: value for name, value in config.items() if name not in kind.values}
        hint = ' (values for handles go into "inputs")' if kind.open_inputs else ""
        kind.config.check(config, f"{path}.config", self.report, hint_unknown=hint)
        for name, value in node.inputs.items():
            handle = kind.inputs.get(name)
            if handle is not None:
                self._check_value(value, handle, join(f"{path}.inputs", name))
            elif not kind.open_inputs:
                self.report.add("unknown_handle", join(f"{path}.inputs", name), self.report.guess(name, kind.inputs))
        for k, name in enumerate(node.external):
            if name not in kind.inputs and not kind.open_inputs:
                self.report.add("unknown_handle", f"{path}.external[{k}]", self.report.guess(name, kind.inputs))
        for name in kind.needed:
            if (node.id, name) not in self.connected and not (
                name in node.inputs or name in node.config or name in node.external
            ):
                hint = f"{name!r} is required: connect an edge, or give a value in inputs, or name it in external"
                self.report.add("missing_input", join(f"{path}.inputs", name), hint)

    def _check_value(self, value: Any, handle: Handle, path: str) -> None:
        if value is None and not handle.required:
            return
        if not fits(value, handle.type):
            self.report.add("wrong_type", path, f"give {handle.type}, not {name_of(value)}")

    def _check_edges(self) -> None:
        seen: dict[Edge, int] = {}
        feeders: dict[tuple[str, str], int] = {}
        for i, edge in enumerate(self.spec.edges):
            path = f"edges[{i}]"
            is_whole = bool(edge.source and edge.source_handle and edge.target and edge.target_handle)
            if is_whole and seen.setdefault(edge, i) != i:
                self.report.add("duplicate_edge", path, f"the same as edges[{seen[edge]}]")
                continue
            if edge.source and edge.source == edge.target:
                self.report.add("self_loop", path, f"{edge.source!r} cannot wait for itself")
            output = self._end(edge.source, edge.source_handle, f"{path}.source", is_output=True)
            target = self._end(edge.target, edge.target_handle, f"{path}.target", is_output=False)
            if output is not None and target is not None:
                self._check_fit(edge, output, target, path)
            slot = (edge.target, edge.target_handle)
            if self._is_plain(edge, target) and feeders.setdefault(slot, i) != i:
                hint = f"edges[{feeders[slot]}] feeds this handle already; only an aggregate handle takes several"
                self.report.add("handle_taken", f"{path}.target_handle", hint)

    def _is_plain(self, edge: Edge, target: Handle | None) -> bool:
        """False also for a handle that is not known."""
        if target is not None:
            return not target.aggregate
        kind = self.types_of.get(edge.target)
        return kind is not None and kind.open_inputs and bool(edge.target_handle)

    def _end(self, node: str, name: str, path: str, *, is_output: bool) -> Handle | None:
        """The handle at one end of an edge; None: unknown, which is reported, or open, which is fine."""
        if not node:
            return None
        if node not in self.types_of:
            self.report.add("unknown_node", path, self.report.guess(node, self.types_of))
            return None
        kind = self.types_of[node]
        if kind is None or not name:
            return None
        handles = kind.outputs if is_output else kind.inputs
        handle = handles.get(name)
        if handle is None and not (kind.open_outputs if is_output else kind.open_inputs):
            what = "outputs" if is_output else "inputs"
            hint = f"{node!r} has no such handle among its {what}; {self.report.guess(name, handles)}"
            self.report.add("unknown_handle", f"{path}_handle", hint)
        return handle

    def _check_fit(self, edge: Edge, output: Handle, target: Handle, path: str) -> None:
        source, to = f"{edge.source}.{output.name}", f"{edge.target}.{target.name}"
        # An aggregate handle's type is that of the collection, not of what comes over one edge.
        if not target.aggregate and not can_feed(output.type, target.type):
            self.report.add("type_mismatch", path, f"{source} gives {output.type}, {to} takes {target.type}")
        if output.unit and target.unit and output.unit != target.unit:
            hint = f"{source} is in {output.unit}, {to} in {target.unit}; put a conversion between them"
            self.report.add("unit_mismatch", path, hint)

    def _check_cycles(self) -> None:
        names = [node.id for node in self.spec.nodes if node.id]
        pairs = [(edge.source, edge.target) for edge in self.spec.edges if edge.source != edge.target]
        for cycle in analyse(names, pairs).cycles:
            closing = (cycle[-2], cycle[-1])
            index = next(i for i, edge in enumerate(self.spec.edges) if (edge.source, edge.target) == closing)
            shown = list(cycle)
            if len(shown) > _SHOWN:
                shown[_SHOWN // 2 : -_SHOWN // 2] = [f"({len(cycle) - _SHOWN} more)"]
            self.report.add("cycle", f"edges[{index}]", f"{' → '.join(shown)}: take one of these edges out")
