"""Bounds of text and of work. Times are of the processor, so that a busy machine does not matter."""

from __future__ import annotations

import inspect
import random
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tradewind.errors import Invalid
from tradewind.expr import ExpressionError, Limits, compile_expression


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    start = time.thread_time()
    yield
    assert time.thread_time() - start < seconds


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1" + " " * 4_000, "too_long"),
        ("a" * 1_000_000, "too_long"),
        ("-" * 3_999 + "1", "too_deep"),
        ("not " * 990 + "1", "too_deep"),
        ("(" * 3_999, "syntax"),
        ("(" * 190 + "1" + ")" * 190, None),
        ("[" * 190 + "]" * 190, "too_deep"),
        ("a" + "[0]" * 1_300, "too_deep"),
        ("a" + ".b" * 1_900, "too_deep"),
        ("a" + "()" * 1_900, "too_deep"),
        ("lambda:" * 500 + "1", "too_deep"),
        ("1 if 1 else " * 300 + "1", "too_deep"),
        ("2**" * 1_300 + "2", "too_deep"),
        ("1" + "+1" * 1_900, "too_deep"),
        ("-" * 49 + "1", None),
        ("-" * 50 + "1", "too_deep"),
        ("[" + "1," * 1_998 + "]", "too_many_parts"),
        ("[" + "1," * 999 + "]", None),
        ("[" + "1," * 1_000 + "]", "too_many_parts"),
        ("a<" * 1_900 + "a", "too_many_parts"),
        ("'" + "x" * 1_000 + "'", None),
        ("'" + "x" * 1_001 + "'", "bad_literal"),
        ("9" * 3_999, "bad_literal"),
        ("0x" + "f" * 3_990, "bad_literal"),
        (str(2**256), None),
        (str(2**256 + 1), "bad_literal"),
        ("f'{" * 1_000, "syntax"),
        ("{" * 3_999, "syntax"),
        ("a.b+" * 900 + "a", "too_deep"),
    ],
)
def test_text_is_bounded(text: str, code: str | None) -> None:
    with at_most(3.0):
        if code is None:
            compile_expression(text)
            return
        with pytest.raises(Invalid) as caught:
            compile_expression(text)
    assert caught.value.problems[0].code == code
    assert len(caught.value.message) < 1_000


def test_many_problems_are_cut() -> None:
    with pytest.raises(Invalid) as caught:
        compile_expression("[" + "a.b," * 300 + "]")
    assert len(caught.value.problems) == 50
    assert len(caught.value.message) < 1_000


def test_limits_can_be_set() -> None:
    with pytest.raises(Invalid):
        compile_expression("1 + 1", limits=Limits(text=4))
    with pytest.raises(Invalid):
        compile_expression("1 + 1", limits=Limits(nodes=2))
    with pytest.raises(Invalid):
        compile_expression("1 + 1", limits=Limits(depth=1))
    with pytest.raises(ExpressionError):
        compile_expression("'a' * 5", limits=Limits(chars=4))({})
    with pytest.raises(ExpressionError):
        compile_expression("sum(x)", limits=Limits(items=2))({"x": [1, 2, 3]})
    with pytest.raises(ExpressionError):
        compile_expression("x", limits=Limits(result_items=2))({"x": [[1], 2]})
    assert compile_expression("sum(x)", limits=Limits(items=20_000))({"x": [1] * 20_000}) == 20_000


HUGE: list[tuple[str, dict[str, Any]]] = [
    ("9**9**9", {}),
    ("9**9**9 > 1", {}),
    ("a**a**a", {"a": 9}),
    ("2**a", {"a": 10**70}),
    ("2**257", {}),
    ("pow(10, a)", {"a": 10**9}),
    ("a**4", {"a": 10**70}),
    ("a*a*a*a*a*a", {"a": 10**60}),
    ("a*a", {"a": 10**100_000}),
    ("2**256 + 1", {}),
    ("-(2**256) - 1", {}),
    ("'a'*10**9", {}),
    ("10**9*'a'", {}),
    ("'a'*a", {"a": 10**5_000}),
    ("[0]*10**9", {}),
    ("[[0]*100]*100*100", {}),
    ("x + x", {"x": "a" * 6_000}),
    ("x + x", {"x": [1] * 6_000}),
    ("x[:]", {"x": [1] * 100_000}),
    ("sorted(x)", {"x": [1] * 100_000}),
    ("sum(x)", {"x": [1] * 100_000}),
    ("1 in x", {"x": [0] * 100_000}),
    ("x == y", {"x": [[0]] * 50_000, "y": [[0]] * 50_000}),
    ("upper(x)", {"x": "ß" * 6_000}),
    ("int('9'*5000)", {}),
    ("int(x)", {"x": "9" * 100}),
    ("round(5, -10**9)", {}),
    ("round(x, -100) * 0 + round(x, y)", {"x": 7, "y": -(10**18)}),
    ("x", {"x": [[0]] * 50_000}),
]


@pytest.mark.parametrize(("text", "values"), HUGE, ids=[text for text, _ in HUGE])
def test_what_would_be_huge_is_refused_without_making_it(text: str, values: dict[str, Any]) -> None:
    expression = compile_expression(text)
    tracemalloc.start()
    try:
        with pytest.raises(ExpressionError) as caught, at_most(0.2):  # tracing makes it slow
            expression(values)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code in ("too_large", "out_of_range")
    assert peak < 4_000_000


NUMBERS = [random.Random(1).random() for _ in range(10_000)]


@pytest.mark.parametrize("count", [1, 19, 60, 140])
@pytest.mark.parametrize(
    "call", ["median(x)", "stdev(x)", "sorted(x) == y", "max(x)", "x[::-1] != y", "nested == other"]
)
def test_the_most_expensive_evaluations_stay_short(call: str, count: int) -> None:
    text = "[" + ",".join([call] * count) + "]"
    places = {"sorted(x) == y": 2, "x[::-1] != y": 2}.get(call, 1) * count
    allowed = min(10_000, 200_000 // places)
    values = {
        "x": NUMBERS[: allowed if "y" not in call else allowed // 4],
        "y": NUMBERS[: allowed // 4],
        "nested": [[i] for i in range(allowed // 8)],
        "other": [[i] for i in range(allowed // 8)],
    }
    expression = compile_expression(text)
    with at_most(0.1):
        assert len(expression(values)) == count


def test_deep_and_cyclic_inputs_are_no_trouble() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    also_deep: list[Any] = []
    for _ in range(2_000):
        also_deep = [also_deep]
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    inputs = {"a": deep, "b": [also_deep], "c": cyclic, "d": [also_deep, 0]}
    for text in ("a", "a == b", "b == d", "b", "c", "c == c", "c == a", "a in [b]", "[c, a]", "sorted(a)", "str(a)"):
        with at_most(0.1):
            try:
                compile_expression(text)(inputs)
            except ExpressionError:
                continue


def test_a_caller_with_little_stack_left_gets_a_value_or_invalid() -> None:
    text = "-" * 40 + "(a + 987)"

    def evaluate(frames: int) -> Any:
        if frames > 0:
            return evaluate(frames - 1)
        try:
            return compile_expression(text)({"a": 1})
        except Invalid as error:
            return error.problems[0].code

    used = len(inspect.stack())
    outcomes = [evaluate(sys.getrecursionlimit() - used - spare) for spare in range(60, 400, 10)]
    assert outcomes[0] == "too_deep"
    assert outcomes[-1] == 988
    assert set(outcomes) == {"too_deep", 988}
