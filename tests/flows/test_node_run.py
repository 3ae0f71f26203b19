"""What one run of a node does: what it sends, says and raises, and where its code runs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

import tradewind
from tests.flows.node_helpers import Host, arrived, call_of, payloads, run
from tradewind.flows.call import Stop
from tradewind.flows.node import (
    Input,
    Node,
    NodeExecutionException,
    NodeExecutionFailed,
    NodeResourceException,
    NodeStopExecutionException,
    NodeValidationException,
    Output,
    Suspend,
    node,
)
from tradewind.flows.node_errors import NodeException, NodeTimeoutException
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.node_run import run_node
from tradewind.signals.signal import Signal
from tradewind.tasks import running
from tradewind.tasks.running import Abort, Retry


@dataclass
class Price:
    closes: list[float]
    at: datetime | None = None


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
    assert not Plain.is_async


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


async def test_plain_code_in_a_thread_knows_its_task() -> None:
    @node("asks_task", registry=NodeRegistry())
    class AsksTask(Node):
        out: Output[str]

        def execute(self) -> None:
            self.out.send(tradewind.current().id)

    running.enter(running.Running("f_3_n", "asks_task", 1, "token", lambda *_: None))
    assert await payloads(AsksTask) == {"out": "f_3_n"}
