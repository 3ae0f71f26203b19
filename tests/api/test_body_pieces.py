"""Long bodies are decoded in pieces: the result and the refusals are those of a short one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tradewind.api import body
from tradewind.api.errors import Refused

DOCUMENTS: list[Any] = [
    {"a": [[i, i / 2] for i in range(50)], "b": {"c": "x" * 50, "d": None}, 'e"\\': ["{", "}"]},
    [{"id": i, "name": "a,b"} for i in range(50)],
    ["x" * 200, 1, [], {}, [[["y" * 200]]]],
    {"long " * 30: 1, "": {"": [1.5, True, False]}},
    {"digits": [7] * 300},
]


@pytest.mark.parametrize("piece", [1, 20, 100])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_pieces_make_the_same_document(monkeypatch: pytest.MonkeyPatch, document: Any, piece: int) -> None:
    monkeypatch.setattr(body, "PIECE", piece)
    for text in (msgspec.json.encode(document), msgspec.json.format(msgspec.json.encode(document), indent=3)):
        assert body.decode_strictly(text) == document


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a": [1, 2, 3], "b": 1, "a": [1, 2, 3]}', "'a' stands twice"),
        (b'{"b": 1, "c": {"x": "yyyyyyyyyyyyyyyyyy", "x": 1}}', "'x' stands twice"),
        (b'[{"x": 1, "x": "yyyyyyyyyyyyyyyyyyyyyyy"}]', "'x' stands twice"),
        (b'{"a": [1, 2, 3], "b": NaN, "c": "..............."}', "invalid"),
        (b'{"a": [1, 2, 3], "b": "\\ud800", "c": "............"}', "UTF-8|hex escape"),
        (b'{"a": [1, 2, 3], "b": 99999999999999999999999, "c": 1}', "out of range"),
        (b"[" * 300 + b"]" * 300, "nested too deeply"),
        (b'{"a": [1, 2, 3], "b": 1, "c": "...............', "truncated"),
        (b'{"a": [1, 2, 3], "b": 1, "c": 1}  x', "trailing"),
    ],
)
def test_pieces_are_refused_like_the_whole(monkeypatch: pytest.MonkeyPatch, text: bytes, reason: str) -> None:
    monkeypatch.setattr(body, "PIECE", 8)
    with pytest.raises(Refused, match=reason):
        body.decode_strictly(text)
