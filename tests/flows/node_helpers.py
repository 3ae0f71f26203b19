"""Calls and a host for tests of single nodes."""

from __future__ import annotations

from typing import Any

from tradewind.flows.call import Arrived, NodeCall
from tradewind.flows.node import node_class_of
from tradewind.flows.node_run import run_node
from tradewind.signals.signal import Signal, new_signal


class Host:
    """Keeps what a node says."""

    is_cancelled = False

    def __init__(self) -> None:
        self.logs: list[tuple[str, str, Any]] = []
        self.steps: list[tuple[Any, str]] = []

    def log(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None:
        self.logs.append((level, message, metadata))

    def progress(self, value: Any, message: str = "") -> None:
        self.steps.append((value, message))

    async def start_cycle(self, flow_id: str, signals: dict[str, Any]) -> int:
        return 7

    async def cycle_outputs(self, flow_id: str, cycle: int) -> dict[str, dict[str, Any]]:
        return {}


def arrived(handle: str, value: Any, source: str = "up", source_handle: str = "out", age: float = 0) -> Arrived:
    signal = new_signal(value, source_node=source, source_handle=source_handle, timestamp=1000.0 - age)
    return Arrived(source, source_handle, handle, signal)


def tombstone(handle: str, kind: str = "failed", source: str = "up", source_handle: str = "out") -> Arrived:
    return Arrived(source, source_handle, handle, None, kind)


def call_of(*items: Arrived, **more: Any) -> NodeCall:
    told: dict[str, Any] = {
        "flow_id": "f", "cycle": 3, "component_id": 0, "node_id": "n", "type": "t", "task_id": "f_3_n", **more
    }  # fmt: skip
    return NodeCall(arrived=list(items), **told)


async def run(made: Any, *items: Arrived, host: Host | None = None, **more: Any) -> dict[str, Signal]:
    """Run at the moment 1000; the signals that it sends."""
    result = await run_node(call_of(*items, **more), node_class_of(made), host or Host(), now=lambda: 1000.0)
    return result.outputs


async def payloads(made: Any, *items: Arrived, host: Host | None = None, **more: Any) -> dict[str, Any]:
    return {handle: signal.payload for handle, signal in (await run(made, *items, host=host, **more)).items()}
