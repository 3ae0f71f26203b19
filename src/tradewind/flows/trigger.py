"""Whether a node runs, once each of its inputs is a value or a tombstone. Pure; `lua/cycle.lua` decides the same."""

from __future__ import annotations

from typing import Literal

from tradewind.flows.spec import TriggerRule


def decide(rule: TriggerRule | str, values: int, failed: int, skipped: int, absent: int = 0) -> Literal["run", "skip"]:
    """`failed`, `skipped`: tombstones by kind. `absent`: tombstones into optional inputs, which use their default."""
    match rule:
        case TriggerRule.ALL_DONE:
            runs = True
        case TriggerRule.ANY_SUCCESS:
            runs = values > 0 or values + failed + skipped + absent == 0
        case TriggerRule.NONE_FAILED:
            runs = failed == 0 and (values > 0 or skipped == 0)
        case _:
            runs = failed == 0 and skipped == 0
    return "run" if runs else "skip"
