"""rule-engine: a compiled expression for each rule, asked for the changed point."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import rule_engine
from clocked import run


def build(limit: float, points: int) -> Callable[[Sequence[float]], int]:
    types = {"value": rule_engine.DataType.FLOAT}
    context = rule_engine.Context(type_resolver=rule_engine.type_resolver_from_dict(types))
    rules = [rule_engine.Rule(f"value > {limit}", context=context) for _ in range(points)]

    def judge(values: Sequence[float]) -> int:
        return sum(rule.matches({"value": value}) for rule, value in zip(rules, values, strict=True))

    return judge


run(build)
