"""The helpers for tests of nodes and flows, and with them the rules of a cycle."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.flows.node_helpers import tombstone
from tradewind.errors import Invalid, NotFound, Problem
from tradewind.flows.call import Stop, Suspend
from tradewind.flows.node import (
    Input,
    Node,
    NodeExecutionException,
    NodeResourceException,
    NodeStopExecutionException,
    NodeValidationException,
    Output,
    node,
)
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.syntax import parse_flow
from tradewind.flows.testing import run_flow, run_flow_sync, run_node_once, run_node_once_sync
from tradewind.signals.signal import new_signal

mine = NodeRegistry()


@node("t_source", registry=mine)
class Source(Node):
    """Sends `value`, or fails the first `failures` times, or stops."""

    value: Any = 1
    failures: int = 0
    error: str = ""
    stop: str = ""
    silent: bool = False
    out: Output[Any]
    other: Output[Any]

    async def execute(self) -> bool:
        if self.attempt <= self.failures:
            kinds: dict[str, Exception] = {
                "": RuntimeError("not yet"),
                "invalid": NodeValidationException("never"),
                "busy": NodeResourceException("busy", "gpu", retry_after_s=500),
                "ended": NodeStopExecutionException("asked to", "operator"),
            }
            raise kinds[self.error]
        if self.stop:
            await self.send_stop_execution_signal("enough", self.stop)
        if not self.silent:
            await self.out.send(self.value)
        return True


@node("t_add", registry=mine)
def add(a: float, b: float = 100.0) -> float:
    return a + b


@node("t_gather", registry=mine)
class Gather(Node):
    data: Input[dict[str, Any]] = Input(aggregate=True)
    out: Output[dict[str, Any]]

    async def execute(self) -> None:
        await self.persist_log("gathered", metadata={"has": self.data.has_value})
        await self.out.send(self.data.value if self.data.has_value else {})


@node("t_wait", registry=mine)
class Wait(Node):
    seconds: float = 60.0
    value: Input[Any] = Input(default=None)
    out: Output[Any]

    async def execute(self) -> None:
        if self.state is None:
            raise Suspend(self.seconds, {"asked": True})
        await self.out.send([self.value.value, self.attempt])


@node("t_person", registry=mine)
class Person(Node):
    decision: Input[bool] = Input(external=True)
    out: Output[bool]

    async def execute(self) -> None:
        await self.out.send(self.decision.value)


@node("t_parent", registry=mine)
class Parent(Node):
    flow: str = "child"
    patience: float = 100.0
    item: Input[Any] = Input(default=5)
    out: Output[Any]

    async def execute(self) -> None:
        if self.state is None:
            cycle = await self.host.start_cycle(self.flow, {"ask.decision": self.item.value})
            raise Suspend(self.patience, {"cycle": cycle})
        child = self.call.children[0]
        outputs = await self.host.cycle_outputs(child["flow"], child["cycle"])
        await self.out.send([child, outputs if child["status"] != "running" else None])


TYPES = [Source, add, Gather, Wait, Person, Parent]


def flow(nodes: dict[str, Any], *edges: str, **more: Any) -> dict[str, Any]:
    """`"a.out>b.a"` is an edge; a node is (type, config, other fields)."""
    made: list[dict[str, Any]] = []
    for node_id, told in nodes.items():
        kind, config, rest = (*told, {}, {})[:3] if isinstance(told, tuple) else (told, {}, {})
        made.append({"id": node_id, "type": kind, "config": config, **rest})
    wires = []
    for edge in edges:
        left, right = edge.split(">")
        (source, source_handle), (target, target_handle) = left.split("."), right.split(".")
        wires.append(
            {"source": source, "source_handle": source_handle, "target": target, "target_handle": target_handle}
        )
    return {"id": "f", "interval": 0, "nodes": made, "edges": wires, **more}


async def test_a_node_alone() -> None:
    outcome = await run_node_once(add, inputs={"a": 1})
    assert outcome.is_ok and outcome.outputs == {"result": 101.0}
    outcome = await run_node_once(Source, config={"stop": "flow", "value": [1]})
    assert outcome.stop == Stop("enough", "flow") and outcome.signals["out"].payload == [1]


async def test_what_a_node_raises_is_in_the_outcome() -> None:
    outcome = await run_node_once(Source, config={"failures": 1})
    assert isinstance(outcome.error, RuntimeError) and not outcome.is_ok
    assert (await run_node_once(Source, config={"failures": 1}, attempt=2)).is_ok
    assert isinstance((await run_node_once(add)).error, NodeValidationException)


async def test_aggregates_signals_tombstones_and_state_for_a_node_alone() -> None:
    by_dict = await run_node_once(Gather, inputs={"data": {"x": 1, "y": 2}})
    assert by_dict.outputs["out"] == {"x": 1, "y": 2}
    assert [(line.level, line.message, line.metadata) for line in by_dict.logs] == [("INFO", "gathered", {"has": True})]
    by_list = await run_node_once(Gather, inputs={"data": [("x", 1), ("y", 2)]})
    assert by_list.outputs == by_dict.outputs
    collide = await run_node_once(Gather, inputs={"data": [("A", "x", 1), ("B", "x", 2)]})
    assert collide.outputs["out"] == {"A:x": 1, "B:x": 2}
    assert (await run_node_once(Gather, inputs={"data": tombstone("data")})).outputs["out"] == {}
    assert (await run_node_once(add, inputs={"a": new_signal(3)})).outputs == {"result": 103.0}
    asleep = await run_node_once(Wait)
    assert asleep.suspend is not None and asleep.suspend.delay_s == 60
    assert (await run_node_once(Wait, state=asleep.suspend.state)).outputs["out"] == [None, 1]


async def test_a_type_name_that_nobody_knows() -> None:
    with pytest.raises(NotFound, match="no_such_type"):
        await run_node_once("no_such_type")


async def test_a_chain_runs_to_its_end() -> None:
    outcome = await run_flow(
        flow({"a": "t_source", "b": "t_add", "c": ("t_add", {"b": 1})}, "a.out>b.a", "b.result>c.a"), types=TYPES
    )
    assert outcome.status == "completed" and outcome.error == ""
    assert outcome.outputs == {"a": {"out": 1}, "b": {"result": 101.0}, "c": {"result": 102.0}}
    assert all(run.status == "completed" and run.attempts == 1 for run in outcome.nodes.values())


async def test_three_sources_into_one_aggregate() -> None:
    nodes = {"p": ("t_source", {"value": 5}), "n": ("t_source", {"value": "good"}), "g": "t_gather"}
    outcome = await run_flow(parse_flow(flow(nodes, "p.out>g.data", "n.out>g.data")), types=TYPES)
    assert outcome.outputs["g"]["out"] == {"p:out": 5, "n:out": "good"}
    assert [line.node for line in outcome.logs] == ["g"]


async def test_a_failure_skips_all_that_depend_on_it_and_nothing_else() -> None:
    document = flow(
        {"bad": ("t_source", {"failures": 9}), "b": "t_add", "c": "t_add", "x": "t_source", "y": "t_add"},
        "bad.out>b.a", "b.result>c.a", "x.out>y.a",
    )  # fmt: skip
    outcome = await run_flow(document, types=TYPES)
    assert outcome.status == "failed" and outcome.error == "bad: RuntimeError: not yet"
    assert {n: r.status for n, r in outcome.nodes.items()} == {
        "bad": "failed", "b": "skipped", "c": "skipped", "x": "completed", "y": "completed"
    }  # fmt: skip
    assert outcome.nodes["c"].error == "upstream_failed: bad: RuntimeError: not yet"


@pytest.mark.parametrize(
    ("rule", "failing", "silent"),
    [
        ("all_success", "skipped", "skipped"),
        ("none_failed", "skipped", "completed"),
        ("any_success", "completed", "completed"),
        ("all_done", "completed", "completed"),
    ],
)
async def test_trigger_rules(rule: str, failing: str, silent: str) -> None:
    for config, wanted in (({"failures": 9}, failing), ({"silent": True}, silent)):
        nodes = {"a": ("t_source", config), "b": "t_source", "g": ("t_gather", {}, {"trigger_rule": rule})}
        outcome = await run_flow(flow(nodes, "a.out>g.data", "b.out>g.data"), types=TYPES)
        assert outcome.nodes["g"].status == wanted


async def test_a_tombstone_into_an_optional_input_leaves_its_default() -> None:
    nodes = {"a": "t_source", "b": ("t_source", {"failures": 9}), "c": "t_add"}
    outcome = await run_flow(flow(nodes, "a.out>c.a", "b.out>c.b"), types=TYPES)
    assert outcome.nodes["c"].outputs == {"result": 101.0}
    assert outcome.status == "failed"


@pytest.mark.parametrize(("scope", "far"), [("component", "completed"), ("flow", "terminated")])
async def test_a_stop_signal_ends_its_component_or_all(scope: str, far: str) -> None:
    nodes = {"a": ("t_source", {"stop": scope}), "b": "t_add", "c": "t_add", "x": "t_source", "y": "t_add"}
    outcome = await run_flow(flow(nodes, "a.out>b.a", "b.result>c.a", "x.out>y.a"), types=TYPES)
    assert (outcome.status, outcome.stopped_by) == ("completed", "a")
    assert [outcome.nodes[n].status for n in "abc"] == ["completed", "terminated", "terminated"]
    assert outcome.nodes["b"].error == "Stopped by a: enough"
    assert outcome.nodes["y"].status == far


@pytest.mark.parametrize(
    ("policy", "c", "y"),
    [("isolate", "completed", "completed"), ("stop_component", "skipped", "completed"), ("stop_flow", "skipped", "skipped")],
)
async def test_what_a_failure_stops_is_the_flows_choice(policy: str, c: str, y: str) -> None:
    nodes = {"bad": ("t_source", {"failures": 9}), "a": "t_source", "c": "t_add", "x": "t_source", "y": "t_add"}
    document = flow(nodes, "bad.out>c.b", "a.out>c.a", "x.out>y.a", on_failure=policy)
    outcome = await run_flow(document, types=TYPES)
    assert (outcome.status, outcome.nodes["c"].status, outcome.nodes["y"].status) == ("failed", c, y)


async def test_retries_take_virtual_time_only() -> None:
    began = time.monotonic()
    document = flow({"a": ("t_source", {"failures": 2}, {"retries": 2, "backoff": 100})})
    outcome = await run_flow(document, types=TYPES)
    assert (outcome.status, outcome.nodes["a"].attempts) == ("completed", 3)
    assert 300 <= outcome.took_s < 310 and time.monotonic() - began < 10
    busy = await run_flow(flow({"a": ("t_source", {"failures": 1, "error": "busy"}, {"retries": 1})}), types=TYPES)
    assert busy.status == "completed" and busy.took_s >= 500


async def test_what_a_retry_would_not_heal_is_not_retried() -> None:
    nodes = {"a": ("t_source", {"failures": 9, "error": "invalid"}, {"retries": 5})}
    outcome = await run_flow(flow(nodes), types=TYPES)
    assert (outcome.nodes["a"].status, outcome.nodes["a"].attempts) == ("failed", 1)


async def test_a_node_that_ends_itself_is_terminated() -> None:
    nodes = {"a": ("t_source", {"failures": 9, "error": "ended"}, {"retries": 5}), "b": "t_add"}
    outcome = await run_flow(flow(nodes, "a.out>b.a"), types=TYPES)
    assert outcome.nodes["a"].status == "terminated" and outcome.nodes["a"].error == "stopped by operator: asked to"
    assert (outcome.nodes["b"].status, outcome.status) == ("skipped", "completed")


async def test_a_node_that_takes_longer_than_its_timeout_fails() -> None:
    @node("t_slow", timeout=0.05, registry=NodeRegistry())
    async def slow() -> int:
        await asyncio.sleep(60)
        return 1

    outcome = await run_flow(flow({"a": "t_slow"}), types=[slow])
    assert outcome.nodes["a"].error == "Timeout: it took longer than its timeout"


async def test_suspended_nodes_wake_in_order_of_virtual_time() -> None:
    nodes = {"slow": ("t_wait", {"seconds": 3600}), "quick": ("t_wait", {"seconds": 60}), "g": "t_gather"}
    began = time.monotonic()
    outcome = await run_flow(flow(nodes, "slow.out>g.data", "quick.out>g.data"), types=TYPES)
    assert outcome.outputs["g"]["out"] == {"slow:out": [None, 1], "quick:out": [None, 1]}
    assert 3600 <= outcome.took_s < 3610 and time.monotonic() - began < 10


async def test_virtual_time_ages_signals() -> None:
    @node("t_fresh", registry=NodeRegistry())
    def fresh(a: Any, late: Any) -> Any:
        return a

    @node("t_strict", registry=NodeRegistry())
    class Strict(Node):
        a: Input[Any] = Input(max_age=30)
        late: Input[Any]

        async def execute(self) -> None: ...

    nodes = {"a": "t_source", "w": ("t_wait", {"seconds": 31}), "s": "t_strict"}
    outcome = await run_flow(flow(nodes, "a.out>s.a", "w.out>s.late"), types=[*TYPES, fresh, Strict])
    assert outcome.nodes["s"].error.startswith("NodeInputStale")


async def test_a_cycle_ends_at_its_deadline() -> None:
    nodes = {"w": ("t_wait", {"seconds": 3600}), "g": "t_gather"}
    outcome = await run_flow(flow(nodes, "w.out>g.data", cycle_timeout=60), types=TYPES)
    assert (outcome.status, outcome.nodes["w"].status) == ("timeout", "terminated")
    assert outcome.took_s < 61


async def test_signals_from_outside() -> None:
    document = flow({"ask": "t_person", "then": "t_gather"}, "ask.out>then.data")
    outcome = await run_flow(document, types=TYPES, signals={"ask.decision": True})
    assert outcome.outputs["then"]["out"] == {"out": True}
    waits = await run_flow(document, types=TYPES)
    assert (waits.status, waits.nodes["ask"].status, waits.nodes["then"].status) == (
        "running", "awaiting_input", "pending"
    )  # fmt: skip
    for wrong in ("nobody.decision", "ask.nothing"):
        with pytest.raises(Invalid) as caught:
            await run_flow(document, types=TYPES, signals={wrong: True})
        assert caught.value.problems[0].path == wrong


async def test_a_node_may_wait_for_a_handle_that_only_the_flow_says_is_external() -> None:
    document = flow({"a": ("t_add", {}, {"external": ["a"]})})
    assert (await run_flow(document, types=TYPES)).status == "running"
    assert (await run_flow(document, types=TYPES, signals={"a.a": 2})).outputs == {"a": {"result": 102.0}}


async def test_flows_that_a_flow_starts() -> None:
    child = flow({"ask": "t_person", "w": ("t_wait", {"seconds": 50})}, "ask.out>w.value")
    document = flow({"a": ("t_parent",), "s": ("t_source", {"value": True})}, "s.out>a.item")
    outcome = await run_flow(document, types=TYPES, flows={"child": child | {"id": "child"}})
    said = {"flow": "child", "cycle": 0, "status": "completed"}
    assert outcome.outputs["a"]["out"] == [said, {"ask": {"out": True}, "w": {"out": [True, 1]}}]
    assert 50 <= outcome.took_s < 60
    impatient = flow({"a": ("t_parent", {"patience": 10}, {"inputs": {"item": True}})})
    outcome = await run_flow(impatient, types=TYPES, flows={"child": child | {"id": "child"}})
    assert outcome.outputs["a"]["out"][0]["status"] == "running"
    lost = await run_flow(impatient, types=TYPES)
    assert lost.nodes["a"].error == "NotFound: there is no flow 'child'"


async def test_a_flow_that_could_not_be_registered_is_refused_with_all_problems() -> None:
    document = flow({"a": ("t_source", {"nope": 1}), "b": "t_add"}, "a.nothing>b.a")
    with pytest.raises(Invalid) as caught:
        await run_flow(document, types=TYPES)
    assert len(caught.value.problems) >= 2


async def test_a_node_type_may_check_its_config() -> None:
    @node("t_picky", registry=NodeRegistry())
    class Picky(Node):
        word: str = ""

        @classmethod
        def check_config(cls, config: dict[str, Any], inputs: Any) -> list[Problem]:
            return [Problem("bad_word", "word", "not that one")] if config.get("word") == "bad" else []

        async def execute(self) -> None: ...

    with pytest.raises(Invalid) as caught:
        await run_flow(flow({"a": ("t_picky", {"word": "bad"})}), types=[Picky])
    assert caught.value.problems == (Problem("bad_word", "nodes[0].config.word", "not that one"),)


def test_from_code_that_is_not_async() -> None:
    assert run_node_once_sync(add, inputs={"a": 1}).outputs == {"result": 101.0}
    assert run_flow_sync(flow({"a": "t_source"}), types=TYPES).status == "completed"


async def test_a_long_chain_does_not_recurse() -> None:
    nodes: dict[str, Any] = {"n0": "t_source"} | {f"n{i}": ("t_quick", {}) for i in range(1, 3000)}

    @node("t_quick", inline=True, registry=NodeRegistry())
    def quick(a: float) -> float:
        return a + 1

    edges = [f"n{i}.{'out' if i == 0 else 'result'}>n{i + 1}.a" for i in range(2999)]
    outcome = await run_flow(flow(nodes, *edges), types=[*TYPES, quick])
    assert outcome.outputs["n2999"] == {"result": 3000.0}


async def test_an_exception_type_is_kept_for_the_reader() -> None:
    @node("t_fails", registry=NodeRegistry())
    def fails() -> None:
        raise NodeExecutionException("no luck")

    outcome = await run_flow(flow({"a": "t_fails"}), types=[fails])
    assert outcome.nodes["a"].error == "NodeExecutionException: no luck"
