"""business-rules: conditions as data, asked for the changed point, with an action that counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from business_rules.actions import BaseActions, rule_action
from business_rules.engine import run as run_rule
from business_rules.variables import BaseVariables, numeric_rule_variable
from clocked import run


class Point(BaseVariables):
    def __init__(self, number: float) -> None:
        self.number = number

    @numeric_rule_variable
    def value(self) -> float:
        return self.number


class Alarms(BaseActions):
    raised = 0

    @rule_action(params={})
    def alarm(self) -> None:
        self.raised += 1


def build(limit: float, points: int) -> Callable[[Sequence[float]], int]:
    condition = {"name": "value", "operator": "greater_than", "value": limit}
    rules = [{"conditions": {"all": [dict(condition)]}, "actions": [{"name": "alarm", "params": {}}]}] * points
    alarms = Alarms()

    def judge(values: Sequence[float]) -> int:
        before = alarms.raised
        for rule, value in zip(rules, values, strict=True):
            run_rule(rule, Point(value), alarms)
        return alarms.raised - before

    return judge


run(build)
