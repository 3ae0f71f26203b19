"""`condition`, `switch`, `delay`: where a flow goes on, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from tradewind.errors import Problem
from tradewind.flows.call import Suspend
from tradewind.flows.node import Node, Output, node
from tradewind.nodes.formula import check, evaluate
from tradewind.nodes.template import as_text

ExpressionText = Annotated[str, Meta(min_length=1, max_length=4000)]
# `value` is not declared as an input: it would have to be optional, and an optional input hides that its source failed.
HandleName = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
MAX_DELAY_S = 30 * 86_400


@node("condition", category="control", open_inputs=True, inline=True)
class Condition(Node):
    """Passes its input `value`, or else the outcome, on at `true` or at `false`; the other way is skipped.

    Can stop the rest instead.
    """

    expression: Annotated[ExpressionText, Meta(description="Over the inputs, for example: price < threshold")]
    stop: Annotated[
        Literal["never", "on_false", "on_true"] | bool,
        Meta(description="When to stop the execution of the rest; true means on_false."),
    ] = "never"
    scope: Annotated[
        Literal["component", "flow"], Meta(description="What a stop ends: this component, or the whole cycle.")
    ] = "component"
    true: Output[Any] = Output(description="Sent when the expression holds.")
    false: Output[Any] = Output(description="Sent when it does not.")

    async def execute(self) -> None:
        values = self.inputs
        holds = bool(evaluate(self.expression, values, self.node_id))
        chosen = self.true if holds else self.false
        await chosen.send(values.get("value", holds))
        stop = {True: "on_false", False: "never"}[self.stop] if isinstance(self.stop, bool) else self.stop
        if stop == ("on_true" if holds else "on_false"):
            reason = f"Condition {'met' if holds else 'not met'}: {self.expression}"
            await self.send_stop_execution_signal(reason, self.scope)

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        return check(config.get("expression"), inputs, "expression")


class Case(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One way out: taken when the switch's expression equals a value, or when an expression of its own holds."""

    handle: Annotated[HandleName, Meta(description="The output to go on at.")]
    equals: Annotated[Any, Meta(description="Taken when the result is this value.")] = UNSET
    when: Annotated[str, Meta(max_length=4000, description="Taken when this holds; may use `result`.")] = ""


@node("switch", category="control", open_inputs=True, open_outputs=True, inline=True)
class Switch(Node):
    """Passes its input `value`, or else the result, on at the first case that fits; the other ways are skipped."""

    cases: Annotated[
        list[Case] | dict[str, HandleName],
        Meta(description="A list of {equals or when, handle}, or a mapping of values to handles."),
    ]
    expression: Annotated[ExpressionText, Meta(description="What the cases are compared with.")] = "value"
    default: Annotated[
        str, Meta(pattern="^[A-Za-z0-9_-]{0,64}$", description="The output when no case fits; none if empty.")
    ] = ""

    async def execute(self) -> None:
        values = self.inputs
        result = evaluate(self.expression, values, self.node_id)
        handle = self._choose(result, {**values, "result": result})
        if handle:
            await self.send_signal(handle, values.get("value", result))
        else:
            await self.persist_log(f"No case fits {as_text(result)[:200]}, and there is no default", "WARNING")

    def _choose(self, result: Any, values: dict[str, Any]) -> str:
        if isinstance(self.cases, dict):
            return self.cases.get(as_text(result), self.default)
        for case in self.cases:
            if evaluate(case.when, values, self.node_id) if case.when else is_same(case.equals, result):
                return case.handle
        return self.default

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        problems = check(config.get("expression", "value"), inputs, "expression")
        cases = config.get("cases")
        for index, case in enumerate(cases if isinstance(cases, list) else ()):
            if isinstance(case, dict):
                problems += _case_problems(case, {*inputs, "result"}, f"cases[{index}]")
        return problems


def _case_problems(case: dict[str, Any], names: set[str], path: str) -> Iterator[Problem]:
    if bool(case.get("when")) == ("equals" in case):
        yield Problem("bad_case", path, "give either `equals` or `when`")
    if case.get("when"):
        yield from check(case["when"], names, f"{path}.when")


def is_same(wanted: Any, value: Any) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    return bool(wanted == value)


@node("delay", category="control", open_inputs=True, open_outputs=True)
class Delay(Node):
    """Waits, without holding a place at a worker, and then passes each input on at the output of the same name."""

    seconds: Annotated[float, Meta(ge=0, le=MAX_DELAY_S, description="How long to wait, in seconds.")]
    value: Output[Any] = Output(description="What came in at `value`, later; null if nothing is wired to the node.")

    async def execute(self) -> None:
        if self.state is None and self.seconds > 0:
            raise Suspend(self.seconds, {"waited": True})
        for handle, value in (self.inputs or {"value": None}).items():
            await self.send_signal(handle, value)
