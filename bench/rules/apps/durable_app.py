"""durable_rules: all rules in one ruleset, which finds by itself those that read the changed point."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from clocked import run
from durable.engine import MessageNotHandledException
from durable.lang import get_host, m, post, ruleset, when_all

raised = 0


def note(_context: object) -> None:
    global raised
    raised += 1


def build(limit: float, points: int) -> Callable[[Sequence[float]], int]:
    with ruleset("bench"):
        for number in range(points):
            when_all((m.point == number) & (m.value > limit))(note)
    get_host()

    def judge(values: Sequence[float]) -> int:
        before = raised
        for number, value in enumerate(values):
            with contextlib.suppress(MessageNotHandledException):  # no rule is true
                post("bench", {"point": number, "value": value})
        return raised - before

    return judge


run(build)
