"""Class nodes: what they declare, and what one run of them does."""

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from jsonschema import Draft202012Validator

import tradewind
from tests.flows.node_helpers import Host, arrived, call_of, payloads, run, tombstone
from tradewind.errors import Conflict, Invalid
from tradewind.flows.call import Stop
from tradewind.flows.node import (
    Input,
    Node,
    NodeExecutionException,
    NodeExecutionFailed,
    NodeInputMissing,
    NodeInputStale,
    NodeResourceException,
    NodeStopExecutionException,
    NodeValidationException,
    Output,
    Suspend,
    node,
    node_class_of,
)
from tradewind.flows.node_errors import NodeException, NodeTimeoutException
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.node_run import run_node
from tradewind.signals.signal import Signal, encode
from tradewind.tasks import running
from tradewind.tasks.running import Abort, Retry

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
    assert (signal.payload, signal.type, signal.source_node, signal.source_handle) == (3.5, "PRICE_DATA", "n", "average")
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

    with pytest.raises(NodeInputMissing, match="'up' sent nothing on 'out' .failed."):
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


@pytest.mark.parametrize("returned", [True, None])
async def test_true_and_none_mean_done(returned: bool | None) -> None:
    assert await payloads(_returning(returned)) == {}


async def test_false_means_failed_and_may_be_tried_again() -> None:
    with pytest.raises(NodeExecutionFailed) as caught:
        await run(_returning(False))
    assert caught.value.is_retryable and not isinstance(caught.value, Abort)
    assert caught.value.node_id == "n"


async def test_a_dict_is_sent_by_handle_and_an_unknown_handle_is_named() -> None:
    assert await payloads(_returning({"a": 1, "b": None})) == {"a": 1, "b": None}
    with pytest.raises(NodeValidationException, match="no output 'c'; its outputs: a, b"):
        await run(_returning({"c": 1}))
    with pytest.raises(NodeExecutionException, match="returned int"):
        await run(_returning(3))


def _returning(value: Any) -> Any:
    @node("returning", registry=NodeRegistry())
    class Returning(Node):
        a: Output[Any]
        b: Output[Any]

        async def execute(self) -> Any:
            return value

    return Returning


async def test_the_last_send_on_a_handle_wins_and_what_was_sent_is_a_copy() -> None:
    @node("sends", registry=NodeRegistry())
    class Sends(Node):
        a: Output[list[int]]

        async def execute(self) -> None:
            rows = [1]
            await self.a.send([0])
            await self.a.send(rows)
            rows.append(2)

    assert await payloads(Sends) == {"a": [1]}


@pytest.mark.parametrize(
    "value", [float("nan"), {"a": [float("inf")]}, object(), {1: {2}, "x": object()}, "\ud800", [b"\xff", object()]]
)
async def test_what_is_not_json_cannot_be_sent(value: Any) -> None:
    with pytest.raises(NodeValidationException, match="what node 'n' sends on 'a' is not JSON"):
        await run(_returning({"a": value}))


async def test_rich_values_are_sent_as_plain_json() -> None:
    class Number(float):
        pass

    sent = await payloads(_returning({"a": {"p": Price([1.0]), "n": Number(2), "t": (1, 2)}, "b": 10**15}))
    assert sent == {"a": {"p": {"closes": [1.0], "at": None}, "n": 2.0, "t": [1, 2]}, "b": 10**15}


async def test_an_output_carries_only_its_type() -> None:
    @node("typed_out", registry=NodeRegistry())
    class TypedOut(Node):
        a: Output[float]
        value: Any = 1

        async def execute(self) -> None:
            await self.a.send(self.value)

    assert await payloads(TypedOut) == {"a": 1}
    for wrong in ("x", True, None):
        with pytest.raises(NodeValidationException, match="on 'a', which carries float"):
            await run(TypedOut, config={"value": wrong})


async def test_a_node_logs_shows_progress_sends_and_stops() -> None:
    @node("talks", registry=NodeRegistry())
    class Talks(Node):
        a: Output[Any] = Output(signal_type="DATASET")
        b: Output[Any]

        async def execute(self) -> None:
            for level in ("debug", "INFO", "warn", "ERROR", "CRITICAL"):
                await self.persist_log(f"at {level}", level)
            await self.persist_log("odd", metadata={"x": object, "n": 1})
            self.progress(0.5, "half")
            await self.send_signal("a", 1)
            await self.send_signal("b", 2, "price_data")
            await self.send_stop_execution_signal("enough", "flow")
            assert (self.flow_id, self.cycle, self.node_id, self.attempt) == ("f", 3, "n", 2)
            assert (self.component_id, self.state, self.config) == (0, {"k": 1}, {})
            assert not self.is_cancelled and self.call.task_id == "f_3_n" and self.host is host

    host = Host()
    result = await run_node(call_of(attempt=2, state={"k": 1}), Talks, host)
    assert [level for level, _, _ in host.logs] == ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "INFO"]
    assert host.logs[-1][2] == {"x": "<class 'object'>", "n": 1}
    assert host.steps == [(0.5, "half")]
    assert [(s.payload, s.type) for s in result.outputs.values()] == [(1, "DATASET"), (2, "PRICE_DATA")]
    assert result.stop == Stop("enough", "flow")


@pytest.mark.parametrize("act", ["self.persist_log('x', 'LOUD')", "self.send_stop_execution_signal('x', 'world')"])
async def test_unknown_levels_and_scopes_are_refused(act: str) -> None:
    @node("acts", registry=NodeRegistry())
    class Acts(Node):
        async def execute(self) -> None:
            eval(act, {"self": self})

    with pytest.raises(NodeValidationException):
        await run(Acts)


async def test_plain_code_runs_in_a_thread_and_its_logs_come_in_order() -> None:
    pool = ThreadPoolExecutor(1, thread_name_prefix="mine")
    host = Host()
    threads = []

    @node("plain", registry=NodeRegistry())
    class Plain(Node):
        a: Input[int]
        out: Output[str]

        def _on_a_received(self, signal: Signal) -> None:
            threads.append(threading.current_thread().name)

        def execute(self) -> None:
            self.out.send(threading.current_thread().name)
            self.persist_log("one")
            self.persist_log("two")
            self.progress(1)

    result = await run_node(call_of(arrived("a", 1)), Plain, host, pool)
    pool.shutdown()
    assert result.outputs["out"].payload.startswith("mine") and threads[0].startswith("mine")
    assert [text for _, text, _ in host.logs] == ["one", "two"] and host.steps == [(1, "")]
    assert not Plain.is_async and MovingAverage.is_async


async def test_inline_code_runs_on_the_loop() -> None:
    @node("inlined", inline=True, registry=NodeRegistry())
    class Inlined(Node):
        out: Output[str]

        def execute(self) -> None:
            self.out.send(threading.current_thread().name)

    assert await payloads(Inlined) == {"out": threading.current_thread().name}
    assert Inlined.inline


async def test_a_stop_iteration_in_a_thread_does_not_hang() -> None:
    @node("stops", registry=NodeRegistry())
    class Stops(Node):
        def execute(self) -> None:
            next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(run(Stops), 10)


def _raising(error: BaseException) -> Any:
    @node("raising", registry=NodeRegistry())
    class Raising(Node):
        async def execute(self) -> None:
            raise error

    return Raising


async def test_errors_become_what_the_task_room_understands() -> None:
    class Hopeless(NodeException):
        is_retryable = False

    with pytest.raises(Suspend):
        await run(_raising(Suspend(5, {"a": 1})))
    with pytest.raises(NodeTimeoutException) as slow:
        await run(_raising(NodeTimeoutException("slow", 3)))
    assert slow.value.is_retryable and not isinstance(slow.value, Abort)
    with pytest.raises(NodeResourceException):
        await run(_raising(NodeResourceException("busy", "gpu")))
    with pytest.raises(Retry) as again:
        await run(_raising(NodeResourceException("busy", "gpu", retry_after_s=9)))
    assert again.value.delay == 9
    with pytest.raises(Abort, match="Hopeless: no"):
        await run(_raising(Hopeless("no")))
    with pytest.raises(NodeStopExecutionException) as stop:
        await run(_raising(NodeStopExecutionException("User requested stop", "system")))
    assert (stop.value.reason, stop.value.source_node, stop.value.status) == (
        "User requested stop", "system", "terminated"
    )  # fmt: skip
    assert isinstance(stop.value, Abort)
    with pytest.raises(ZeroDivisionError):
        await run(_raising(ZeroDivisionError()))
    with pytest.raises(asyncio.CancelledError):
        await run(_raising(asyncio.CancelledError()))


async def test_open_nodes_take_and_send_any_handle() -> None:
    @node("open", open_inputs=True, open_outputs=True, registry=NodeRegistry())
    class Open(Node):
        known: Input[float] = Input(default=0.0)

        async def execute(self) -> dict[str, Any]:
            return self.inputs

    sent = await payloads(Open, arrived("x", 1), tombstone("y"), given={"z": 2, "x": 9})
    assert sent == {"known": 0.0, "x": 1, "z": 2}


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
    with pytest.raises(Conflict, match=r"two nodes want the type 'reads': .*Reads and .*Other"):

        @node("reads", registry=mine)
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
    names = {"Node": Node, "Input": Input, "Output": Output, "__name__": __name__}
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


async def test_plain_code_in_a_thread_knows_its_task() -> None:
    @node("asks_task", registry=NodeRegistry())
    class AsksTask(Node):
        out: Output[str]

        def execute(self) -> None:
            self.out.send(tradewind.current().id)

    running.enter(running.Running("f_3_n", "asks_task", 1, "token", lambda *_: None))
    assert await payloads(AsksTask) == {"out": "f_3_n"}
