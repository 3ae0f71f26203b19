"""Tables: what expressions give."""

from __future__ import annotations

import copy
import math
import pickle
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tradewind.expr import Expression, compile_expression

INPUTS: dict[str, Any] = {
    "a": 3,
    "b": 5.5,
    "zero": 0,
    "yes": True,
    "no": False,
    "nothing": None,
    "word": "open",
    "closes": [1.0, 2.5, 4.0],
    "price": {"close": 10, "levels": [1, [2, 3]]},
    "a-b": 7,
    "价格": 2,
    "min": 4,
    "nan": math.nan,
    "inf": math.inf,
}

VALUES: list[tuple[str, Any]] = [
    # arithmetic
    ("a * 2 + b > 10", True),
    ("a - b", -2.5),
    ("-a + +b", 2.5),
    ("a / 2", 1.5),
    ("7 // a", 2),
    ("-7 % a", 2),
    ("a ** 2", 9),
    ("a ** -1", 1 / 3),
    ("2 ** 3 ** 2", 512),
    ("2 ** 256 == 4 ** 128", True),
    ("3 ** 161 < 2 ** 256", True),
    ("yes + yes", 2),
    ("1e308 - 1e308", 0.0),
    ("1_000 + 0x10", 1016),
    # comparison and truth
    ("1 < a <= 3 != 4", True),
    ("0 < price['close'] < a", False),
    ("1 < price['close'] > a == 3", True),
    ("word < 'p'", True),
    ("a == 3.0", True),
    ("nothing == None", True),
    ("closes == [1, 2.5, 4]", True),
    ("closes != (1, 2.5, 4)", False),
    ("price == {'close': 10, 'levels': [1, [2, 3]]}", True),
    ("a == word", False),
    ("closes == word", False),
    ("a and b", 5.5),
    ("zero or word", "open"),
    ("zero and missing", 0),
    ("a or missing", 3),
    ("not nothing", True),
    ("not closes", False),
    ("a if yes else missing", 3),
    ("missing if no else word", "open"),
    ("if_else(a > 1, word, missing)", "open"),
    # membership
    ("a in (1, 2, 3)", True),
    ("word not in ['closed']", True),
    ("2.5 in closes", True),
    ("[2, 3] in price['levels']", True),
    ("'close' in price", True),
    ("a in price", False),
    ("'pe' in word", True),
    ("nothing in [None]", True),
    ("a in [b, a]", True),
    ("a in [1] or a in []", False),
    # literals and items
    ("[a, (b, word)]", [3, [5.5, "open"]]),
    ("{'k': a, word: [b]}", {"k": 3, "open": [5.5]}),
    ("{}", {}),
    ("()", []),
    ("''", ""),
    ("None", None),
    ("price['levels'][1][0]", 2),
    ("closes[a - 4]", 4.0),
    ("closes[1:]", [2.5, 4.0]),
    ("closes[::-1]", [4.0, 2.5, 1.0]),
    ("closes[:-a]", []),
    ("word[0] + word[1:3]", "ope"),
    ("[1, 2] + [3] * 2", [1, 2, 3, 3]),
    ("2 * 'ab'", "abab"),
    ("'ab' * -1", ""),
    ("inputs['a-b'] + inputs['a']", 10),
    ("价格 * 2", 4),
    ("clamp(9, min, 8)", 8),  # an input may be named like a function
    ("round(pi + e, 3)", 5.86),
    ("  a\n  + b # both\n", 8.5),
    ("'it''s' \"!\"", "its!"),
    # functions
    ("min(a, b) + max(closes)", 7.0),
    ("min('b', word, 'a')", "a"),
    ("abs(-a) + sign(-b) + sign(0)", 2),
    ("round(2.5) + round(b)", 8),
    ("round(2.345, 1) + round(1234, -2)", 1202.3),
    ("floor(-b) + ceil(b)", 0),
    ("clamp(a, 5, 9) + clamp(a, 0, 1) + clamp(a, 0, 9)", 9),
    ("sum(closes) + sum(a, 1) + sum([])", 11.5),
    ("avg(closes) == mean(1, 2.5, 4)", True),
    ("median(closes) + median(1, 2, 4, 9)", 5.5),
    ("stdev(1, 2, 3, 4, 5)", math.sqrt(2.5)),
    ("len(closes) + len(word) + len(price) + len('')", 9),
    ("sqrt(16) + hypot(a, 4)", 9.0),
    ("exp(0) + log(e) + log(8, 2) + log10(1000) + log2(4)", 10.0),
    ("pow(a, 2) + pow(4, 0.5)", 11.0),
    ("sin(0) + cos(0) + tan(0) + asin(0) + acos(1) + atan(0) + atan2(0, 1)", 1.0),
    ("degrees(pi) + radians(180) - pi", 180.0),
    ("isnan(nan) and not isnan(inf) and not isnan(word) and not isnan(a)", True),
    ("is_finite(a) and not is_finite(nan) and not is_finite(inf) and not is_finite(word)", True),
    ("nan if is_finite(nan) else 0", 0),
    ("coalesce(nothing, missing, a)", 3),
    ("coalesce(missing, nothing)", None),
    ("coalesce(a, missing + 1)", 3),
    ("coalesce(get(price, 'low'), zero) + 1", 1),
    ("int(b) + int('12') + int(yes)", 18),
    ("float(a) + float('1.5e1')", 18.0),
    ("bool(a) and not bool('') and not bool(nothing)", True),
    ("str(a) + str(b) + str(yes) + str(nothing) + str(word)", "35.5TrueNoneopen"),
    ("any(closes) and not all(closes + [0]) and any(no, a) and not any([])", True),
    ("sorted([3, 1, 2.5])", [1, 2.5, 3]),
    ("sorted(['b', 'a'], True)", ["b", "a"]),
    ("get(closes, 1) + get(closes, 9, 0.5)", 3.0),
    ("get(price, a, 1) + get(nothing, 'k', 1)", 2),
    ("upper(word) + lower('X') + strip(' y ')", "OPENxy"),
    ("starts_with(word, 'op') and ends_with(word, 'en')", True),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_an_expression_gives_its_value(text: str, value: Any) -> None:
    result = compile_expression(text)(INPUTS)
    assert type(result) is type(value)
    assert result == (pytest.approx(value) if type(value) is float else value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a * 2 + b > 10", {"a", "b"}),
        ("price['close'] + inputs['a-b']", {"price", "a-b"}),
        ("coalesce(x, y) if min(z, 1) else pi", {"x", "y", "z"}),
        ("1 + 1", set()),
    ],
)
def test_names_are_the_inputs_that_are_read(text: str, names: set[str]) -> None:
    expression = compile_expression(text)
    assert expression.names == names
    assert expression.text == text
    assert isinstance(expression, Expression)
    assert text in repr(expression) or repr(text) in repr(expression)


def test_an_input_hides_a_constant_only_if_it_is_announced() -> None:
    assert compile_expression("e + 1", names=["e"])({"e": 1}) == 2
    assert compile_expression("floor(e)")({"e": 10}) == 2
    assert compile_expression("inputs['e']")({"e": 10}) == 10


def test_any_mapping_will_do() -> None:
    assert compile_expression("a + 1")(types.MappingProxyType({"a": 1})) == 2


def test_inputs_are_not_changed() -> None:
    values = {"x": [3, 1, 2], "d": {"k": [1]}}
    before = copy.deepcopy(values)
    for text in ("sorted(x)", "x + [4]", "x * 2", "x[::-1]", "x == d", "{'k': x}", "median(x)"):
        compile_expression(text)(values)
    assert values == before


def test_literals_are_made_anew_for_each_evaluation() -> None:
    expression = compile_expression("[1, {'k': 2}]")
    expression({}).append(3)
    assert expression({}) == [1, {"k": 2}]


def test_inputs_of_another_kind_than_guessed_give_the_same() -> None:
    expression = compile_expression("a + b")
    assert expression({"a": 1, "b": 2}) == 3
    assert expression({"a": "x", "b": "y"}) == "xy"
    assert expression({"a": [1], "b": [2]}) == [1, 2]
    assert expression({"a": 2**70, "b": 1}) == 2**70 + 1
    assert expression({"a": 1e300, "b": 1}) == 1e300


def test_the_same_text_is_compiled_once() -> None:
    assert compile_expression("a + 12345") is compile_expression("a + 12345")
    assert compile_expression("a + 12345", names=["a"]) is not compile_expression("a + 12345")


def test_an_expression_can_be_copied_and_sent_to_another_process() -> None:
    expression = compile_expression("e + a", names=["e", "a"])
    for other in (copy.copy(expression), copy.deepcopy(expression), pickle.loads(pickle.dumps(expression))):
        assert other({"e": 1, "a": 2}) == 3
        assert other.names == {"e", "a"}


def test_threads_share_an_expression() -> None:
    expression = compile_expression("a if 0 < price['k'] < 10 else coalesce(b, a)")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: expression({"a": i, "price": {"k": i % 20}, "b": None}), range(2000)))
    assert results == list(range(2000))
