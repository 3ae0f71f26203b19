"""`subflow`: a cycle of another flow as one step of this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta

from tradewind.errors import Conflict, Invalid, NotFound, Problem
from tradewind.flows.call import Suspend
from tradewind.flows.node import Node, Output, node
from tradewind.flows.node_errors import NodeExecutionException, NodeTimeoutException, NodeValidationException
from tradewind.nodes.child_cycle import FLOW_ID, TARGET, endings, is_target, outputs_of


@node("subflow", category="flow", open_inputs=True)
class Subflow(Node):
    """Runs a cycle of another registered flow and waits for its end, without holding a place at a worker.

    Fails when the cycle did not complete; with attempts left, a new cycle is started. A cycle that has not ended when
    this node does is stopped.
    """

    flow: Annotated[str, Meta(pattern=FLOW_ID, description="The id of a registered flow.")]
    targets: Annotated[
        dict[str, Annotated[str, Meta(pattern=TARGET)]],
        Meta(description="Input of this node → node.handle of the other flow that takes its value."),
    ] = msgspec.field(name="inputs", default_factory=dict)
    timeout: Annotated[float, Meta(gt=0, le=7 * 86_400, description="How long to wait for it, in seconds.")] = 3600.0
    sent: Output[dict[str, Any]] = Output(name="outputs", description="What its nodes sent: node, handle, value.")

    async def execute(self) -> None:
        state = self.state
        if state is None:
            await self._start()
        cycle: int = state["cycle"]
        status = endings(self.call, self.flow).get(cycle, "")
        if state["attempt"] != self.attempt and status != "completed":
            await self._start()
        if not status:
            message = f"cycle {cycle} of flow {self.flow!r} had not ended after {self.timeout:g} s"
            raise NodeTimeoutException(message, self.timeout, self.node_id)
        if status != "completed":
            raise NodeExecutionException(f"cycle {cycle} of flow {self.flow!r} ended {status}", self.node_id)
        await self.sent.send(await outputs_of(self.host, self.flow, cycle))

    async def _start(self) -> NoReturn:
        values = self.inputs
        missing = [name for name in self.targets if name not in values]
        if missing:
            message = f"node {self.node_id!r} has no value for {', '.join(missing)}"
            raise NodeValidationException(message, missing, self.node_id)
        signals = {target: values[name] for name, target in self.targets.items()}
        try:
            cycle = await self.host.start_cycle(self.flow, signals, "0")
        except (NotFound, Invalid) as error:
            raise NodeValidationException(
                f"flow {self.flow!r} cannot be started: {error.message}", ["flow"], self.node_id, hint=error.hint
            ) from error
        except Conflict as error:
            raise NodeExecutionException(
                f"flow {self.flow!r} cannot be started now: {error.message}", self.node_id, hint=error.hint
            ) from error
        await self.persist_log(f"Started cycle {cycle} of flow {self.flow}")
        raise Suspend(self.timeout, {"cycle": cycle, "attempt": self.attempt})

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        targets = config.get("inputs")
        problems = []
        for name, target in targets.items() if isinstance(targets, dict) else ():
            if name not in inputs:
                problems.append(Problem("unknown_name", f"inputs.{name}", f"{name!r} is no input of this node"))
            if not is_target(target):
                problems.append(Problem("bad_target", f"inputs.{name}", "name a handle of the other flow: node.handle"))
        return problems
