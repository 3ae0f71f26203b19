"""The table of trigger rules."""

from __future__ import annotations

import pytest

from tradewind.flows.spec import TriggerRule
from tradewind.flows.trigger import decide

RULES = ["all_success", "none_failed", "any_success", "all_done"]


@pytest.mark.parametrize(
    ("values", "failed", "skipped", "absent", "running"),
    [
        (0, 0, 0, 0, "1111"),
        (2, 0, 0, 0, "1111"),
        (1, 1, 0, 0, "0011"),
        (1, 0, 1, 0, "0111"),
        (0, 1, 0, 0, "0001"),
        (0, 0, 1, 0, "0001"),
        (0, 1, 1, 0, "0001"),
        (1, 1, 1, 0, "0011"),
        (0, 0, 0, 1, "1101"),
        (1, 0, 0, 1, "1111"),
        (0, 0, 1, 1, "0001"),
    ],
)
def test_which_rules_let_a_node_run(values: int, failed: int, skipped: int, absent: int, running: str) -> None:
    said = "".join("1" if decide(rule, values, failed, skipped, absent) == "run" else "0" for rule in RULES)
    assert said == running
    assert [decide(TriggerRule(rule), values, failed, skipped, absent) for rule in RULES] == [
        "run" if flag == "1" else "skip" for flag in running
    ]
