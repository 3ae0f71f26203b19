"""Class nodes: what they declare, and how a run meets it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tests.flows.node_helpers import Host, arrived, call_of, payloads, run
from tradewind.errors import Conflict, Invalid
from tradewind.flows.node import (
    Input,
    Node,
    NodeValidationException,
    Output,
    node,
    node_class_of,
)
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.node_run import run_node
from tradewind.signals.signal import encode
from tradewind.tasks.running import Abort

mine = NodeRegistry()


@dataclass
class Price:
    closes: list[float]
    at: datetime | None = None


@node("moving_average", category="math", timeout=5, retries=2, registry=mine)
class MovingAverage(Node):
    """Mean of the
    last prices.

    More that nobody shows.
    """

    unit: ClassVar[str] = "kW"
    window: Annotated[int, msgspec.Meta(ge=1, description="how many")] = 20
    mode: Literal["plain", "weighted"] = "plain"
    tags: list[str] = []  # noqa: RUF012
    price: Input[Price]
    volume: Input[float] = Input(default=0.5, unit="kW", description="of trade")
    many: Input[dict[str, float]] = Input(aggregate=True, default=None)
    average: Output[float] = Output(unit="kW", signal_type="PRICE_DATA")
    count: Output[int]

    async def execute(self) -> None:
        closes = self.price.value.closes[-self.window :]
        await self.average.send(sum(closes) / len(closes) + self.volume.value)


def test_a_class_describes_itself_as_a_node_type() -> None:
    told = MovingAverage.describe()
    assert (told.type, told.description, told.category) == ("moving_average", "Mean of the last prices.", "math")
    assert (told.timeout_s, told.retries) == (5, 2)
    price, volume, many = told.inputs
    assert (price.name, price.type, price.required) == ("price", "dict", True)
    assert (volume.type, volume.required, volume.default, volume.unit) == ("float", False, 0.5, "kW")
    assert many.aggregate and not many.required
    assert [(o.name, o.type, o.unit) for o in told.outputs] == [("average", "float", "kW"), ("count", "int", "")]
    assert MovingAverage.is_async and not MovingAverage.inline


def test_the_config_schema_is_valid_and_closed() -> None:
    schema = MovingAverage.describe().config_schema
    Draft202012Validator.check_schema(schema)
    check = Draft202012Validator(schema)
    assert schema["properties"]["window"]["description"] == "how many"
    assert check.is_valid({"window": 3, "mode": "weighted", "tags": ["a"]})
    for wrong in ({"window": 0}, {"window": "3"}, {"mode": "x"}, {"unit": "kW"}, {"windo": 3}):
        assert not check.is_valid(wrong)


def test_nested_config_types_are_part_of_the_schema() -> None:
    class Case(msgspec.Struct):
        when: str
        handle: str = "out"

    @node("nested", registry=NodeRegistry())
    class Nested(Node):
        cases: list[Case]

        async def execute(self) -> None: ...

    schema = Nested.describe().config_schema
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid({"cases": [{"when": "x"}]})
    assert not Draft202012Validator(schema).is_valid({"cases": [{"handle": "x"}]})
    assert not Draft202012Validator(schema).is_valid({})


async def test_a_node_computes_from_typed_inputs_and_config() -> None:
    sent = await run(MovingAverage, arrived("price", {"closes": [1, 2, 4]}), config={"window": 2})
    signal = sent["average"]
    assert (signal.payload, signal.type, signal.source_node, signal.source_handle) == (
        3.5,
        "PRICE_DATA",
        "n",
        "average",
    )
    assert (signal.flow_id, signal.cycle, signal.timestamp) == ("f", 3, 1000.0)
    assert signal.id and encode(signal)


async def test_signals_have_ids_of_their_own() -> None:
    ids = {(await run(MovingAverage, arrived("price", {"closes": [1]})))["average"].id for _ in range(200)}
    assert len(ids) == 200


async def test_config_defaults_are_not_shared_between_runs() -> None:
    seen = []

    @node("mutates", registry=NodeRegistry())
    class Mutates(Node):
        tags: list[str] = ["a"]  # noqa: RUF012
        given: Input[list[int]] = Input(default=[1])

        async def execute(self) -> None:
            self.tags.append("b")
            self.given.value.append(2)
            seen.append((self.tags, self.given.value))

    await run(Mutates)
    await run(Mutates)
    assert seen == [(["a", "b"], [1, 2])] * 2


@pytest.mark.parametrize(
    ("config", "said"),
    [({"window": 0}, "window"), ({"window": "3"}, "window"), ({"nope": 1}, "nope"), ({"mode": "x"}, "mode")],
)
async def test_a_bad_config_is_refused_without_a_retry(config: dict[str, Any], said: str) -> None:
    with pytest.raises(NodeValidationException, match=said) as caught:
        await run(MovingAverage, arrived("price", {"closes": [1]}), config=config)
    assert isinstance(caught.value, Abort)


async def test_a_wrong_type_names_the_handle_what_it_wants_and_what_came() -> None:
    with pytest.raises(NodeValidationException, match=r"'up'.*'volume' of node 'n' is not float.*got `str`") as caught:
        await run(MovingAverage, arrived("price", {"closes": []}), arrived("volume", "3"))
    assert caught.value.invalid_params == ("volume",)
    assert not caught.value.is_retryable


async def test_a_handle_may_have_a_name_that_python_forbids() -> None:
    @node("named", registry=NodeRegistry())
    class Named(Node):
        source: Input[int] = Input(name="from")
        when_true: Output[int] = Output(name="state")

        async def execute(self) -> None:
            await self.when_true.send(self.source.value)

    assert await payloads(Named, arrived("from", 1)) == {"state": 1}


async def test_a_subclass_inherits_handles_and_config() -> None:
    @node("faster", registry=NodeRegistry())
    class Faster(MovingAverage):
        window: Annotated[int, msgspec.Meta(ge=1)] = 1
        extra: Output[int]

    assert [o.name for o in Faster.describe().outputs] == ["average", "count", "extra"]
    assert (await payloads(Faster, arrived("price", {"closes": [1, 5]})))["average"] == 5.5

    class NotYet(MovingAverage):
        pass

    with pytest.raises(NodeValidationException, match="no node type"):
        await run_node(call_of(), NotYet, Host())


def test_two_classes_cannot_have_one_type() -> None:
    with pytest.raises(Conflict, match=r"two nodes want the type 'moving_average': .*MovingAverage and .*Other"):

        @node("moving_average", registry=mine)
        class Other(Node):
            async def execute(self) -> None: ...


def test_the_type_name_comes_from_the_class_name() -> None:
    @node(registry=NodeRegistry())
    class HTTPRequest2Node(Node):
        async def execute(self) -> None: ...

    assert HTTPRequest2Node.describe().type == "http_request2_node"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("cycle: int = 3", "'cycle', which every node has"),
        ("a: Input[int]\n    b: Input[int] = Input(name='a')", "two inputs"),
        ("a: Input[int] = Input(aggregate=True)", r"Input\[dict\]"),
        ("a: Input[int] = Input(max_age=-1)", "max_age"),
        ("a: Output[int] = Output(signal_type='NOPE')", "NOPE"),
        ("a: Output[int] = Output(name='a b')", "cannot be a handle"),
        ("a: complex = 1j", "cannot be described"),
        ("a: Nowhere = 1", "Nowhere"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_once(body: str, said: str) -> None:
    code = f"class Wrong(Node):\n    {body}\n    async def execute(self): ..."
    names: dict[str, Any] = {"Node": Node, "Input": Input, "Output": Output, "__name__": __name__}
    with pytest.raises(Invalid) as caught:
        exec(code, names)
        node(registry=NodeRegistry())(names["Wrong"])
    assert re.search(said, f"{caught.value} {caught.value.hint}")


@pytest.mark.parametrize("options", [{"timeout": -1}, {"retries": -1}, {"retries": 1000}, {"outputs": ["a"]}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    class Plain(Node):
        async def execute(self) -> None: ...

    with pytest.raises(Invalid):
        node("plain", registry=NodeRegistry(), **options)(Plain)
    with pytest.raises(Invalid, match="cannot be a node type"):
        node("a b", registry=NodeRegistry())(Plain)


def test_what_is_no_node_is_refused() -> None:
    with pytest.raises(Invalid, match="execute"):

        @node(registry=NodeRegistry())
        class Empty(Node):
            pass

    with pytest.raises(Invalid, match="generator"):

        @node(registry=NodeRegistry())
        class Yields(Node):
            async def execute(self) -> Any:
                yield 1

    with pytest.raises(Invalid, match="cannot be a node"):
        node(registry=NodeRegistry())(int)
    with pytest.raises(Invalid, match="is no node"):
        node_class_of(len)
