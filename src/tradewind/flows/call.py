"""What one run of a node is given and what it gives back: the seam between the engine and the node SDK."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from tradewind.signals.signal import Signal


class Arrived(msgspec.Struct, frozen=True):
    """What came over one edge: a signal, or the reason why none will come (`failed`, `skipped`)."""

    source_node: str
    source_handle: str
    target_handle: str
    signal: Signal | None = None
    tombstone: str = ""


class NodeCall(msgspec.Struct):
    """One attempt. `given`: values for handles without an edge. `state`: what the node left when it suspended itself,
    else None; `children`: how the cycles that it waited for ended."""

    flow_id: str
    cycle: int
    component_id: int
    node_id: str
    type: str
    task_id: str
    attempt: int = 1
    config: dict[str, Any] = {}
    given: dict[str, Any] = {}
    arrived: list[Arrived] = []
    connected: tuple[str, ...] = ()
    state: Any = None
    children: list[dict[str, Any]] = []


class Stop(msgspec.Struct, frozen=True):
    """A STOP_EXECUTION that the node asked for; scope `component` or `flow`."""

    reason: str
    scope: str = "component"


class NodeResult(msgspec.Struct):
    """One signal per output handle at most; a connected handle without one sends a `skipped` tombstone."""

    outputs: dict[str, Signal] = {}
    stop: Stop | None = None


class Suspend(Exception):
    """Raised by a node to be run again after `delay_s`, or earlier when all cycles that it started have ended.

    The node holds no slot meanwhile. `state` (small JSON) is what it finds in its call then. Not an attempt.
    """

    def __init__(self, delay_s: float, state: Any = None) -> None:
        super().__init__(f"waits for {delay_s:g} s")
        self.delay_s = delay_s
        self.state = state


class NodeHost(Protocol):
    """What a running node may ask of the engine. All of it is cheap except `start_cycle`."""

    def log(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None: ...

    def progress(self, value: Any, message: str = "") -> None: ...

    @property
    def is_cancelled(self) -> bool: ...

    async def start_cycle(self, flow_id: str, signals: dict[str, Any], key: str = "") -> int:
        """Start a cycle of another flow as a child of this node; its number. Suspend to wait for its end.

        With a `key`, a node that is run again (its worker died) gets the child that it started under that key before.
        `signals` maps `node.handle` to a value. Raises NotFound, Conflict, Invalid.
        """
        ...

    async def cycle_outputs(self, flow_id: str, cycle: int) -> dict[str, dict[str, Any]]:
        """What the nodes of an ended cycle sent: node id → handle → value."""
        ...
