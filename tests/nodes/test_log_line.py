"""`log`, and the templates that `http_request` uses, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.host import Host, outputs, problems
from tradewind.errors import Invalid
from tradewind.flows.node_errors import NodeValidationException
from tradewind.nodes import template


async def test_a_line_is_written_and_the_value_passed_on() -> None:
    host = Host()
    config = {"message": "close is {value.close}, {who} says", "level": "WARNING"}
    assert await outputs("log", config, {"value": {"close": 1.5}, "who": "A"}, host) == {"value": {"close": 1.5}}
    assert host.logs == [("WARNING", "close is 1.5, A says", None)]


async def test_without_a_value_null_is_passed_on() -> None:
    assert await outputs("log", {"message": "started"}) == {"value": None}


async def test_a_place_without_a_value_fails_for_good() -> None:
    with pytest.raises(NodeValidationException, match=r"\{value.open\}"):
        await outputs("log", {"message": "{value.open}"}, {"value": {"close": 1}})
    assert [p.code for p in problems("log", {"message": "{a} {b.c} {b}"}, ["a"])] == ["unknown_name"]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{a}", "1"),
        ("{a}{b}", "1x"),
        ("{c.d.1}", "true"),
        ("{c}", '{"d":[null,true]}'),
        ("{{a}}", "{a}"),
        ('{"json": {a}, "open": {', '{"json": 1, "open": {'),
        ("{ a } {} {a!r} {a:>9} {a[0]}", "{ a } {} {a!r} {a:>9} {a[0]}"),
        ("{n}", "null"),
        ("", ""),
    ],
)
def test_only_plain_places_are_filled(text: str, filled: str) -> None:
    assert template.fill(text, {"a": 1, "b": "x", "c": {"d": [None, True]}, "n": None}) == filled


def test_what_a_value_holds_is_not_filled_again() -> None:
    assert template.fill("{a}", {"a": "{b}", "b": "secret"}) == "{b}"


@pytest.mark.parametrize("text", ["{a.__class__}", "{a.x}", "{a.5}", "{b}", "{a.0.0}"])
def test_a_place_reaches_only_data(text: str) -> None:
    with pytest.raises(Invalid, match="there is no value for"):
        template.fill(text, {"a": [1]})


@pytest.mark.parametrize(
    ("data", "filled"),
    [
        ("{a}", [1]),
        ("{a} ", "[1] "),
        ({"k{b}": ["{a}", "{b}", 3, None, {"x": "{{b}}"}]}, {"kB": [[1], "B", 3, None, {"x": "{b}"}]}),
    ],
)
def test_data_keeps_the_types_of_its_values(data: Any, filled: Any) -> None:
    assert template.fill_data(data, {"a": [1], "b": "B"}) == filled
    assert template.names(data) <= {"a", "b"}
