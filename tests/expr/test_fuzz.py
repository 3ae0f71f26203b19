"""Random texts, trees and inputs: a plain JSON value or Invalid, soon; and the same as Python where both can."""

from __future__ import annotations

import math
import re
import string
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.soak import repeats
from tradewind import codec
from tradewind.errors import Invalid
from tradewind.expr import FUNCTIONS, Expression, ExpressionError, compile_expression

COMMON = settings(deadline=None, max_examples=repeats(80), suppress_health_check=[HealthCheck.too_slow])
LONGEST_S = 0.05

NAMES = ["a", "b", "c", "d", "inputs['x-y']"]
SIGNS = "+ - * / // % ** < <= > >= == != ( ) [ ] { } , : . = := ; # ' \" \\ \n \x00"
OTHER = "and or not if else in is lambda for await yield None True 1 0 2.5 1e308 10**9 'x' f'{a}' __class__ 价格"
WORDS = [*NAMES, *FUNCTIONS, *SIGNS.split(" "), *OTHER.split(" ")]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["", "x", "12", "1.5", "y" * 5_000])
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["k", "x", "0"]), inner, max_size=3),
    max_leaves=12,
)
inputs = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "x-y"]), json_values, max_size=5)


def trees(leaves: st.SearchStrategy[str], *, functions: list[str]) -> st.SearchStrategy[str]:
    """Texts of well-formed expressions."""

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        binary = st.sampled_from(["+", "-", "*", "/", "//", "%", "**"])
        compare = st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "in", "not in"])
        pair = st.tuples(inner, inner)
        return st.one_of(
            st.tuples(inner, binary, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(inner, compare, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(inner, compare, inner, compare, inner).map(lambda t: f"({' '.join(t)})"),
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({' '.join(t)})"),
            st.tuples(st.sampled_from(["-", "+", "not "]), inner).map(lambda t: f"({t[0]}{t[1]})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
            st.tuples(st.sampled_from(functions), st.lists(inner, min_size=1, max_size=3)).map(
                lambda t: f"{t[0]}({', '.join(t[1])})"
            ),
            st.lists(inner, max_size=3).map(lambda t: f"[{', '.join(t)}]"),
            st.tuples(inner, inner).map(lambda t: f"{{'k': {t[0]}, str({t[1]}): 1}}"),
            pair.map(lambda t: f"({t[0]})[{t[1]}]"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]})[{t[1]}:{t[2]}]"),
        )

    return st.recursive(leaves, extend, max_leaves=12)


literals = st.sampled_from(["0", "1", "-1", "2", "3.5", "1e308", "10**9", "2**200", "'x'", "''", "None", "True", "[]"])
any_tree = trees(st.sampled_from(NAMES) | literals, functions=list(FUNCTIONS))


def is_plain(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, str)


def quick(made: Callable[[], Any]) -> Any:
    """What comes of it within `LONGEST_S`; once more if not, because a collection of garbage counts, too."""
    for is_last in (False, True):
        start = time.thread_time()
        try:
            found = made()
        except (Invalid, ExpressionError) as error:
            found = error
        if time.thread_time() - start < LONGEST_S:
            break
        assert not is_last, f"it took {time.thread_time() - start:.3f} s"
    if isinstance(found, Exception):
        raise found
    return found


def evaluate(text: str, values: dict[str, Any]) -> None:
    try:
        expression = quick(lambda: compile_expression(text))
    except Invalid as error:
        assert error.problems
        assert all(problem.hint and problem.path for problem in error.problems)
        return
    try:
        value = quick(lambda: expression(values))
    except ExpressionError as error:
        assert error.problems[0].path.startswith(("col ", "line "))
        assert error.code != "failed"
        return
    assert is_plain(value)
    assert type(value) is not int or abs(value) <= 2**256
    assert codec.decode(codec.encode(value)) == value


@COMMON
@given(st.text(max_size=60), inputs)
def test_any_text(text: str, values: dict[str, Any]) -> None:
    evaluate(text, values)


@COMMON
@given(st.text(alphabet=string.printable, max_size=40), inputs)
def test_any_printable_text(text: str, values: dict[str, Any]) -> None:
    evaluate(text, values)


@COMMON
@given(st.lists(st.sampled_from(WORDS), max_size=15).map(" ".join), inputs)
def test_any_words(text: str, values: dict[str, Any]) -> None:
    evaluate(text, values)


@settings(COMMON, max_examples=repeats(250))
@given(any_tree, inputs)
def test_any_tree(text: str, values: dict[str, Any]) -> None:
    evaluate(text, values)


@COMMON
@given(any_tree, inputs)
def test_an_evaluation_is_repeatable_and_changes_no_input(text: str, values: dict[str, Any]) -> None:
    def outcome() -> str:
        try:
            return repr(compile_expression(text)(values))
        except Invalid as error:
            return error.message

    before = repr(values)
    first = outcome()
    assert outcome() == first
    assert repr(values) == before


def numeric_tree() -> st.SearchStrategy[str]:
    """The part of the language that means the same in Python, number by number."""

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        binary = st.sampled_from(["+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or"])
        call = st.sampled_from(["min", "max"])
        one = st.sampled_from(["abs({})", "round({})", "round({}, 2)", "int({})", "float({})", "(-{})", "(not {})"])
        return st.one_of(
            st.tuples(inner, binary, inner).map(lambda t: f"({' '.join(t)})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} < {t[1]} <= {t[2]})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
            st.tuples(call, inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
            st.tuples(one, inner).map(lambda t: t[0].format(t[1])),
            inner.map(lambda t: f"({t} ** 2)"),
            st.tuples(inner, inner).map(lambda t: f"({t[0]} in [{t[1]}, 1, 2])"),
        )

    return st.recursive(st.sampled_from(["a", "b", "c", "0", "1", "2", "0.5", "7"]), extend, max_leaves=8)


PYTHON = {"__builtins__": {}, "abs": abs, "round": round, "int": int, "float": float, "min": min, "max": max}
numbers = st.booleans() | st.integers(-1000, 1000) | st.floats(-1000, 1000).map(lambda x: round(x, 3))


@settings(COMMON, max_examples=repeats(150))
@given(numeric_tree(), numbers, numbers, numbers)
def test_it_agrees_with_python(text: str, a: Any, b: Any, c: Any) -> None:
    """Twice: with inputs that are seen to be numbers, and with items, which take the guarded way."""
    values = {"a": a, "b": b, "c": c}
    python: Any
    try:
        python = eval(text, dict(PYTHON), dict(values))
    except ZeroDivisionError:
        python = ZeroDivisionError
    for expression, given_values in ((compile_expression(text), values), (of_items(text), {"v": values})):
        try:
            value = expression(given_values)
        except ExpressionError as error:
            if error.code == "division_by_zero":
                assert python is ZeroDivisionError
            else:
                assert error.code in ("too_large", "not_finite")  # of an intermediate value that Python lets be
            continue
        assert type(value) is type(python)
        assert value == python


def of_items(text: str) -> Expression:
    """The same with `v["a"]` for `a`: about an item nothing is known, so nothing is proven."""
    return compile_expression(re.sub(r"\b[abc]\b", lambda found: f"v['{found.group()}']", text))


WIDE_SIGNS = ["+", "-", "*", "/", "//", "%", "**", "<", "==", "and"]
one_number = st.sampled_from([name for name, function in FUNCTIONS.items() if function.least == 1 and name != "str"])
wide_tree = st.recursive(
    st.sampled_from(["a", "b", "c", "0", "1", "-2", "0.5", "7", "2**100", "1e200"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(WIDE_SIGNS), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(one_number, inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(st.sampled_from(["min", "max", "hypot", "atan2", "pow", "log", "round"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
        inner.map(lambda t: f"({t} ** 3)"),
        inner.map(lambda t: f"clamp({t}, -1e100, 2**70)"),
        inner.map(lambda t: f"({t} if is_finite({t}) else 0)"),
    ),
    max_leaves=6,
)
wide_numbers = st.booleans() | st.integers(-(2**300), 2**300) | st.integers(-(2**64), 2**64) | st.floats()


@settings(COMMON, max_examples=repeats(250))
@given(wide_tree, wide_numbers, wide_numbers, wide_numbers)
def test_what_is_proven_agrees_with_what_is_guarded(text: str, a: Any, b: Any, c: Any) -> None:
    def outcome(expression: Expression, values: dict[str, Any]) -> Any:
        try:
            return repr(expression(values))
        except ExpressionError as error:
            return error.code

    values = {"a": a, "b": b, "c": c}
    assert outcome(compile_expression(text), values) == outcome(of_items(text), {"v": values})
