"""The helpers for tests of nodes and flows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flows.flow_nodes import TYPES, Gather, Source, Wait, add, flow
from tests.flows.node_helpers import tombstone
from tradewind.errors import Invalid, NotFound, Problem
from tradewind.flows.call import Stop
from tradewind.flows.node import (
    Node,
    NodeValidationException,
    node,
)
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.syntax import parse_flow
from tradewind.flows.testing import run_flow, run_flow_sync, run_node_once, run_node_once_sync
from tradewind.signals.signal import new_signal


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
