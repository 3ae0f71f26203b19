"""`approval`: a person decides whether a flow goes on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tradewind.errors import Problem
from tradewind.flows.call import Suspend
from tradewind.flows.node import Input, Node, Output, node
from tradewind.flows.node_errors import NodeTimeoutException, NodeValidationException


class Decision(msgspec.Struct, forbid_unknown_fields=True):
    """What an operator sends to the handle `decision`; a bare true or false does as well."""

    approved: bool
    note: Annotated[str, Meta(max_length=2000)] = ""
    by: Annotated[str, Meta(max_length=200)] = ""


@node("approval", category="human", open_inputs=True)
class Approval(Node):
    """Waits, without holding a place at a worker, for a person to approve or reject what came in at `request`.

    The decision is a signal to the handle `decision`: true, false, or {approved, note, by}.
    """

    message: Annotated[str, Meta(max_length=2000, description="What the person is asked.")] = "Go on?"
    approvers: Annotated[
        tuple[str, ...], Meta(description="Who may decide, as the decision's `by`; anyone if empty.")
    ] = ()
    timeout: Annotated[float, Meta(gt=0, le=30 * 86_400, description="How long to wait, in seconds.")] = 86_400.0
    on_timeout: Annotated[
        Literal["fail", "approve", "reject"], Meta(description="What counts as decided when nobody did in time.")
    ] = "fail"
    decision: Input[bool | dict[str, Any] | None] = Input(
        default=None, external=True, description="true, false, or {approved, note, by}"
    )
    approved: Output[dict[str, Any]] = Output(description="{request, approved, note, by} after a yes.")
    rejected: Output[dict[str, Any]] = Output(description="{request, approved, note, by} after a no.")

    @classmethod
    def check_input(cls, config: dict[str, Any], handle: str, value: Any) -> list[Problem]:
        if handle != "decision":
            return super().check_input(config, handle, value)
        try:
            decision = _read(value)
        except msgspec.ValidationError as error:
            return [Problem("bad_decision", "value", f"{error}: send true, false, or {{approved, note, by}}")]
        approvers = config.get("approvers") or ()
        if approvers and decision.by not in approvers:
            return [
                Problem("not_an_approver", "value.by", f"{_who(decision)} may not decide: {', '.join(approvers)} may")
            ]
        return []

    async def execute(self) -> None:
        decision = self._decision()
        word = "Approved" if decision.approved else "Rejected"
        by = f" by {decision.by}" if decision.by else ""
        note = f": {decision.note}" if decision.note else ""
        await self.persist_log(f"{word}{by}{note}", metadata={"question": self.message})
        chosen = self.approved if decision.approved else self.rejected
        await chosen.send({"request": self.inputs.get("request"), **msgspec.to_builtins(decision)})

    def _decision(self) -> Decision:
        given = self.decision.value
        if given is None:
            return self._undecided()
        try:
            decision = _read(given)
        except msgspec.ValidationError as error:
            raise NodeValidationException(
                f"node {self.node_id!r} cannot read the decision: {error}", ["decision"], self.node_id,
                hint="send true, false, or {approved, note, by}",
            ) from error  # fmt: skip
        if self.approvers and decision.by not in self.approvers:
            raise NodeValidationException(
                f"node {self.node_id!r}: {_who(decision)} may not decide", ["decision"],
                self.node_id, hint=f"one of {', '.join(self.approvers)}",
            )  # fmt: skip
        return decision

    def _undecided(self) -> Decision:
        if (
            self.state is None and not self.decision.is_connected
        ):  # else it waited long enough, or no decision will come
            self.persist_log(f"Waits for a decision: {self.message}", metadata={"request": self.inputs.get("request")})
            raise Suspend(self.timeout, {"asked": True})
        if self.on_timeout == "fail":
            raise NodeTimeoutException(
                f"nobody decided about node {self.node_id!r} within {self.timeout:g} s", self.timeout, self.node_id
            )
        return Decision(self.on_timeout == "approve", f"nobody decided within {self.timeout:g} s")


def _read(given: Any) -> Decision:
    return Decision(given) if isinstance(given, bool) else msgspec.convert(given, Decision)


def _who(decision: Decision) -> str:
    return decision.by or "a nameless person"
