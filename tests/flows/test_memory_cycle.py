"""The rules of a cycle, as the in-memory engine keeps them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.flows.flow_nodes import TYPES, flow
from tradewind.flows.node import (
    Input,
    Node,
    NodeExecutionException,
    node,
)
from tradewind.flows.node_registry import NodeRegistry
from tradewind.flows.testing import run_flow


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
    [
        ("isolate", "completed", "completed"),
        ("stop_component", "skipped", "completed"),
        ("stop_flow", "skipped", "skipped"),
    ],
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


async def test_a_node_that_changes_its_input_changes_it_for_nobody_else() -> None:
    @node("t_changes", inline=True, registry=NodeRegistry())
    def changes(rows: list[int]) -> list[int]:
        rows.append(2)
        return rows

    nodes = {"a": ("t_source", {"value": [1]}), "b": "t_changes", "c": "t_changes"}
    outcome = await run_flow(flow(nodes, "a.out>b.rows", "a.out>c.rows"), types=[*TYPES, changes])
    assert outcome.outputs == {"a": {"out": [1]}, "b": {"result": [1, 2]}, "c": {"result": [1, 2]}}
