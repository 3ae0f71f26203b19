"""A small host for nodes, and ways to run one: once, or to its end with everything that it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tradewind import nodes
from tradewind.errors import NotFound, Problem
from tradewind.flows.call import Arrived, NodeCall, NodeResult, Suspend
from tradewind.flows.node_registry import node_types
from tradewind.flows.node_run import run_node
from tradewind.signals.signal import new_signal

assert nodes.__all__  # imported for what it registers
Outputs = dict[str, dict[str, Any]]
Cycle = tuple[str, Outputs]


class Host:
    """Keeps what a node says. `flows`: what a cycle of a flow makes of its signals, as (status, outputs)."""

    def __init__(self, flows: dict[str, Callable[[dict[str, Any]], Cycle]] | None = None) -> None:
        self.flows = flows or {}
        self.logs: list[tuple[str, str, Any]] = []
        self.reports: list[Any] = []
        self.started: list[tuple[str, dict[str, Any]]] = []
        self.cycles: dict[tuple[str, int], Cycle] = {}
        self.at_once: list[int] = []
        self.is_cancelled = False

    def log(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None:
        self.logs.append((level, message, metadata))

    def progress(self, value: Any, message: str = "") -> None:
        self.reports.append(value)

    async def start_cycle(self, flow_id: str, signals: dict[str, Any], key: str = "") -> int:
        if flow_id not in self.flows:
            raise NotFound(f"there is no flow {flow_id!r}")
        self.started.append((flow_id, signals))
        number = len(self.started)
        self.cycles[flow_id, number] = self.flows[flow_id](signals)
        return number

    async def cycle_outputs(self, flow_id: str, cycle: int) -> Outputs:
        return self.cycles[flow_id, cycle][1]

    def children(self) -> list[dict[str, Any]]:
        return [{"flow": flow, "cycle": cycle, "status": end[0]} for (flow, cycle), end in self.cycles.items()]


def arrived(handle: str, value: Any, source: str = "a", source_handle: str = "out") -> Arrived:
    signal = new_signal(value, source_node=source, source_handle=source_handle, flow_id="f", cycle=1)
    return Arrived(source, source_handle, handle, signal)


def new_call(
    kind: str, config: dict[str, Any], inputs: dict[str, Any] | Sequence[Arrived] = (), **more: Any
) -> NodeCall:
    came = [arrived(k, v, f"from_{k}") for k, v in inputs.items()] if isinstance(inputs, dict) else list(inputs)
    connected = tuple({item.target_handle for item in came})
    return NodeCall("f", 1, 0, "n", kind, "f_1_n", config=config, arrived=came, connected=connected, **more)


async def once(call: NodeCall, host: Host | None = None) -> NodeResult:
    node_class = node_types.get(call.type)
    assert node_class is not None, call.type
    return await run_node(call, node_class, host or Host())


async def to_end(call: NodeCall, host: Host | None = None) -> NodeResult:
    """Run again after each suspension, as if all cycles that it started had ended meanwhile."""
    host = host or Host()
    while True:
        known = len(host.started)
        try:
            return await once(call, host)
        except Suspend as wait:
            host.at_once.append(len(host.started) - known)
            call.state, call.children = wait.state, host.children()


def payloads(result: NodeResult) -> dict[str, Any]:
    return {handle: signal.payload for handle, signal in result.outputs.items()}


async def outputs(kind: str, config: dict[str, Any], inputs: Any = (), host: Host | None = None) -> dict[str, Any]:
    return payloads(await to_end(new_call(kind, config, inputs), host))


def problems(kind: str, config: dict[str, Any], inputs: Sequence[str] = ()) -> list[Problem]:
    node_class = node_types.get(kind)
    assert node_class is not None, kind
    return node_class.check_config(config, inputs)
