"""What a back-test found: the edges, and what they come to. Frozen."""

from __future__ import annotations

from typing import Any

import msgspec

from tradewind.clock import iso
from tradewind.rules.history_record import Checked
from tradewind.rules.verdict import Verdict


class Edge(msgspec.Struct, frozen=True, gc=False):
    """A bare edge. `batch`: the last one judged before it or with it."""

    is_rise: bool
    at_ms: int
    cause: str
    batch: int = -1


class BacktestEvent(msgspec.Struct, frozen=True):
    """`edge` rise or fall; `cause` sample, timer, startup or bad, as in a Verdict; `source`, `field`, `value`: what
    triggered it. `conditions` as they stood then."""

    edge: str
    at_ms: int
    cause: str
    source: str
    field: str
    value: float | str | None
    conditions: dict[str, Checked]

    @classmethod
    def of(cls, verdict: Verdict) -> BacktestEvent:
        found = verdict.conditions_result.items()
        conditions = {name: Checked.of(each) for name, each in found}
        return cls(verdict.edge, verdict.at_ms, verdict.cause, verdict.source, verdict.field, verdict.value, conditions)


class BacktestReport(msgspec.Struct, frozen=True):
    """What a rule would have done. `from_ms`: the first sample; `until_ms`: how far the time went. `alarms`: how many
    there would have been, `raised`: how often, repeats of an open one included. `actions`: type → how often each would
    have run, alarms left out. `events`: the first ones, `is_cut`: there were more (`rises`, `falls`). `silent`: sources
    without any sample, always unknown. `is_vectorised`: how it was done. `error`: why a condition had no value."""

    rule_id: str
    from_ms: int
    until_ms: int
    samples: int
    rises: int
    falls: int
    active_ms: int
    is_active: bool
    alarms: int
    raised: int
    actions: dict[str, int]
    events: list[BacktestEvent]
    is_cut: bool
    silent: list[str]
    is_vectorised: bool
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data, with times in ISO."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("from", "until"):
            found[name] = iso(found.pop(f"{name}_ms")) if self.samples else None
        for event in found["events"]:
            event["at"] = iso(event.pop("at_ms"))
        return found
