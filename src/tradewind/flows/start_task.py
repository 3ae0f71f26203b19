"""The task type `flow_start`: one cycle of a flow, for rooms that may submit tasks but do not know flows (rules).

The station tells this module where its flows are (`use_flows`).
"""

from __future__ import annotations

from typing import Any, Protocol

from tradewind.errors import Unavailable
from tradewind.tasks.function import task

#: What a cycle that was started by this task says of its reason.
TRIGGER = "rule"


class Flows(Protocol):
    """See FlowControl."""

    async def fire(
        self, flow_id: str, trigger: str, payload: Any, *, run_id: str = "", only_running: bool = False
    ) -> int: ...


_flows: Flows | None = None


def use_flows(flows: Flows | None) -> None:
    """Let the workers of this process start cycles of these flows; None: it has none. Told by the station."""
    global _flows
    _flows = flows


@task(name="flow_start", retries=3)
async def flow_start(flow_id: str, payload: Any = None, run_id: str = "") -> int:
    """Start one cycle of a flow and return its number; the same run id starts no second one."""
    if _flows is None:
        raise Unavailable("this worker has no flows", hint="start the worker as a part of a station")
    return await _flows.fire(flow_id, TRIGGER, payload, run_id=run_id)
