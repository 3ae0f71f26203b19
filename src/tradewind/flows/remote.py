"""Nodes on foreign workers: HTTP services that take the seed's body and answer with outputs.

Their tasks end in the task room alone; the leader then brings the end into the cycle (`FlowScheduler.settle`).
"""

from __future__ import annotations

from typing import Any

from tradewind.flows.host import read_inputs
from tradewind.flows.node_start import Follow, NodeStarts
from tradewind.flows.plan import PlannedNode
from tradewind.flows.store import FlowStore
from tradewind.signals.signal import encode, new_signal
from tradewind.tasks.record import Request
from tradewind.tasks.worker_store import Taken


class RemoteNodes:
    def __init__(self, store: FlowStore) -> None:
        self.store = store

    async def wording(self, worker_id: str, taken: Taken, request: Request) -> dict[str, Any]:
        """Seed 002's body: the node with its config and edges, and what has arrived for it."""
        kwargs = request.kwargs
        follow = Follow(kwargs["flow_id"], kwargs["cycle"], kwargs["node_id"])
        version, raw = await NodeStarts(self.store, worker_id).start(taken.token, follow)
        plan = await self.store.plan(follow.flow_id, version)
        node = plan.nodes[follow.node_id]
        spec = node.spec
        return {
            "node_task_id": taken.id,
            "flow_id": follow.flow_id,
            "component_id": node.component,
            "cycle": follow.cycle,
            "node_id": node.id,
            "node_type": taken.type,
            "node_data": {
                "config": spec.config,
                "input_edges": [
                    {"source": source, "source_handle": handle, "target": node.id, "target_handle": name}
                    for name, pairs in node.sources.items()
                    for source, handle in pairs
                ],
                "output_edges": [
                    {"source": node.id, "source_handle": w.handle, "target": w.target, "target_handle": w.target_handle}
                    for w in node.out
                ],
                "inputs": {**spec.inputs, **_values(raw)},
            },
        }


def _values(raw: list[Any]) -> dict[str, Any]:
    """Handle → value; several sources of one handle as a dict, keyed as in an aggregate handle."""
    arrived, _ = read_inputs(raw)
    by_handle: dict[str, dict[str, Any]] = {}
    for item in arrived:
        if item.signal is not None:
            values = by_handle.setdefault(item.target_handle, {})
            name = (
                item.source_handle if item.source_handle not in values else f"{item.source_node}:{item.source_handle}"
            )
            values[name] = item.signal.payload
    return {handle: next(iter(v.values())) if len(v) == 1 else v for handle, v in by_handle.items()}


def foreign_outputs(node: PlannedNode, flow_id: str, cycle: int, result: Any) -> dict[str, str]:
    """Handle → signal as JSON of what a foreign worker answered: its `outputs`, or what it has under a connected
    handle's name; anything else goes to `result`."""
    wired = {wire.handle for wire in node.out}
    if isinstance(result, dict) and isinstance(result.get("outputs"), dict):
        values = result["outputs"]
    elif isinstance(result, dict) and wired & result.keys():
        values = {handle: result[handle] for handle in wired & result.keys()}
    else:
        values = {} if result is None else {"result": result}
    found = {}
    for handle, value in values.items():
        signal = new_signal(value, source_node=node.id, source_handle=handle, flow_id=flow_id, cycle=cycle)
        found[handle] = encode(signal).decode()
    return found
