"""Where the values of a node's inputs come from, and the handlers that see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flows.node_helpers import arrived, payloads, run, tombstone
from tradewind.flows.node import (
    Input,
    Node,
    NodeInputMissing,
    NodeInputStale,
    NodeValidationException,
    Output,
    node,
)
from tradewind.flows.node_registry import NodeRegistry
from tradewind.signals.signal import Signal

mine = NodeRegistry()


@node("reads", registry=mine)
class Reads(Node):
    """Sends what it finds."""

    a: Input[float]
    b: Input[float] = Input(default=-1.0, max_age=30)
    c: Input[Any] = Input(default=None, external=True)
    found: Output[dict[str, Any]]

    async def execute(self) -> None:
        b = self.b
        await self.found.send(
            {
                "a": self.a.value if self.a.has_value else "nothing",
                "b": [b.value, b.has_value, b.is_connected, b.age_s, b.signal is not None],
                "all": sorted(self.inputs),
            }
        )


async def test_an_int_is_taken_for_a_float_and_nothing_else_is_bent() -> None:
    found = (await payloads(Reads, arrived("a", 2)))["found"]
    assert (found["a"], type(found["a"])) == (2.0, float)
    for wrong in ("2", True, None, [2.0]):
        with pytest.raises(NodeValidationException):
            await run(Reads, arrived("a", wrong))


async def test_a_value_comes_from_the_signal_then_the_flow_then_the_config_then_the_default() -> None:
    async def b(*items: Any, **more: Any) -> Any:
        return (await payloads(Reads, arrived("a", 1.0), *items, **more))["found"]["b"]

    assert await b() == [-1.0, False, False, None, False]
    assert await b(config={"b": 3}) == [3.0, True, False, None, False]
    assert await b(given={"b": 4}, config={"b": 3}) == [4.0, True, False, None, False]
    assert await b(arrived("b", 5, age=7), given={"b": 4}) == [5.0, True, True, 7.0, True]
    assert await b(tombstone("b"), given={"b": 4}) == [4.0, True, True, None, False]


async def test_a_stale_signal_counts_as_missing() -> None:
    found = await payloads(Reads, arrived("a", 1.0), arrived("b", 5.0, age=30.5))
    assert found["found"]["b"][0] == -1.0

    @node("fresh_only", registry=NodeRegistry())
    class FreshOnly(Node):
        price: Input[float] = Input(max_age=30)

        async def execute(self) -> None: ...

    await run(FreshOnly, arrived("price", 1.0, age=30))
    with pytest.raises(NodeInputStale, match=r"'price' of node 'n' is stale: its signal is 31.0 s old, at most 30 s"):
        await run(FreshOnly, arrived("price", 1.0, age=31))


async def test_a_required_input_without_a_value_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(NodeInputMissing, match="'a' of node 'n' has no value") as caught:
        await run(Reads)
    assert "edge" in caught.value.hint


async def test_after_a_tombstone_the_node_runs_and_asking_for_the_value_fails() -> None:
    assert (await payloads(Reads, tombstone("a")))["found"]["a"] == "nothing"

    @node("asks", registry=NodeRegistry())
    class Asks(Node):
        a: Input[float]

        async def execute(self) -> None:
            _ = self.a.value

    with pytest.raises(NodeInputMissing, match=r"'up' sent nothing on 'out' \(failed\)"):
        await run(Asks, tombstone("a"))


@node("collects", registry=mine)
class Collects(Node):
    data: Input[dict[str, Any]] = Input(aggregate=True, auto_update_attr="merged")
    rows: Input[list[int]] = Input(aggregate=True, default=[])
    merged: dict[str, Any]
    out: Output[Any]

    async def execute(self) -> dict[str, Any]:
        return {"out": [self.data.value, self.merged, self.rows.value, len(self.data.signals)]}


async def test_an_aggregate_is_keyed_by_source_handle() -> None:
    items = [arrived("data", 1, "A", "price"), arrived("data", {"x": 2}, "B", "news"), arrived("rows", 5, "A", "x")]
    sent = await payloads(Collects, *items, arrived("rows", 6, "B", "x"))
    whole = {"price": 1, "news": {"x": 2}}
    assert sent["out"] == [whole, whole, [5, 6], 2]


async def test_aggregate_keys_that_would_collide_carry_the_node_and_do_not_depend_on_what_failed() -> None:
    both = await payloads(Collects, arrived("data", 1, "A", "data"), arrived("data", 2, "B", "data"))
    assert both["out"][0] == {"A:data": 1, "B:data": 2}
    one = await payloads(Collects, arrived("data", 1, "A", "data"), tombstone("data", "failed", "B", "data"))
    assert one["out"][0] == {"A:data": 1}


async def test_handlers_are_called_for_each_signal_after_the_attribute_is_updated() -> None:
    seen: list[Any] = []

    @node("hooked", registry=NodeRegistry())
    class Hooked(Node):
        price: Input[float] = Input(auto_update_attr="latest")
        many: Input[dict[str, Any]] = Input(aggregate=True, auto_update_attr="merged")
        quiet: Input[float] = Input(default=1.0, auto_update_attr="quiet_value")
        late: Input[float] = Input(default=1.0, max_age=10)
        latest: float = 0.0

        async def _on_price_received(self, signal: Signal) -> None:
            await asyncio.sleep(0)
            seen.append(("price", signal.payload, self.latest))

        def _on_many_received(self, signal: Signal) -> None:
            seen.append(("many", signal.payload, dict(self.merged)))  # type: ignore[attr-defined]

        def _on_late_received(self, signal: Signal) -> None:
            raise AssertionError("a stale signal is none")

        def _on_quiet_received(self, signal: Signal) -> None:
            raise AssertionError("there is no signal")

        async def execute(self) -> None:
            seen.append(("execute", self.quiet_value))  # type: ignore[attr-defined]

    assert [h.name for h in Hooked.describe().inputs] == ["price", "many", "quiet", "late"]
    assert Hooked.describe().config_schema["properties"] == {}
    items = [arrived("price", 2), arrived("many", 1, "A", "x"), arrived("many", 2, "B", "y")]
    await run(Hooked, *items, arrived("late", 5.0, age=11))
    assert seen == [
        ("price", 2, 2.0), ("many", 1, {"x": 1}), ("many", 2, {"x": 1, "y": 2}), ("execute", 1.0)
    ]  # fmt: skip


async def test_open_nodes_take_and_send_any_handle() -> None:
    @node("open", open_inputs=True, open_outputs=True, registry=NodeRegistry())
    class Open(Node):
        known: Input[float] = Input(default=0.0)

        async def execute(self) -> dict[str, Any]:
            return self.inputs

    sent = await payloads(Open, arrived("x", 1), tombstone("y"), given={"z": 2, "x": 9})
    assert sent == {"known": 0.0, "x": 1, "z": 2}
