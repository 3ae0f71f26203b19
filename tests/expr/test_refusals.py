"""What is not in the language, and what has no value."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from typing import Any

import pytest

from tradewind.errors import Invalid
from tradewind.expr import ExpressionError, compile_expression

REFUSED: list[tuple[str, str, str]] = [
    ("a.b", "not_allowed", "col 1"),
    ("().__class__.__mro__[1]", "not_allowed", "col 1"),
    ("''.format(a)", "unknown_function", "col 1"),
    ("1 + price.close", "not_allowed", "col 5"),
    ("__import__('os')", "unknown_function", "col 1"),
    ("eval('1')", "unknown_function", "col 1"),
    ("a(1)", "unknown_function", "col 1"),
    ("min(a)(b)", "unknown_function", "col 1"),
    ("[min][0](a)", "unknown_function", "col 1"),
    ("sum(start=1)", "not_allowed", "col 11"),
    ("max(*a)", "not_allowed", "col 5"),
    ("max(1, **a)", "not_allowed", "col 10"),
    ("*a", "not_allowed", "col 1"),
    ("[1, *a]", "not_allowed", "col 5"),
    ("{**a}", "not_allowed", "col 4"),
    ("{1, 2}", "not_allowed", "col 1"),
    ("lambda: 1", "not_allowed", "col 1"),
    ("[x for x in a]", "not_allowed", "col 1"),
    ("x for x in a", "not_allowed", "col 1"),
    ("sum(x for x in a)", "not_allowed", "col 4"),
    ("{x: 1 for x in a}", "not_allowed", "col 1"),
    ("{x for x in a}", "not_allowed", "col 1"),
    ("f'{a}'", "not_allowed", "col 1"),
    ("(a := 1)", "not_allowed", "col 2"),
    ("a := 1", "not_allowed", "col 1"),
    ("await a", "not_allowed", "col 1"),
    ("(yield)", "not_allowed", "col 2"),
    ("__builtins__", "not_allowed", "col 1"),
    ("__a", "not_allowed", "col 1"),
    ("a is b", "not_allowed", "col 1"),
    ("1 << 2", "not_allowed", "col 1"),
    ("a | b", "not_allowed", "col 1"),
    ("a @ b", "not_allowed", "col 1"),
    ("~a", "not_allowed", "col 1"),
    ("inputs", "not_allowed", "col 1"),
    ("inputs[a]", "not_allowed", "col 1"),
    ("inputs[0]", "not_allowed", "col 1"),
    ("inputs['a':]", "not_allowed", "col 1"),
    ("a[1, 2]", "not_allowed", "col 3"),
    ("a[1:2, 3]", "not_allowed", "col 3"),
    ("a[*b]", "not_allowed", "col 3"),
    ("1j", "bad_literal", "col 1"),
    ("b'x'", "bad_literal", "col 1"),
    ("...", "bad_literal", "col 1"),
    ("1e999", "bad_literal", "col 1"),
    ("'\\ud800'", "bad_literal", "col 1"),
    ("{1: 2}", "bad_literal", "col 2"),
    ("sqrt()", "wrong_arguments", "col 1"),
    ("clamp(1, 2)", "wrong_arguments", "col 1"),
    ("min()", "wrong_arguments", "col 1"),
    ("coalesce(1)", "wrong_arguments", "col 1"),
    ("", "empty", "col 1"),
    (" \n ", "empty", "col 1"),
    ("# nothing", "empty", "col 1"),
    ("a b", "syntax", "col 1"),
    ("a = 1", "syntax", "col 1"),
    ("a; b", "syntax", "col 2"),
    ("import os", "syntax", "col 1"),
    ("a +", "syntax", "col 4"),
    ("(a", "syntax", "col 3"),
    ("a)", "syntax", "col 2"),
    ("a) + (b", "syntax", "col 2"),
    ("a] + [b", "syntax", "col 1"),
    ("a, b", "syntax", "col 4"),
    ("a,", "syntax", "col 1"),
    ("(a), # c", "syntax", "col 2"),
    ("'abc", "syntax", "col 1"),
    ("a\x00", "syntax", "col 1"),
    ("a\ud800", "syntax", "col 1"),
    ("1 +\n  价格.x", "not_allowed", "line 2 col 3"),
    ("'价格' + x.y", "not_allowed", "col 8"),
    ("a and\r\n b.c", "not_allowed", "line 2 col 2"),
]


@pytest.mark.parametrize(("text", "code", "position"), REFUSED)
def test_it_is_refused_with_code_position_and_hint(text: str, code: str, position: str) -> None:
    with pytest.raises(Invalid) as caught:
        compile_expression(text)
    assert caught.value.code == "bad_expression"
    assert not isinstance(caught.value, ExpressionError)
    assert (caught.value.problems[0].code, caught.value.problems[0].path) == (code, position)
    assert all(problem.hint for problem in caught.value.problems)
    assert position in caught.value.message


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        compile_expression("a.b + foo(c.d, lambda: 1) * __x + q - sqrt(1, 2) + 1e999", names=["a", "c"])
    assert [(problem.code, problem.path) for problem in caught.value.problems] == [
        ("not_allowed", "col 1"),
        ("not_allowed", "col 11"),
        ("not_allowed", "col 16"),
        ("unknown_function", "col 7"),
        ("not_allowed", "col 29"),
        ("unknown_name", "col 35"),
        ("wrong_arguments", "col 39"),
        ("bad_literal", "col 52"),
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("prise > 1", "did you mean price?"),
        ("price > true", "write True"),
        ("price == null", "write None"),
        ("price > sqrt", "call the function: sqrt(…)"),
        ("zzz", "there are: a-b, price"),
        ("inputs['a-c']", "did you mean a-b?"),
        ("price.close", 'write x["close"]'),
        ("averge(price)", "there is no function averge"),
        ("sqr(price)", "did you mean sqrt?"),
    ],
)
def test_the_hint_helps(text: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        compile_expression(text, names=["price", "a-b"])
    assert hint in caught.value.problems[0].hint


@pytest.mark.parametrize("text", [None, 3, b"a", ["a"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(Invalid) as caught:
        compile_expression(text)
    assert caught.value.problems[0].code == "not_text"


def test_compiling_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_expression("1if a else 2")({"a": True}) == 1
        assert compile_expression("'\\d'")({}) == "\\d"
        with pytest.raises(ExpressionError):
            compile_expression("[1]['a']")({})


INPUTS: dict[str, Any] = {
    "a": 1,
    "zero": 0,
    "word": "x",
    "d": {"k": 1},
    "l": [1, 2],
    "mixed": [1, "x"],
    "nothing": None,
    "nan": math.nan,
    "inf": math.inf,
    "bad": [1.0, math.nan],
    "odd": {1: 2},
    "thing": object(),
    "pair": (1, 2),
    "huge": 10**5000,
    "x": "k2",
}

FAILING: list[tuple[str, str, str]] = [
    ("a + missing", "missing_input", "col 5"),
    ("missing", "missing_input", "col 1"),
    ("1 + inputs['a-b']", "missing_input", "col 5"),
    ("a / zero", "division_by_zero", "col 5"),
    ("a // zero", "division_by_zero", "col 6"),
    ("a % 0", "division_by_zero", "col 5"),
    ("a % 0.0 + 1", "division_by_zero", "col 5"),
    ("zero ** -1", "division_by_zero", "col 9"),
    ("log(2, 1)", "division_by_zero", "col 1"),
    ("a + word", "wrong_type", "col 5"),
    ("a + a + word + a", "wrong_type", "col 9"),
    ("word * word", "wrong_type", "col 8"),
    ("word * 1.5", "wrong_type", "col 8"),
    ("word % a", "wrong_type", "col 8"),
    ("'%9999999d' % 1", "wrong_type", "col 15"),
    ("nothing - a", "wrong_type", "col 11"),
    ("-word", "wrong_type", "col 1"),
    ("a < word", "wrong_type", "col 5"),
    ("l < l", "wrong_type", "col 5"),
    ("0 < a < nothing", "wrong_type", "col 9"),
    ("a in word", "wrong_type", "col 6"),
    ("a in a", "wrong_type", "col 6"),
    ("a[0]", "wrong_type", "col 3"),
    ("l['k']", "wrong_type", "col 3"),
    ("l[0.5]", "wrong_type", "col 3"),
    ("d[l]", "wrong_type", "col 3"),
    ("d[0:1]", "wrong_type", "col 1"),
    ("l['a':]", "wrong_type", "col 1"),
    ("sqrt(word)", "wrong_type", "col 1"),
    ("sum(a)", "wrong_type", "col 1"),
    ("sum(mixed)", "wrong_type", "col 1"),
    ("avg(mixed)", "wrong_type", "col 1"),
    ("max(mixed)", "wrong_type", "col 1"),
    ("sorted([l])", "wrong_type", "col 1"),
    ("len(a)", "wrong_type", "col 1"),
    ("str(l)", "wrong_type", "col 1"),
    ("int(nothing)", "wrong_type", "col 1"),
    ("lower(a)", "wrong_type", "col 1"),
    ("get(a, 0)", "wrong_type", "col 1"),
    ("clamp(word, 0, 1)", "wrong_type", "col 1"),
    ("d['no']", "no_such_item", "col 3"),
    ("d[x]", "no_such_item", "col 3"),
    ("l[2]", "no_such_item", "col 3"),
    ("''[0]", "no_such_item", "col 4"),
    ("nan", "not_finite", "col 1"),
    ("-inf", "not_finite", "col 1"),
    ("nan > 1", "not_finite", "col 7"),
    ("1 == nan", "not_finite", "col 6"),
    ("a / inf", "not_finite", "col 5"),
    ("inf ** 0", "not_finite", "col 8"),
    ("nan in l", "not_finite", "col 8"),
    ("not nan", "not_finite", "col 5"),
    ("nan and 1", "not_finite", "col 1"),
    ("1 if nan else 2", "not_finite", "col 6"),
    ("max(bad)", "not_finite", "col 1"),
    ("sum(bad)", "not_finite", "col 1"),
    ("median(bad)", "not_finite", "col 1"),
    ("any([0, nan])", "not_finite", "col 1"),
    ("bad", "not_finite", "col 1"),
    ("[d, {'k': [inf]}]", "not_finite", "col 1"),
    ("1e308 * 10", "not_finite", "col 9"),
    ("float('nan')", "not_finite", "col 1"),
    ("float('1e999')", "not_finite", "col 1"),
    ("sqrt(-a)", "out_of_range", "col 1"),
    ("log(zero)", "out_of_range", "col 1"),
    ("acos(2)", "out_of_range", "col 1"),
    ("(-a) ** 0.5", "out_of_range", "col 9"),
    ("int('x')", "out_of_range", "col 1"),
    ("l[::0]", "out_of_range", "col 1"),
    ("clamp(a, 3, 2)", "out_of_range", "col 1"),
    ("round(a, 101)", "out_of_range", "col 1"),
    ("avg([])", "too_few", "col 1"),
    ("min([])", "too_few", "col 1"),
    ("stdev([1])", "too_few", "col 1"),
    ("exp(1000)", "too_large", "col 1"),
    ("huge", "too_large", "col 1"),
    ("huge + 1", "too_large", "col 8"),
    ("huge < 1", "too_large", "col 8"),
    ("huge * huge", "too_large", "col 8"),
    ("str(huge)", "too_large", "col 1"),
    ("int(1e300)", "too_large", "col 1"),
    ("odd", "not_json", "col 1"),
    ("thing", "not_json", "col 1"),
    ("pair", "not_json", "col 1"),
    ("[l, [thing]]", "not_json", "col 1"),
    ("{word: 1, a: 2}", "not_json", "col 1"),
    ("thing + 1", "wrong_type", "col 9"),
    ("thing[0]", "wrong_type", "col 7"),
    ("a +\n  a / zero", "division_by_zero", "line 2 col 7"),
    ("'价格' + a", "wrong_type", "col 8"),
]


@pytest.mark.parametrize(("text", "code", "position"), FAILING)
def test_an_evaluation_without_a_value_says_why_and_where(text: str, code: str, position: str) -> None:
    expression = compile_expression(text)
    with pytest.raises(ExpressionError) as caught:
        expression(INPUTS)
    error = caught.value
    assert (error.code, error.position, error.expression) == (code, position, text)
    assert (error.problems[0].code, error.problems[0].path) == (code, position)
    assert error.reason in error.message
    assert position in error.message
    assert error.hint


@pytest.mark.parametrize("values", [None, 3, [1], "a"])
def test_values_that_are_no_mapping_are_refused(values: Any) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression("a + 1")(values)
    assert caught.value.code == "wrong_type"


class Bomb:
    """Raises whatever is done with it."""

    def __getitem__(self, key: object) -> Any:
        raise LookupError("no")

    def __bool__(self) -> bool:
        raise ArithmeticError("no")

    def __lt__(self, other: object) -> bool:
        raise OSError("no")

    __gt__ = __lt__

    def __eq__(self, other: object) -> bool:
        raise KeyError(other)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("text", ["x[0]", "not x", "x and 1", "x < 1", "x + 1", "x == 1", "sum(x)", "x", "[x]"])
def test_an_input_that_raises_becomes_our_error(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(text)({"x": Bomb()})


def test_long_texts_and_keys_are_cut_in_the_message() -> None:
    text = "d[k] + " + "+".join(["a"] * 40)
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text)({"a": 1, "d": {}, "k": "k" * 100_000})
    assert len(caught.value.message) < 500


def test_positions_do_not_need_debug_ranges() -> None:
    code = "from tradewind.expr import compile_expression as c; c('1 + a / b')({'a': 1, 'b': 0})"
    done = subprocess.run([sys.executable, "-X", "no_debug_ranges", "-c", code], capture_output=True, text=True)
    assert "division by zero at col 9" in done.stderr
