"""YAML as channels are written in it: values as in JSON, and the line of each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import Invalid
from tradewind.points.yaml_text import MAX_DEPTH, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing", None),
        ("a: 1", {"a": 1}),
        ("a: 0.1\nb: -5\nc: 0x1F\nd: 1e3\ne: .5", {"a": 0.1, "b": -5, "c": 31, "d": 1000.0, "e": 0.5}),
        ("a: true\nb: False\nc: null\nd: ~\ne:", {"a": True, "b": False, "c": None, "d": None, "e": None}),
        (
            "a: yes\nb: on\nc: 1:30\nd: 2026-01-01\ne: 007",
            {"a": "yes", "b": "on", "c": "1:30", "d": "2026-01-01", "e": "007"},
        ),
        ("a: '1'\nb: \"true\"\nc: !!str 5\nd: |\n  x\n  y\n", {"a": "1", "b": "true", "c": "5", "d": "x\ny\n"}),
        ("1001: x\ntrue: y", {"1001": "x", "true": "y"}),
        ("[1, {a: [b]}, []]", [1, {"a": ["b"]}, []]),
        ("x: &p {a: 1, b: 2}\ny:\n  <<: *p\n  b: 3", {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}}),
        ("x: &p [1]\ny: *p", {"x": [1], "y": [1]}),
        ("\ufeffa: 电压", {"a": "电压"}),
    ],
)
def test_values_are_those_of_json(text: str, value: Any) -> None:
    assert read_yaml(text.encode(), "f").value == value


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("a: [1\nb: 2", "bad_yaml", 2),
        ("a: 1\nb: 2\na: 3", "doubled_key", 3),
        ("a: 1\nb: *nobody", "bad_yaml", 2),
        ("a: &a\n  b: *a", "bad_yaml", 2),
        ("a: 1\n---\nb: 2", "bad_yaml", 2),
        ("a: 1\nb: !python/object x", "bad_yaml", 2),
        ("a: 1\nb: 1e999", "not_finite", 2),
        ("a: 1\n[b]: 2", "bad_yaml", 2),
        ("a: 1\n\tb: 2", "bad_yaml", 2),
        ("a:\n  <<: 5", "bad_yaml", 2),
        ("[" * (MAX_DEPTH + 1), "bad_yaml", 1),
        (b"a: 1\nb: \xff", "bad_text", 2),
    ],
)
def test_what_cannot_be_read_has_a_line(text: str | bytes, code: str, line: int) -> None:
    with pytest.raises(Invalid) as caught:
        read_yaml(text, "channels.yaml")
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == (code, f"channels.yaml:{line}")


def test_aliases_of_aliases_are_stopped() -> None:
    text = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
    text += "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    with pytest.raises(Invalid, match="aliases"):
        read_yaml(text, "f")


def test_lines_are_known_by_path() -> None:
    text = read_yaml(
        "x: &p\n  port: 1\n\nchannels:\n  - id: 1\n    parameters:\n      <<: *p\n      host: a\n  - {id: 2}\n", "f"
    )
    lines = {
        "x.port": 2,
        "channels[0]": 5,
        "channels[0].parameters": 6,
        "channels[0].parameters.host": 8,
        "channels[0].parameters.port": 2,
        "channels[0].parameters.absent": 6,
        "channels[1].id": 9,
        "channels[7].id": 4,
        "nothing": 1,
    }
    assert {path: text.line_of(path) for path in lines} == lines


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        read_yaml(text, "f")
    except Invalid as error:
        assert error.problems


_WORDS = st.text(st.characters(max_codepoint=0x7FFF, categories=["L", "N", "P", "S"]), max_size=5)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _WORDS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
        max_leaves=10,
    )
)
def test_json_is_yaml(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    if "<<" not in text:
        assert read_yaml(text, "f").value == value
