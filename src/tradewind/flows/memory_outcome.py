"""What a cycle in memory takes and what it tells: its time, its signals, its outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.errors import Invalid, Problem
from tradewind.flows.node_base import Node
from tradewind.flows.spec import FlowSpec


@dataclass(frozen=True)
class LogLine:
    level: str
    message: str
    node: str
    metadata: dict[str, Any] | None = None


@dataclass
class NodeRun:
    """How one node fared. `status`: pending, awaiting_input, completed, failed, skipped or terminated."""

    status: str = "pending"
    error: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    attempts: int = 0
    progress: list[Any] = field(default_factory=list)


@dataclass
class FlowOutcome:
    """How a cycle ended: completed, failed or timeout; running, when a node waits for a signal from outside."""

    status: str
    nodes: dict[str, NodeRun]
    logs: list[LogLine]
    stopped_by: str = ""
    error: str = ""
    #: Virtual seconds that it took.
    took_s: float = 0.0

    @property
    def outputs(self) -> dict[str, dict[str, Any]]:
        """Node → handle → payload."""
        return {node_id: run.outputs for node_id, run in self.nodes.items() if run.outputs}


class VirtualTime:
    """The real time plus what was slept virtually."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def now(self) -> float:
        return time.time() + self.ahead_s

    def advance(self, seconds: float) -> None:
        self.ahead_s += max(0.0, seconds)


def read_signals(
    spec: FlowSpec, signals: Mapping[str, Any], classes: Mapping[str, type[Node]]
) -> dict[tuple[str, str], Any]:
    """`node.handle` → value as (node, handle) → value. Raises Invalid for what the flow does not have."""
    found, problems = {}, []
    types = {node.id: classes[node.type].describe() for node in spec.nodes}
    for target, value in signals.items():
        node_id, _, handle = target.partition(".")
        known = types.get(node_id)
        if known is None:
            problems.append(Problem("unknown_node", target, f"the nodes are {', '.join(types)}"))
        elif not known.open_inputs and handle not in {h.name for h in known.inputs}:
            problems.append(Problem("unknown_handle", target, f"inputs: {', '.join(h.name for h in known.inputs)}"))
        else:
            found[node_id, handle] = value
    if problems:
        raise Invalid(f"signals for flow {spec.id!r} that it cannot take", problems=problems, hint=problems[0].hint)
    return found
