"""Run one node or one flow in a plain pytest, without any server.

    outcome = await run_node_once(spread, inputs={"bid": 1.0, "ask": 1.5})
    assert outcome.outputs == {"result": 0.5}

The semantics are those of the station: trigger rules, tombstones, stop signals, retries, suspended nodes. Waiting takes
no real time. In code that is not async use `run_node_once_sync` and `run_flow_sync`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.errors import Invalid, NotFound, Problem
from tradewind.flows.call import Arrived, NodeCall, Stop, Suspend
from tradewind.flows.check import check_flow
from tradewind.flows.memory_cycle import Family, MemoryCycle
from tradewind.flows.memory_outcome import FlowOutcome, LogLine, NodeRun, VirtualTime, read_signals
from tradewind.flows.node import node_class_of
from tradewind.flows.node_base import Node
from tradewind.flows.node_registry import discover, node_types
from tradewind.flows.node_run import run_node
from tradewind.flows.spec import FlowSpec
from tradewind.flows.syntax import parse_flow
from tradewind.signals.signal import Signal, new_signal

__all__ = [
    "FlowOutcome",
    "LogLine",
    "NodeOutcome",
    "NodeRun",
    "run_flow",
    "run_flow_sync",
    "run_node_once",
    "run_node_once_sync",
]

MAX_NODES = 100_000


@dataclass
class NodeOutcome:
    """What one run of a node did. `error`: what it raised; `suspend`: set when it suspended itself."""

    outputs: dict[str, Any] = field(default_factory=dict)
    signals: dict[str, Signal] = field(default_factory=dict)
    logs: list[LogLine] = field(default_factory=list)
    progress: list[Any] = field(default_factory=list)
    stop: Stop | None = None
    suspend: Suspend | None = None
    error: Exception | None = None

    @property
    def is_ok(self) -> bool:
        return self.error is None and self.suspend is None


class _Host:
    """Keeps what the node says. It knows no other flows."""

    is_cancelled = False

    def __init__(self, outcome: NodeOutcome) -> None:
        self._outcome = outcome

    def log(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None:
        self._outcome.logs.append(LogLine(level, message, "node", metadata))

    def progress(self, value: Any, message: str = "") -> None:
        self._outcome.progress.append((value, message) if message else value)

    async def start_cycle(self, flow_id: str, signals: dict[str, Any], key: str = "") -> int:
        raise NotFound(f"there is no flow {flow_id!r}", hint="test it with run_flow(…, flows={…})")

    async def cycle_outputs(self, flow_id: str, cycle: int) -> dict[str, dict[str, Any]]:
        raise NotFound(f"flow {flow_id!r} has no cycle {cycle}", hint="test it with run_flow(…, flows={…})")


async def run_node_once(
    made: Any,
    *,
    config: dict[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    state: Any = None,
    children: list[dict[str, Any]] | None = None,
    attempt: int = 1,
) -> NodeOutcome:
    """Run a node (class, function or type name) once. What it raises is in the outcome.

    inputs: handle → payload, or a Signal for its type and time, or an Arrived for a tombstone. An aggregate handle
    takes a dict from source handle to payload, or a list of (source handle, payload) or (node, source handle, payload).
    """
    if isinstance(made, str):
        known = _classes((), [made]).get(made)
        if known is None:
            raise NotFound(f"there is no node type {made!r}", hint="import the module that defines it")
        made = known
    node_class = node_class_of(made)
    offered = node_class.describe()
    many = {handle.name for handle in offered.inputs if handle.aggregate}
    arrived = [item for handle, value in (inputs or {}).items() for item in _arrivals(handle, value, handle in many)]
    call = NodeCall(
        flow_id="test",
        cycle=1,
        component_id=0,
        node_id="node",
        type=offered.type,
        task_id="test_1_node",
        attempt=attempt,
        config=config or {},
        arrived=arrived,
        connected=tuple(inputs or ()),
        state=state,
        children=children or [],
    )
    outcome = NodeOutcome()
    try:
        result = await run_node(call, node_class, _Host(outcome))
    except Suspend as error:
        outcome.suspend = error
    except Exception as error:  # noqa: BLE001 — the fence around user code; the test looks at it
        outcome.error = error
    else:
        outcome.signals = result.outputs
        outcome.outputs = {handle: signal.payload for handle, signal in result.outputs.items()}
        outcome.stop = result.stop
    return outcome


def _arrivals(handle: str, value: Any, is_aggregate: bool) -> list[Arrived]:
    if isinstance(value, Arrived):
        return [value]
    if not is_aggregate:
        return [_arrival("source", handle, handle, value)]
    if isinstance(value, Mapping):
        return [_arrival("source", source_handle, handle, part) for source_handle, part in value.items()]
    found = []
    for part in value:
        if isinstance(part, Arrived):
            found.append(part)
        else:
            source, source_handle, payload = part if len(part) == 3 else ("source", *part)
            found.append(_arrival(source, source_handle, handle, payload))
    return found


def _arrival(source: str, source_handle: str, handle: str, value: Any) -> Arrived:
    if not isinstance(value, Signal):
        value = new_signal(value, source_node=source, source_handle=source_handle, flow_id="test", cycle=1)
    return Arrived(source, source_handle, handle, value)


async def run_flow(
    flow: FlowSpec | dict[str, Any],
    *,
    signals: Mapping[str, Any] | None = None,
    types: Iterable[Any] = (),
    flows: Mapping[str, FlowSpec | dict[str, Any]] | None = None,
) -> FlowOutcome:
    """Run one cycle of a flow to its end. Raises Invalid, with every problem, for a flow that could not be registered.

    signals: `node.handle` → payload, what comes from outside. types: nodes to use beside, and before, the registered
    ones. flows: by id, those that the flow starts itself.
    """
    spec = flow if isinstance(flow, FlowSpec) else parse_flow(flow, flow_id=None if "id" in flow else "test")
    others = {
        flow_id: other if isinstance(other, FlowSpec) else parse_flow(other, flow_id=flow_id)
        for flow_id, other in (flows or {}).items()
    }
    all_specs = [spec, *others.values()]
    classes = _classes(types, {node.type for one in all_specs for node in one.nodes})
    for one in all_specs:
        _check(one, classes)
    family = Family(classes, others)
    return await MemoryCycle(spec, family, read_signals(spec, signals or {}, classes), VirtualTime()).run()


def _classes(types: Iterable[Any], wanted: Iterable[str]) -> dict[str, type[Node]]:
    given = {node_class.describe().type: node_class for node_class in map(node_class_of, types)}
    if any(name not in given and node_types.get(name) is None for name in wanted):
        discover()
    return {node_class.describe().type: node_class for node_class in node_types.all()} | given


def _check(spec: FlowSpec, classes: Mapping[str, type[Node]]) -> None:
    problems = check_flow(spec, {name: made.describe() for name, made in classes.items()}, max_nodes=MAX_NODES)
    if not problems:
        for index, node in enumerate(spec.nodes):
            wired = [edge.target_handle for edge in spec.edges if edge.target == node.id]
            fed = [*wired, *node.inputs, *node.external]
            for problem in classes[node.type].check_config(node.config, fed):
                problems.append(Problem(problem.code, f"nodes[{index}].config.{problem.path}", problem.hint))
    if problems:
        told = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
        raise Invalid(f"flow {spec.id!r} has {len(problems)} problems: {told}", problems=problems)


def run_node_once_sync(
    made: Any,
    *,
    config: dict[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    state: Any = None,
    children: list[dict[str, Any]] | None = None,
    attempt: int = 1,
) -> NodeOutcome:
    """`run_node_once` for tests that are not async."""
    return asyncio.run(
        run_node_once(made, config=config, inputs=inputs, state=state, children=children, attempt=attempt)
    )


def run_flow_sync(
    flow: FlowSpec | dict[str, Any],
    *,
    signals: Mapping[str, Any] | None = None,
    types: Iterable[Any] = (),
    flows: Mapping[str, FlowSpec | dict[str, Any]] | None = None,
) -> FlowOutcome:
    """`run_flow` for tests that are not async."""
    return asyncio.run(run_flow(flow, signals=signals, types=types, flows=flows))
