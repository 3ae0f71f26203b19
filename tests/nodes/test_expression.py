"""`constant` and `expression`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.host import outputs, problems
from tradewind.flows.node_errors import NodeValidationException
from tradewind.nodes.formula import formula
from tradewind.tasks.running import Abort


@pytest.mark.parametrize("value", [0, None, "text", [1, {"a": None}], {"close": 1.5}, True])
async def test_a_constant_is_sent_as_it_is(value: Any) -> None:
    assert await outputs("constant", {"value": value}) == {"value": value}


async def test_a_constant_needs_its_value() -> None:
    with pytest.raises(NodeValidationException, match="value"):
        await outputs("constant", {})


@pytest.mark.parametrize(
    ("text", "inputs", "result"),
    [
        ("a * 2 + b > 10", {"a": 4, "b": 3}, True),
        ("(ask - bid) / 2", {"ask": 3.0, "bid": 1.0}, 1.0),
        ("price['close'] if price['close'] > 1 else 0", {"price": {"close": 7}}, 7),
        ("inputs['a-b'] + 1", {"a-b": 1}, 2),
        ("max(closes[-3:])", {"closes": [9, 1, 2, 3]}, 3),
    ],
)
async def test_an_expression_reads_its_inputs(text: str, inputs: dict[str, Any], result: Any) -> None:
    assert await outputs("expression", {"expression": text}, inputs) == {"result": result}


async def test_an_expression_is_compiled_once() -> None:
    formula.cache_clear()
    for a in range(5):
        await outputs("expression", {"expression": "a + 41"}, {"a": a})
    assert formula.cache_info().misses == 1
    assert formula.cache_info().hits == 4


@pytest.mark.parametrize(("text", "inputs"), [("a / b", {"a": 1, "b": 0}), ("a + b", {"a": 1}), ("a + 1", {"a": "x"})])
async def test_an_expression_without_a_value_fails_for_good(text: str, inputs: dict[str, Any]) -> None:
    with pytest.raises(NodeValidationException, match="node 'n'") as caught:
        await outputs("expression", {"expression": text}, inputs)
    assert isinstance(caught.value, Abort)


@pytest.mark.parametrize("text", ["a +", "a.b", "__import__('os')", "open('x')", "[x for x in a]"])
def test_a_bad_expression_is_a_problem_of_the_config(text: str) -> None:
    found = problems("expression", {"expression": text}, ["a"])
    assert found
    assert all(problem.path.startswith("expression") and problem.hint for problem in found)


def test_a_name_that_nothing_feeds_is_a_problem() -> None:
    found = problems("expression", {"expression": "ask - bid"}, ["ask"])
    assert [(p.code, p.path) for p in found] == [("unknown_name", "expression")]
    assert "'bid'" in found[0].hint and "ask" in found[0].hint
    assert not problems("expression", {"expression": "ask - bid"}, ["ask", "bid"])
    assert not problems("expression", {"expression": "inputs['a-b'] + pi"}, ["a-b"])
