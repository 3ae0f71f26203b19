"""`constant`: a value that the flow itself gives."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from tradewind.flows.node import Node, Output, node


@node("constant", category="source", inline=True)
class Constant(Node):
    """Sends a value that is written in the flow."""

    value: Annotated[Any, Meta(description="What to send: any JSON.")]
    sent: Output[Any] = Output(name="value", description="The value of the config.")

    async def execute(self) -> None:
        await self.sent.send(self.value)
