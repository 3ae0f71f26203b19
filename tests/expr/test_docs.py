"""What docs/expressions.md shows is so."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import Invalid
from tradewind.expr import CONSTANTS, FUNCTIONS, Limits, compile_expression

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "expressions.md").read_text(encoding="utf-8")
VALUES = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \|$", PAGE, re.M)
ERRORS = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| `(\w+)` at `([^`]+)` \|$", PAGE, re.M)


def test_the_page_has_examples() -> None:
    assert len(VALUES) > 20
    assert len(ERRORS) > 15


@pytest.mark.parametrize(("text", "inputs", "value"), VALUES)
def test_an_example_gives_its_value(text: str, inputs: str, value: str) -> None:
    values = json.loads(inputs)
    expression = compile_expression(text, names=[*values, "limit"])
    result = expression(values)
    assert json.dumps(result) == json.dumps(json.loads(value))


@pytest.mark.parametrize(("text", "inputs", "code", "position"), ERRORS)
def test_an_example_gives_its_error(text: str, inputs: str, code: str, position: str) -> None:
    with pytest.raises(Invalid) as caught:
        compile_expression(text)(json.loads(inputs))
    problem = caught.value.problems[0]
    assert (problem.code, problem.path) == (code, position)
    assert problem.hint


def test_every_function_and_constant_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", PAGE))
    assert set(FUNCTIONS) | set(CONSTANTS) <= named


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    section = PAGE[PAGE.index("## Limits") :]
    for field in fields(Limits):
        assert f"{getattr(Limits(), field.name):,}" in section


def test_the_python_block_runs() -> None:
    block = re.search(r"```python\n(.*?)```", PAGE, re.S)
    assert block is not None
    space: dict[str, Any] = {}
    exec(block.group(1), space)
    assert space["is_high"].names == {"a", "b"}
    assert space["is_high"]({"a": 3, "b": 5}) is True
