"""How nodes read the cycles of other flows that they started: `node.handle` targets, statuses, outputs. No node."""

from __future__ import annotations

import re
from typing import Any

from tradewind.errors import NotFound
from tradewind.flows.call import NodeCall, NodeHost
from tradewind.flows.node_errors import NodeExecutionException

TARGET = r"^[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}$"
FLOW_ID = r"^[A-Za-z0-9_-]{1,64}$"
_is_target = re.compile(TARGET).match
_OPEN = ("", "pending", "running", "paused")


def is_target(text: Any) -> bool:
    return isinstance(text, str) and _is_target(text) is not None


def endings(call: NodeCall, flow_id: str) -> dict[int, str]:
    """Cycle → status, of those children in this flow that have ended."""
    return {
        int(child["cycle"]): str(child["status"])
        for child in call.children
        if child.get("flow") == flow_id and str(child.get("status", "")) not in _OPEN
    }


async def outputs_of(host: NodeHost, flow_id: str, cycle: int, target: str = "") -> Any:
    """What the cycle's nodes sent, by node and handle; with a target only that value. Raises NodeExecutionException."""
    try:
        outputs = await host.cycle_outputs(flow_id, cycle)
    except NotFound as error:
        raise NodeExecutionException(
            f"the outputs of cycle {cycle} of flow {flow_id!r} are gone", hint="raise flows.keep_cycles"
        ) from error
    if not target:
        return outputs
    node_id, _, handle = target.partition(".")
    if handle not in outputs.get(node_id, {}):
        raise NodeExecutionException(f"cycle {cycle} of flow {flow_id!r} sent nothing on {target!r}")
    return outputs[node_id][handle]
