"""`log`: a line in the flow's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from tradewind.errors import Invalid, Problem
from tradewind.flows.node import Node, Output, node
from tradewind.flows.node_errors import NodeValidationException
from tradewind.nodes import template

MAX_CHARACTERS = 10_000


@node("log", category="io", open_inputs=True, inline=True)
class LogLine(Node):
    """Writes a line to the flow's log and passes its input `value` on, if there is one."""

    message: Annotated[
        str, Meta(max_length=MAX_CHARACTERS, description="`{name}` stands for an input, `{name.key}` for a part of it.")
    ]
    level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], Meta(description="How serious it is.")
    ] = "INFO"
    value: Output[Any] = Output(description="What came in at `value`, else null.")

    async def execute(self) -> None:
        values = self.inputs
        try:
            text = template.fill(self.message, values)
        except Invalid as error:
            raise NodeValidationException(
                f"node {self.node_id!r}: {error.message}", ["message"], self.node_id, hint=error.hint
            ) from error
        await self.persist_log(text[:MAX_CHARACTERS], self.level)
        await self.value.send(values.get("value"))

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        return template.check(config.get("message"), inputs, "message")
