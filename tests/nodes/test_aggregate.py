from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.host import Host, arrived, new_call, once, outputs, payloads
from tradewind.flows.call import Arrived
from tradewind.flows.node_errors import NodeValidationException
from tradewind.signals.signal import Signal


def from_sources(**values: Any) -> list[Arrived]:
    return [arrived("data", value, source=f"node_{name}", source_handle=name) for name, value in values.items()]


@pytest.mark.parametrize(
    ("op", "values", "result"),
    [
        ("collect", {"price_data": {"p": 1}, "news_data": [1]}, {"price_data": {"p": 1}, "news_data": [1]}),
        ("sum", {"a": 1, "b": 2}, 3),
        ("sum", {"a": 0.1, "b": 0.2, "c": 0.3}, 0.6),
        ("sum", {"a": [1, 2], "b": 3, "c": None}, 6),
        ("avg", {"a": 1, "b": 2}, 1.5),
        ("avg", {"a": None}, None),
        ("min", {"a": 3, "b": [1.5, 9]}, 1.5),
        ("max", {"a": 3, "b": [1.5, 9]}, 9),
        ("count", {"a": "x", "b": [1, 2], "c": None}, 3),
        ("merge", {"b": {"x": 2, "y": 2}, "a": {"x": 1}}, {"x": 2, "y": 2}),
        ("merge", {"a": {"x": 1}, "b": None}, {"x": 1}),
    ],
)
async def test_signals_are_brought_together(op: str, values: dict[str, Any], result: Any) -> None:
    assert await outputs("aggregate", {"op": op}, from_sources(**values)) == {"result": result}


async def test_sources_of_one_name_are_kept_apart() -> None:
    came = [arrived("data", 1, "left", "price"), arrived("data", 2, "right", "price")]
    assert await outputs("aggregate", {}, came) == {"result": {"left:price": 1, "right:price": 2}}


async def test_first_and_last_go_by_time_not_by_wiring() -> None:
    came = [
        Arrived(name, "out", "data", Signal(name, "ANY", name, at, name, "out"))
        for name, at in [("b", 20.0), ("a", 10.0)]
    ]
    assert await outputs("aggregate", {"op": "first"}, came) == {"result": "a"}
    assert await outputs("aggregate", {"op": "last"}, came) == {"result": "b"}


@pytest.mark.parametrize(
    ("op", "result"),
    [("collect", {}), ("sum", 0), ("count", 0), ("avg", None), ("max", None), ("first", None), ("merge", {})],
)
async def test_when_every_source_failed_there_is_still_a_result(op: str, result: Any) -> None:
    """The trigger rule all_done lets the node run with nothing but tombstones."""
    call = new_call("aggregate", {"op": op}, [Arrived("a", "out", "data", None, "failed")])
    assert payloads(await once(call, Host())) == {"result": result}


@pytest.mark.parametrize(("op", "value"), [("sum", "1"), ("avg", True), ("max", {"a": 1}), ("merge", [1])])
async def test_what_cannot_be_brought_together_fails_for_good(op: str, value: Any) -> None:
    with pytest.raises(NodeValidationException, match="node 'n'"):
        await outputs("aggregate", {"op": op}, from_sources(a=value))
