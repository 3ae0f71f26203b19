"""The small JSON path."""

from __future__ import annotations

import pytest

from tradewind.errors import Invalid
from tradewind.points.drivers.json_path import MISSING, find, parse_path

DOCUMENT = {"a": {"b": [10, {"c": 1.5}], "odd name": 2, "x.y": 3, "7": 4}, "empty": None}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$.a.b[0]", 10),
        ("a.b[1].c", 1.5),
        ("$['a'].b[-1].c", 1.5),
        ('a["odd name"]', 2),
        ("a['x.y']", 3),
        ("a[7]", 4),
        ("$.a.7", 4),
        (".a.b.0", 10),
        ("$", DOCUMENT),
        ("", DOCUMENT),
        ("empty", None),
        ("a.b[9]", MISSING),
        ("a.b.c", MISSING),
        ("nothing.here", MISSING),
        ("a.b[0].deeper", MISSING),
    ],
)
def test_a_path_finds(text: str, found: object) -> None:
    assert find(parse_path(text), DOCUMENT) == found


@pytest.mark.parametrize("text", ["a..b", "a[", "a[x]", "a.b]", "$a b", "a['x", "a[*]", "$..a"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_path(text)
