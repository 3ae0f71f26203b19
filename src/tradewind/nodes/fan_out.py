"""`map`: the same for each item of a list, by an expression or by a flow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from tradewind import codec
from tradewind.errors import Conflict, Invalid, NotFound, Problem
from tradewind.flows.call import Suspend
from tradewind.flows.node import Input, Node, Output, node
from tradewind.flows.node_errors import NodeExecutionException, NodeTimeoutException, NodeValidationException
from tradewind.nodes.child_cycle import FLOW_ID, TARGET, endings, outputs_of
from tradewind.nodes.formula import check, formula

MAX_ITEMS = 100_000
MAX_CYCLES = 1_000
MAX_STATE_BYTES = 1_000_000
MAX_CONCURRENCY = 100
BREATH_S = 0.005  # of computing between two chances for others on the loop


@node("map", category="flow", open_inputs=True)
class Map(Node):
    """Does the same for each item of a list: an expression, or a cycle of another flow, and keeps the order.

    Cycles run `concurrency` at a time; while they run, the node holds no place at a worker. Those that have not ended
    when it does are stopped. At most 100,000 items for an expression, 1,000 for a flow.
    """

    expression: Annotated[
        str, Meta(max_length=4000, description="Over `item`, `index` and the other inputs, for example: item * factor")
    ] = ""
    flow: Annotated[str, Meta(pattern=f"^$|{FLOW_ID}", description="Or: the id of a registered flow.")] = ""
    input: Annotated[str, Meta(pattern=f"^$|{TARGET}", description="Where the flow takes the item: node.handle")] = ""
    output: Annotated[
        str, Meta(pattern=f"^$|{TARGET}", description="Which value is the result: node.handle; if empty, all outputs.")
    ] = ""
    concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY, description="How many cycles run at once.")] = 10
    timeout: Annotated[
        float, Meta(gt=0, le=7 * 86_400, description="How long to wait for the cycles that run at once, in seconds.")
    ] = 3600.0
    on_error: Annotated[
        Literal["fail", "collect"], Meta(description="fail: the first error ends the node. collect: it goes on.")
    ] = "fail"
    items: Input[list[Any]] = Input(description="The list.")
    results: Output[list[Any]] = Output(description="One for each item, in order; null where it failed.")
    errors: Output[list[Any]] = Output(description="[{index, error}], empty when all went well.")

    async def execute(self) -> None:
        if self.flow:
            results, errors = await self._by_flow()
        else:
            results, errors = await self._by_expression()
        await self.results.send(results)
        await self.errors.send(errors)

    async def _by_expression(self) -> tuple[list[Any], list[Any]]:
        self._check_length(MAX_ITEMS)
        compute, values = formula(self.expression), dict(self.inputs)
        results, errors, time = [], [], asyncio.get_running_loop().time
        end = time() + BREATH_S
        for index, item in enumerate(self.items.value):
            if time() > end:
                await asyncio.sleep(0)
                end = time() + BREATH_S
            values["item"], values["index"] = item, index
            try:
                results.append(compute(values))
            except Invalid as error:
                results.append(None)
                errors.append(self._error(index, error.message))
        return results, errors

    async def _by_flow(self) -> tuple[list[Any], list[Any]]:
        """State: what is known of the items before `running`, and which cycles work on the next ones."""
        self._check_length(MAX_CYCLES)
        state = self.state
        if state is None or state["attempt"] != self.attempt:
            state = {"attempt": self.attempt, "results": [], "errors": [], "running": []}
        results, errors = list(state["results"]), list(state["errors"])
        if state["running"]:
            await self._gather(state["running"], results, errors)
        while True:
            coming = self.items.value[len(results) : len(results) + self.concurrency]
            if not coming:
                return results, errors
            self.progress(len(results) / len(self.items.value))
            running = [await self._start(item, len(results) + i) for i, item in enumerate(coming)]
            if any(isinstance(cycle, int) for cycle in running):
                break
            await self._gather(running, results, errors)  # none could be started: there is nothing to wait for
        state = {"attempt": self.attempt, "results": results, "errors": errors, "running": running}
        if len(codec.encode(state)) > MAX_STATE_BYTES:
            raise NodeValidationException(
                f"the results of node {self.node_id!r} are larger than {MAX_STATE_BYTES} bytes", ["output"],
                self.node_id, hint="name one value with `output`, or map over fewer items",
            )  # fmt: skip
        raise Suspend(self.timeout, state)

    async def _start(self, item: Any, index: int) -> int | str:
        """The number of the cycle, or why there is none."""
        try:
            return await self.host.start_cycle(self.flow, {self.input: item}, str(index))
        except (NotFound, Invalid, Conflict) as error:
            message = f"flow {self.flow!r} cannot be started: {error.message}"
            if self.on_error == "fail":
                raise NodeExecutionException(message, self.node_id, hint=error.hint) from error
            return message

    async def _gather(self, running: list[int | str], results: list[Any], errors: list[Any]) -> None:
        ended = endings(self.call, self.flow)
        for cycle in running:
            index = len(results)
            results.append(None)
            if isinstance(cycle, str):
                errors.append(self._error(index, cycle))
            elif cycle not in ended:
                message = f"cycle {cycle} of flow {self.flow!r} had not ended after {self.timeout:g} s"
                if self.on_error == "fail":
                    raise NodeTimeoutException(message, self.timeout, self.node_id)
                errors.append(self._error(index, message))
            elif ended[cycle] != "completed":
                errors.append(self._error(index, f"cycle {cycle} of flow {self.flow!r} ended {ended[cycle]}"))
            else:
                try:
                    results[index] = await outputs_of(self.host, self.flow, cycle, self.output)
                except NodeExecutionException as error:
                    errors.append(self._error(index, error.message))

    def _error(self, index: int, message: str) -> dict[str, Any]:
        if self.on_error == "fail":
            raise NodeExecutionException(f"node {self.node_id!r} failed at item {index}: {message}", self.node_id)
        return {"index": index, "error": message}

    def _check_length(self, most: int) -> None:
        if len(self.items.value) > most:
            raise NodeValidationException(
                f"node {self.node_id!r} got {len(self.items.value)} items; at most {most} are taken",
                ["items"],
                self.node_id,
            )

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        problems = []
        expression, flow = config.get("expression"), config.get("flow")
        if bool(expression) == bool(flow):
            problems.append(Problem("bad_map", "expression", "give either `expression` or `flow`"))
        if flow and not config.get("input"):
            problems.append(Problem("missing_input", "input", "say where the flow takes the item: node.handle"))
        if expression:
            problems += check(expression, {*inputs, "items", "item", "index"}, "expression")
        return problems
