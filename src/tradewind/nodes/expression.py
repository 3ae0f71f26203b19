"""`expression`: a formula over whatever is wired to the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from tradewind.errors import Problem
from tradewind.flows.node import Node, Output, node
from tradewind.nodes.formula import check, evaluate


@node("expression", category="math", open_inputs=True, inline=True)
class ExpressionNode(Node):
    """Computes an expression; each input is a variable, and `inputs["a-b"]` reads one whose name is no word."""

    expression: Annotated[str, Meta(min_length=1, max_length=4000, description="For example: (ask - bid) / 2")]
    result: Output[Any] = Output(description="What the expression gives.")

    async def execute(self) -> None:
        await self.result.send(evaluate(self.expression, self.inputs, self.node_id))

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        return check(config.get("expression"), inputs, "expression")
