"""Nodes that wait hold no slot: delays, people, signals from outside; and why a node waits."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from tests.flows.engine import Engine
from tests.flows.engine_nodes import stage
from tradewind.errors import Conflict, Invalid, NotFound

Make = Callable[..., Awaitable[Engine]]


async def test_a_delay_holds_no_slot(make_station: Make) -> None:
    station = await make_station(worker__concurrency=1)
    nodes = {f"w{i}": ("delay", {"seconds": 0.5}) for i in range(20)}
    flow_id = await station.register({**nodes, "s": "e_send", "t": "e_note"}, "s.a>t.x")
    began = time.monotonic()
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "t", "completed")
    ended = await station.end(flow_id, cycle)
    assert ended.status == "completed"
    assert time.monotonic() - began < 5  # one after the other would take ten seconds


async def test_a_delay_passes_values_on_later(station: Engine) -> None:
    nodes = {"s": ("e_send", {"values": {"a": 3}}), "w": ("delay", {"seconds": 0.3}), "t": "e_note"}
    ended = await station.go(nodes, "s.a>w.value", "w.value>t.x")
    assert ended.got("t") == 3
    assert ended.nodes["w"]["finished_at"] > ended.nodes["s"]["finished_at"]


async def test_a_person_decides_while_other_work_goes_on(make_station: Make) -> None:
    station = await make_station(worker__concurrency=1)
    nodes = {"s": ("e_send", {"values": {"a": {"sum": 9}}}), "ok": ("approval", {"message": "Sell?"}), "yes": "e_note"}
    edges = ["s.a>ok.request", "ok.approved>yes.x", "ok.rejected>no.x"]
    flow_id = await station.register({**nodes, "no": "e_note"}, *edges)
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "ok", "awaiting_input")
    assert (await station.go({"a": "e_send", "b": "e_note"}, "a.a>b.x")).status == "completed"
    why = await station.flows.status.why(flow_id, cycle, "ok")
    assert why["status"] == "awaiting_input"
    assert "decision" in why["reason"]
    assert why["arrived"] == ["s:a->request"]
    view = await station.flows.status.comprehensive(flow_id, cycle)
    assert view["statistics"]["pending_nodes"] == 3
    decision = {"approved": True, "note": "fine", "by": "ann"}
    assert await station.flows.give_input(flow_id, cycle, "ok", "decision", decision) is True
    ended = await station.end(flow_id, cycle)
    assert ended.states == {"s": "completed", "ok": "completed", "yes": "completed", "no": "skipped"}
    assert ended.got("yes") == {"request": {"sum": 9}, "approved": True, "note": "fine", "by": "ann"}
    with pytest.raises(Conflict):
        await station.flows.give_input(flow_id, cycle, "ok", "decision", True)


@pytest.mark.parametrize(("on_timeout", "states"), [("approve", ("completed", "skipped")), ("fail", ("skipped",) * 2)])
async def test_nobody_decides_in_time(station: Engine, on_timeout: str, states: tuple[str, str]) -> None:
    nodes = {"ok": ("approval", {"timeout": 0.4, "on_timeout": on_timeout}), "yes": "e_note", "no": "e_note"}
    ended = await station.go(nodes, "ok.approved>yes.x", "ok.rejected>no.x")
    assert (ended.states["yes"], ended.states["no"]) == states
    assert ended.status == ("failed" if on_timeout == "fail" else "completed")


async def test_a_decision_given_with_the_run_needs_nobody(station: Engine) -> None:
    flow_id = await station.register({"ok": "approval", "yes": "e_note"}, "ok.approved>yes.x")
    ended = await station.end(flow_id, await station.run(flow_id, signals={"ok.decision": True}))
    assert ended.states == {"ok": "completed", "yes": "completed"}


async def test_a_decision_that_comes_before_the_question_counts(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block", "ok": "approval"}, "slow.a>ok.request")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    assert await station.flows.give_input(flow_id, cycle, "ok", "decision", True)
    assert await station.flows.give_input(flow_id, cycle, "ok", "decision", False) is False
    stage.gate(flow_id).set()
    assert (await station.end(flow_id, cycle)).states["ok"] == "completed"


async def test_a_handle_that_waits_for_the_outside(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send", "ask": "e_ask", "t": "e_note"}, "s.a>ask.value", "ask.a>t.x")
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "ask", "awaiting_input")
    why = await station.flows.status.why(flow_id, cycle, "ask")
    assert why["missing"] == [{"input": "word", "from": None, "source_status": "outside"}]
    assert await station.flows.give_input(flow_id, cycle, "ask", "", "hello") is True
    ended = await station.end(flow_id, cycle)
    assert ended.got("t") == "hello"


async def test_why_names_what_is_missing(station: Engine) -> None:
    nodes = {"s": "e_send", "slow": "e_block", "j": "e_two", "k": "e_note"}
    flow_id = await station.register(nodes, "s.a>j.y", "slow.a>j.x", "j.a>k.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    await station.node_is(flow_id, cycle, "s", "completed")

    why = await station.flows.status.why(flow_id, cycle, "j")
    while not why["arrived"]:
        why = await station.flows.status.why(flow_id, cycle, "j")
    assert (why["status"], why["arrived"]) == ("pending", ["s:a->y"])
    assert why["missing"] == [{"input": "x", "from": "slow:a", "source_status": "running"}]
    assert why["reason"] == "waits for slow:a"
    assert station.worker_id in (await station.flows.status.why(flow_id, cycle, "slow"))["reason"]
    assert "completed" in (await station.flows.status.why(flow_id, cycle, "s"))["reason"]
    with pytest.raises(NotFound):
        await station.flows.status.why(flow_id, cycle, "nobody")
    with pytest.raises(NotFound):
        await station.flows.status.why(flow_id, 99, "j")


async def test_an_input_for_nothing_is_refused(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    cycle = await station.run(flow_id)
    with pytest.raises(Invalid):
        await station.flows.give_input(flow_id, cycle, "d", "nothing", 1)
    with pytest.raises(NotFound):
        await station.flows.give_input(flow_id, cycle, "nobody", "x", 1)
    with pytest.raises(NotFound):
        await station.flows.give_input(flow_id, 99, "d", "x", 1)


async def test_an_operator_may_stand_in_for_a_source(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    assert await station.flows.give_input(flow_id, cycle, "d", "x", "mine") is True
    await station.node_is(flow_id, cycle, "d", "completed")
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert (ended.status, ended.got("d")) == ("completed", "mine")


async def test_more_that_wait_than_there_are_slots(make_station: Make) -> None:
    """Two slots; 50 delays, 20 approvals and a chain in between: nothing blocks anything."""
    station = await make_station(worker__concurrency=2)
    nodes: dict[str, object] = {f"w{i}": ("delay", {"seconds": 0.4}) for i in range(50)}
    nodes |= {f"p{i}": "approval" for i in range(20)} | {f"c{i}": "e_note" for i in range(1, 10)} | {"c0": "e_send"}
    flow_id = await station.register(nodes, *(f"c{i}.a>c{i + 1}.x" for i in range(9)))
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "c9", "completed")
    for i in range(20):
        await station.node_is(flow_id, cycle, f"p{i}", "awaiting_input")
    for i in range(20):
        assert await station.flows.give_input(flow_id, cycle, f"p{i}", "decision", True)
    ended = await station.end(flow_id, cycle)
    assert ended.counts["completed"] == len(nodes)


async def test_more_that_run_than_there_are_slots(make_station: Make) -> None:
    station = await make_station(worker__concurrency=2)
    nodes = {"s": "e_send", "j": "e_gather"} | {f"m{i}": ("e_nap", {"seconds": 0.01}) for i in range(60)}
    edges = [f"s.a>m{i}.value" for i in range(60)] + [f"m{i}.a>j.data" for i in range(60)]
    ended = await station.go(nodes, *edges)
    assert ended.status == "completed"
    assert len(ended.got("j")) == 60


async def test_a_wrong_approver_is_refused_and_the_node_goes_on_waiting(station: Engine) -> None:
    nodes = {"ok": ("approval", {"approvers": ["ann"]}), "yes": "e_note"}
    flow_id = await station.register(nodes, "ok.approved>yes.x")
    with pytest.raises(Invalid, match="refused"):
        await station.run(flow_id, signals={"ok.decision": {"approved": True, "by": "eve"}})
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "ok", "awaiting_input")
    for decision in (True, {"approved": True, "by": "eve"}, {"approved": True}, "yes", {"approved": 1}, None, [True]):
        with pytest.raises(Invalid) as caught:
            await station.flows.give_input(flow_id, cycle, "ok", "decision", decision)
        assert caught.value.code in ("not_an_approver", "bad_decision")
    assert (await station.states(flow_id, cycle))["ok"] == "awaiting_input"
    assert await station.flows.give_input(flow_id, cycle, "ok", "decision", {"approved": True, "by": "ann"})
    ended = await station.end(flow_id, cycle)
    assert ended.states == {"ok": "completed", "yes": "completed"}


async def test_a_decision_while_the_question_is_being_asked_counts(station: Engine) -> None:
    """It comes after the node has read its inputs and before it is suspended."""
    flow_id = await station.register({"ask": "e_slow_ask", "t": "e_note"}, "ask.a>t.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "ask")
    assert await station.flows.give_input(flow_id, cycle, "ask", "word", "early") is True
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.got("t") == "early"
    assert stage.ran(flow_id) == ["ask", "ask", "t"]
