"""Function nodes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from tests.flows.node_helpers import Host, arrived, payloads, run, tombstone
from tradewind.errors import Invalid
from tradewind.flows.node import (
    Input,
    Node,
    NodeExecutionException,
    NodeInputMissing,
    NodeInputStale,
    NodeValidationException,
    Output,
    node,
    node_class_of,
)
from tradewind.flows.node_registry import NodeRegistry

mine = NodeRegistry()


@node(registry=mine)
def spread(bid: float, ask: float = 10.0) -> float:
    """Distance between the two prices."""
    return ask - bid


def test_a_function_stays_a_function() -> None:
    assert spread(1.0, ask=3.0) == 2.0
    assert mine.get("spread") is node_class_of(spread)


def test_parameters_are_inputs_and_the_return_value_is_the_output() -> None:
    told = node_class_of(spread).describe()
    assert (told.type, told.description) == ("spread", "Distance between the two prices.")
    assert [(h.name, h.type, h.required, h.default) for h in told.inputs] == [
        ("bid", "float", True, None), ("ask", "float", False, 10.0)
    ]  # fmt: skip
    assert [(h.name, h.type) for h in told.outputs] == [("result", "float")]


async def test_a_function_is_called_with_converted_values() -> None:
    assert await payloads(spread, arrived("bid", 1)) == {"result": 9.0}
    assert await payloads(spread, arrived("bid", 1), arrived("ask", 4)) == {"result": 3.0}
    assert await payloads(spread, given={"bid": 2}) == {"result": 8.0}
    with pytest.raises(NodeInputMissing, match="'bid'"):
        await run(spread)
    with pytest.raises(NodeInputMissing, match="sent nothing"):
        await run(spread, tombstone("bid"))
    with pytest.raises(NodeValidationException, match="'bid' of node 'n' is not float"):
        await run(spread, arrived("bid", "x"))


async def test_keyword_only_parameters_are_config() -> None:
    @node("scaled", category="math", registry=NodeRegistry())
    async def scale(value: float, *, factor: Annotated[float, msgspec.Meta(gt=0)] = 2.0, cycle: int = 1) -> float:
        await asyncio.sleep(0)
        return value * factor + cycle

    told = node_class_of(scale).describe()
    assert (told.type, told.category) == ("scaled", "math")
    assert told.config_schema["properties"]["factor"] == {"type": "number", "exclusiveMinimum": 0, "default": 2.0}
    assert await payloads(scale, arrived("value", 3)) == {"result": 7.0}
    assert await payloads(scale, arrived("value", 3), config={"factor": 3, "cycle": 0}) == {"result": 9.0}
    assert await payloads(scale, config={"factor": 3, "value": 1}) == {"result": 4.0}
    with pytest.raises(NodeValidationException, match="factor"):
        await run(scale, arrived("value", 3), config={"factor": 0})


async def test_a_config_without_a_default_is_required() -> None:
    @node(registry=NodeRegistry())
    def needs(*, name: str) -> str:
        return name

    assert await payloads(needs, config={"name": "x"}) == {"result": "x"}
    with pytest.raises(NodeValidationException, match="name"):
        await run(needs)


async def test_false_is_a_value_and_none_sends_nothing() -> None:
    @node(registry=NodeRegistry())
    def echo(value: Any) -> Any:
        return value

    assert await payloads(echo, arrived("value", False)) == {"result": False}
    assert await payloads(echo, arrived("value", None)) == {}


async def test_several_outputs_by_name_by_type_and_by_typed_dict() -> None:
    @node(outputs=["low", "high"], registry=NodeRegistry())
    def split(value: float) -> Any:
        return (value - 1, value + 1) if value > 0 else {"low": value} if value < 0 else 3

    assert await payloads(split, arrived("value", 5)) == {"low": 4.0, "high": 6.0}
    assert await payloads(split, arrived("value", -5)) == {"low": -5.0}
    with pytest.raises(NodeExecutionException, match="returned int"):
        await run(split, arrived("value", 0))

    class Parts(TypedDict, total=False):
        whole: int
        rest: float

    @node(registry=NodeRegistry())
    def parts(value: float) -> Parts:
        return {"whole": int(value), "rest": value % 1}

    assert [(h.name, h.type) for h in node_class_of(parts).describe().outputs] == [("whole", "int"), ("rest", "float")]
    assert await payloads(parts, arrived("value", 2.5)) == {"whole": 2, "rest": 0.5}

    @node(outputs={"text": str}, registry=NodeRegistry())
    def wrong() -> dict[str, Any]:
        return {"text": 3}

    with pytest.raises(NodeValidationException, match="carries str"):
        await run(wrong)


async def test_annotations_say_more_about_handles() -> None:
    @node(registry=NodeRegistry())
    def power(
        many: Annotated[dict[str, float], Input(aggregate=True, unit="kW")],
        fresh: Annotated[float, Input(max_age=5)],
        bounded: Annotated[float, msgspec.Meta(ge=0), Input(unit="V")] = 1.0,
    ) -> Annotated[float, Output(unit="kW", signal_type="DATASET")]:
        return sum(many.values()) + fresh

    told = node_class_of(power).describe()
    assert [(h.unit, h.aggregate, h.max_age_s) for h in told.inputs] == [
        ("kW", True, None), ("", False, 5), ("V", False, None)
    ]  # fmt: skip
    assert told.outputs[0].unit == "kW"
    items = [arrived("many", 1, "A", "x"), arrived("many", 2, "B", "x")]
    sent = await run(power, *items, arrived("fresh", 1.0))
    assert (sent["result"].payload, sent["result"].type) == (4.0, "DATASET")
    with pytest.raises(NodeInputStale):
        await run(power, *items, arrived("fresh", 1.0, age=6))
    with pytest.raises(NodeValidationException, match="bounded"):
        await run(power, *items, arrived("fresh", 1.0), arrived("bounded", -1.0))


async def test_a_function_may_ask_for_its_node_and_for_any_other_input() -> None:
    @node(registry=NodeRegistry())
    def talk(me: Node, value: int, **others: Any) -> list[str]:
        me.persist_log(f"got {value}")
        return sorted(others)

    host = Host()
    assert node_class_of(talk).describe().open_inputs
    assert await payloads(talk, arrived("value", 1), arrived("x", 2), host=host) == {"result": ["x"]}
    assert host.logs == [("INFO", "got 1", None)]


async def test_a_function_without_a_result_has_no_output() -> None:
    @node(registry=NodeRegistry())
    def silent(value: int) -> None:
        assert value

    assert node_class_of(silent).describe().outputs == ()
    assert await payloads(silent, arrived("value", 1)) == {}


async def test_a_function_on_the_loop() -> None:
    @node(inline=True, registry=NodeRegistry())
    def quick(value: int) -> bool:
        return asyncio.get_running_loop().is_running()

    assert await payloads(quick, arrived("value", 1)) == {"result": True}


def test_functions_that_cannot_be_nodes() -> None:
    with pytest.raises(Invalid, match=r"\*values"):

        @node(registry=NodeRegistry())
        def many(*values: float) -> float:
            return sum(values)

    with pytest.raises(Invalid, match="generator"):

        @node(registry=NodeRegistry())
        def each(values: list[float]) -> Any:
            yield from values

    with pytest.raises(Invalid, match="no attribute to update"):

        @node(registry=NodeRegistry())
        def update(value: Annotated[float, Input(auto_update_attr="x")]) -> None: ...
