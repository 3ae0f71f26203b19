"""Small nodes for tests of whole flows, and a short way to write one."""

from __future__ import annotations

from typing import Any

from tradewind.flows.call import Suspend
from tradewind.flows.node import (
    Input,
    Node,
    NodeResourceException,
    NodeStopExecutionException,
    NodeValidationException,
    Output,
    node,
)
from tradewind.flows.node_registry import NodeRegistry

mine = NodeRegistry()


@node("t_source", registry=mine)
class Source(Node):
    """Sends `value`, or fails the first `failures` times, or stops."""

    value: Any = 1
    failures: int = 0
    error: str = ""
    stop: str = ""
    silent: bool = False
    out: Output[Any]
    other: Output[Any]

    async def execute(self) -> bool:
        if self.attempt <= self.failures:
            kinds: dict[str, Exception] = {
                "": RuntimeError("not yet"),
                "invalid": NodeValidationException("never"),
                "busy": NodeResourceException("busy", "gpu", retry_after_s=500),
                "ended": NodeStopExecutionException("asked to", "operator"),
            }
            raise kinds[self.error]
        if self.stop:
            await self.send_stop_execution_signal("enough", self.stop)
        if not self.silent:
            await self.out.send(self.value)
        return True


@node("t_add", registry=mine)
def add(a: float, b: float = 100.0) -> float:
    return a + b


@node("t_gather", registry=mine)
class Gather(Node):
    data: Input[dict[str, Any]] = Input(aggregate=True)
    out: Output[dict[str, Any]]

    async def execute(self) -> None:
        await self.persist_log("gathered", metadata={"has": self.data.has_value})
        await self.out.send(self.data.value if self.data.has_value else {})


@node("t_wait", registry=mine)
class Wait(Node):
    seconds: float = 60.0
    value: Input[Any] = Input(default=None)
    out: Output[Any]

    async def execute(self) -> None:
        if self.state is None:
            raise Suspend(self.seconds, {"asked": True})
        await self.out.send([self.value.value, self.attempt])


@node("t_person", registry=mine)
class Person(Node):
    decision: Input[bool] = Input(external=True)
    out: Output[bool]

    async def execute(self) -> None:
        await self.out.send(self.decision.value)


@node("t_parent", registry=mine)
class Parent(Node):
    flow: str = "child"
    patience: float = 100.0
    item: Input[Any] = Input(default=5)
    out: Output[Any]

    async def execute(self) -> None:
        if self.state is None:
            cycle = await self.host.start_cycle(self.flow, {"ask.decision": self.item.value})
            raise Suspend(self.patience, {"cycle": cycle})
        child = self.call.children[0]
        outputs = await self.host.cycle_outputs(child["flow"], child["cycle"])
        await self.out.send([child, outputs if child["status"] != "running" else None])


TYPES = [Source, add, Gather, Wait, Person, Parent]


def flow(nodes: dict[str, Any], *edges: str, **more: Any) -> dict[str, Any]:
    """`"a.out>b.a"` is an edge; a node is (type, config, other fields)."""
    made: list[dict[str, Any]] = []
    for node_id, told in nodes.items():
        kind, config, rest = (*told, {}, {})[:3] if isinstance(told, tuple) else (told, {}, {})
        made.append({"id": node_id, "type": kind, "config": config, **rest})
    wires = []
    for edge in edges:
        left, right = edge.split(">")
        (source, source_handle), (target, target_handle) = left.split("."), right.split(".")
        wires.append(
            {"source": source, "source_handle": source_handle, "target": target, "target_handle": target_handle}
        )
    return {"id": "f", "interval": 0, "nodes": made, "edges": wires, **more}
