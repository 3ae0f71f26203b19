"""Built-in nodes inside whole flows, in memory: what is skipped, what stops, what waits."""

from __future__ import annotations

from typing import Any

import pytest

import tradewind.nodes  # noqa: F401 — registers them
from tradewind.errors import Invalid
from tradewind.flows.testing import run_flow

Wire = tuple[str, str]


def flow(nodes: dict[str, dict[str, Any]], *wires: Wire) -> dict[str, Any]:
    """`wires`: ("a.out", "b.in")."""
    edges = []
    for source, target in wires:
        (a, out), (b, into) = source.split("."), target.split(".")
        edges.append({"source": a, "source_handle": out, "target": b, "target_handle": into})
    return {"id": "f", "interval": 0, "nodes": [{"id": name, **node} for name, node in nodes.items()], "edges": edges}


def constant(value: Any) -> dict[str, Any]:
    return {"type": "constant", "config": {"value": value}}


def broken() -> dict[str, Any]:
    return {"type": "expression", "config": {"expression": "1 / 0"}}


def statuses(outcome: Any) -> dict[str, str]:
    return {name: run.status for name, run in outcome.nodes.items()}


async def test_the_way_not_taken_is_skipped() -> None:
    document = flow(
        {
            "price": constant(3),
            "check": {"type": "condition", "config": {"expression": "value > 2"}},
            "yes": {"type": "log", "config": {"message": "high: {value}"}},
            "no": {"type": "log", "config": {"message": "low: {value}"}},
        },
        ("price.value", "check.value"), ("check.true", "yes.value"), ("check.false", "no.value"),
    )  # fmt: skip
    outcome = await run_flow(document)
    assert outcome.status == "completed"
    assert statuses(outcome) == {"price": "completed", "check": "completed", "yes": "completed", "no": "skipped"}
    assert [line.message for line in outcome.logs] == ["high: 3"]


async def test_a_condition_that_is_not_met_ends_the_cycle_well() -> None:
    """Example 3 of seed 003."""
    document = flow(
        {
            "price": constant(3),
            "check": {"type": "condition", "config": {"expression": "price < 2", "stop": True}},
            "buy": {"type": "log", "config": {"message": "buy"}},
        },
        ("price.value", "check.price"), ("check.false", "buy.value"),
    )  # fmt: skip
    outcome = await run_flow(document)
    assert outcome.status == "completed"
    assert outcome.stopped_by == "check"
    assert outcome.nodes["buy"].status == "terminated"
    assert "Condition not met: price < 2" in outcome.nodes["buy"].error


@pytest.mark.parametrize(
    "node",
    [
        {"type": "delay", "config": {"seconds": 1}},
        {"type": "log", "config": {"message": "x"}},
        {"type": "condition", "config": {"expression": "1"}},
        {"type": "switch", "config": {"cases": {}, "default": "d"}},
        {"type": "aggregate", "config": {}},
    ],
    ids=lambda node: node["type"],
)
async def test_what_passes_values_on_does_not_hide_a_failure(node: dict[str, Any]) -> None:
    handle = "data" if node["type"] == "aggregate" else "value"
    outcome = await run_flow(flow({"bad": broken(), "next": node}, ("bad.result", f"next.{handle}")))
    assert outcome.status == "failed"
    assert statuses(outcome) == {"bad": "failed", "next": "skipped"}


async def test_an_approval_does_not_ask_about_what_failed() -> None:
    document = flow({"bad": broken(), "ask": {"type": "approval"}}, ("bad.result", "ask.request"))
    assert statuses(await run_flow(document, signals={"ask.decision": True})) == {"bad": "failed", "ask": "skipped"}


async def test_a_decision_comes_from_outside() -> None:
    go = {"type": "log", "config": {"message": "go"}}
    document = flow(
        {"order": constant({"amount": 5}), "ask": {"type": "approval"}, "go": go},
        ("order.value", "ask.request"), ("ask.approved", "go.value"),
    )  # fmt: skip
    outcome = await run_flow(document, signals={"ask.decision": {"approved": True, "by": "ann"}})
    assert outcome.nodes["go"].outputs["value"] == {"request": {"amount": 5}, "approved": True, "note": "", "by": "ann"}


async def test_a_delay_takes_its_time() -> None:
    document = flow({"a": constant(1), "wait": {"type": "delay", "config": {"seconds": 90}}}, ("a.value", "wait.value"))
    outcome = await run_flow(document)
    assert outcome.nodes["wait"].outputs == {"value": 1}
    assert 90 <= outcome.took_s < 100


async def test_flows_inside_of_flows() -> None:
    inner = flow(
        {
            "take": {"type": "log", "config": {"message": "got it"}, "external": ["value"]},
            "square": {"type": "expression", "config": {"expression": "x * x"}},
        },
        ("take.value", "square.x"),
    )
    outer = flow(
        {
            "list": constant([1, 2, 3, 4, 5]),
            "each": {
                "type": "map",
                "config": {"flow": "inner", "input": "take.value", "output": "square.result", "concurrency": 2},
            },
            "three": constant(3),
            "once": {"type": "subflow", "config": {"flow": "inner", "inputs": {"n": "take.value"}}},
        },
        ("list.value", "each.items"), ("three.value", "once.n"),
    )  # fmt: skip
    outcome = await run_flow(outer, flows={"inner": {**inner, "id": "inner"}})
    assert outcome.status == "completed", outcome
    assert outcome.nodes["each"].outputs == {"results": [1, 4, 9, 16, 25], "errors": []}
    assert outcome.nodes["once"].outputs == {"outputs": {"take": {"value": 3}, "square": {"result": 9}}}


async def test_a_bad_expression_is_refused_before_anything_runs() -> None:
    document = flow(
        {"a": constant(1), "b": {"type": "expression", "config": {"expression": "a.real"}}}, ("a.value", "b.a")
    )
    with pytest.raises(Invalid) as caught:
        await run_flow(document)
    assert any(problem.path.startswith("nodes[1].config.expression") for problem in caught.value.problems)
