"""What a failure does: tombstones, trigger rules, retries, timeouts, and what the cycle says about it."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

import pytest

from tests.flows.engine import Ended, Engine, until
from tests.flows.engine_nodes import stage


def _finished(ended: Ended, node_id: str) -> float:
    return datetime.fromisoformat(ended.nodes[node_id]["finished_at"]).timestamp()


async def test_a_failure_ends_its_descendants_at_once_and_nothing_else(station: Engine) -> None:
    nodes = {"s": "e_send", "bad": "e_fail", "other": "e_note", "alone": "e_send", "alone2": "e_note"}
    nodes |= {f"d{i}": "e_note" for i in range(5)}
    edges = ["s.a>bad.value", "s.a>other.x", "bad.a>d0.x", "alone.a>alone2.x"]
    ended = await station.go(nodes, *edges, *(f"d{i}.a>d{i + 1}.x" for i in range(4)))
    assert ended.status == "failed"
    assert {ended.states[f"d{i}"] for i in range(5)} == {"skipped"}
    assert ended.states["other"] == ended.states["alone2"] == "completed"
    assert ended.counts == {"total": 10, "open": 0, "completed": 4, "failed": 1, "skipped": 5, "terminated": 0}
    assert ended.nodes["bad"]["error_message"] == "ValueError: on purpose"
    for i in range(5):
        assert _finished(ended, f"d{i}") - _finished(ended, "bad") < 0.1
        assert ended.nodes[f"d{i}"]["error_message"] == "upstream_failed: bad: ValueError: on purpose"
    assert ended.view["error"] == "bad: ValueError: on purpose"


async def test_a_failure_waits_for_no_slow_branch(station: Engine) -> None:
    """The descendants end while another branch still runs."""
    flow_id = await station.register({"slow": "e_block", "bad": "e_fail", "d": "e_note"}, "bad.a>d.x")
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "d", "skipped")
    assert (await station.states(flow_id, cycle))["slow"] == "running"
    stage.gate(flow_id).set()
    assert (await station.end(flow_id, cycle)).status == "failed"


@pytest.mark.parametrize(
    ("rule", "parents", "state"),
    [
        ("all_success", "value value", "completed"),
        ("all_success", "value failed", "skipped"),
        ("all_success", "value skipped", "skipped"),
        ("all_done", "failed failed", "completed"),
        ("all_done", "skipped failed", "completed"),
        ("none_failed", "value skipped", "completed"),
        ("none_failed", "value failed", "skipped"),
        ("none_failed", "skipped skipped", "skipped"),
        ("any_success", "value failed", "completed"),
        ("any_success", "failed skipped", "skipped"),
    ],
)
async def test_a_trigger_rule_decides(station: Engine, rule: str, parents: str, state: str) -> None:
    kinds = {"value": ("e_send", {"values": {"a": 1}}), "failed": "e_fail", "skipped": ("e_send", {"values": {"b": 1}})}
    first, second = parents.split()
    nodes: dict[str, Any] = {"p": kinds[first], "q": kinds[second], "end": "e_note"}
    nodes |= {"j": ("e_gather", {}, {"trigger_rule": rule}), "after": ("e_gather", {}, {"trigger_rule": "all_done"})}
    ended = await station.go(nodes, "p.a>j.data", "q.a>j.data", "j.a>end.x", "end.a>after.data")
    assert ended.states["j"] == state
    assert ended.states["end"] == state
    assert ended.states["after"] == "completed"
    assert ended.status == ("failed" if "failed" in parents else "completed")


async def test_a_retry_that_succeeds_leaves_no_failure(station: Engine) -> None:
    nodes = {"r": ("e_fail", {"times": 2}, {"retries": 3, "backoff": 0.1}), "end": "e_note"}
    ended = await station.go(nodes, "r.a>end.x")
    assert ended.status == "completed"
    assert ended.got("end") == 3
    assert stage.ran(ended.flow_id).count("r") == 3
    assert ended.nodes["r"]["error_message"] is None


async def test_retries_that_are_used_up_fail_the_node(station: Engine) -> None:
    ended = await station.go({"r": ("e_fail", {}, {"retries": 2, "backoff": 0.1}), "d": "e_note"}, "r.a>d.x")
    assert ended.states == {"r": "failed", "d": "skipped"}
    assert stage.ran(ended.flow_id) == ["r"] * 3
    assert ended.nodes["r"]["attempt"] == 3


async def test_a_node_waiting_for_its_retry_is_pending(station: Engine) -> None:
    flow_id = await station.register({"r": ("e_fail", {"times": 1}, {"retries": 1, "backoff": 60})})
    cycle = await station.run(flow_id)

    await station.running(flow_id, "r")
    await station.node_is(flow_id, cycle, "r", "pending")
    view = (await station.flows.status.cycle(flow_id, cycle))["nodes"]["r"]
    assert "on purpose" in view["message"]
    state = await station.hash(station.keys.node_state(f"{flow_id}_{cycle}_r"))
    assert state["status"] == "pending"
    assert await station.flows.terminate(flow_id, cycle, "r")
    assert (await station.end(flow_id, cycle)).states == {"r": "terminated"}


async def test_a_node_past_its_timeout_fails(station: Engine) -> None:
    nodes = {"slow": ("e_block", {}, {"timeout": 0.3}), "d": "e_note"}
    ended = await station.go(nodes, "slow.a>d.x")
    assert ended.states == {"slow": "failed", "d": "skipped"}
    assert ended.status == "failed"
    assert "longer than its timeout" in ended.nodes["slow"]["error_message"]


async def test_a_timeout_is_an_attempt_and_is_retried(station: Engine) -> None:
    flow_id = await station.register({"slow": ("e_block", {}, {"timeout": 0.3, "retries": 1, "backoff": 0.1})})
    cycle = await station.run(flow_id)

    async def is_twice() -> bool:
        return stage.ran(flow_id) == ["slow", "slow"]

    await until(is_twice, "the second attempt")
    stage.gate(flow_id).set()
    assert (await station.end(flow_id, cycle)).status == "completed"


async def test_a_node_that_answers_false_has_failed_and_sends_nothing(station: Engine) -> None:
    ended = await station.go({"s": "e_false", "d": "e_note"}, "s.a>d.x")
    assert ended.states == {"s": "failed", "d": "skipped"}
    assert stage.ran(ended.flow_id) == ["s"]


async def test_an_error_keeps_its_odd_characters_short(station: Engine) -> None:
    error = 'quotes " \\ and\nlines\x01 价格 ' + "x" * 5000
    ended = await station.go({"bad": ("e_fail", {"error": error})})
    message = ended.nodes["bad"]["error_message"]
    assert message.startswith('ValueError: quotes " \\ and\nlines')
    assert len(message) <= 600


@pytest.mark.parametrize(
    ("policy", "same", "other"),
    [("isolate", "completed", "completed"), ("stop_component", "x", "completed"), ("stop_flow", "x", "x")],
)
async def test_on_failure_decides_how_much_ends(station: Engine, policy: str, same: str, other: str) -> None:
    """`same` hangs in the failed node's component behind a slow one, `other` in another component."""
    flow_id, hold = station.new_id(), secrets.token_hex(4)
    nodes: dict[str, Any] = {"s": "e_send", "hold": ("e_block", {"gate": hold}), "bad": "e_fail"}
    nodes |= {"slow": "e_block", "same": "e_note", "slow2": "e_block", "other": "e_note"}
    edges = ["s.a>hold.value", "hold.a>bad.value", "s.a>slow.value", "slow.a>same.x", "slow2.a>other.x"]
    await station.register(nodes, *edges, id=flow_id, on_failure=policy)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "hold", "slow", "slow2")
    stage.gate(hold).set()
    await station.node_is(flow_id, cycle, "bad", "failed")
    if same == "x":
        await station.node_is(flow_id, cycle, "slow", "terminated")
    if other == "x":
        await station.node_is(flow_id, cycle, "slow2", "terminated")
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.states["bad"] == "failed"
    assert ended.states["same"] == ("skipped" if same == "x" else same)
    assert ended.states["other"] == ("skipped" if other == "x" else other)
    assert ended.status == "failed"
    assert stage.ran(flow_id).count("same") == (same == "completed")


async def test_too_many_failed_cycles_in_a_row_end_the_flow(station: Engine) -> None:
    flow_id = await station.register({"bad": "e_fail"}, interval=0.1, max_failures=3)
    await station.flows.start(flow_id)
    await station.flow_is(flow_id, "failed")
    assert await station.last_cycle(flow_id) == 2
    assert await station.redis.zscore(station.keys.flows_due(), flow_id) is None
    view = await station.flows.get(flow_id)
    assert view["failures_in_a_row"] == 3
    await station.flows.start(flow_id)
    assert (await station.flows.get(flow_id))["failures_in_a_row"] in (0, 1, 2)
    await station.flow_is(flow_id, "failed")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("'x' * 2_000_000", "at most 1048576"),
        ("{'a': float('nan')}", "JSON"),
        ("[float('inf')]", "JSON"),
        ("object()", "JSON"),
        ("{1: {2: {3, object()}}}", "JSON"),
        ("deep()", "JSON"),
        ("'\\ud800'", "JSON"),
        ("10 ** 5000", "JSON"),
    ],
)
async def test_outputs_that_cannot_be_carried_fail_the_node(station: Engine, made: str, said: str) -> None:
    nodes = {"bad": ("e_make", {"made": made}), "d": "e_note", "s": "e_send", "ok": "e_note"}
    ended = await station.go(nodes, "bad.a>d.x", "s.a>ok.x")
    assert ended.states == {"bad": "failed", "d": "skipped", "s": "completed", "ok": "completed"}
    assert said in ended.nodes["bad"]["error_message"]
