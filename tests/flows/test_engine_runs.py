"""Cycles outside of the schedule: run now, with signals, in part, again; webhooks and other events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flows.engine import Engine
from tests.flows.engine_nodes import stage
from tradewind.errors import Conflict, Invalid, NotFound

#: a → b → c → d, b → e; and another component z.
NODES: dict[str, Any] = {"a": ("e_send", {"values": {"a": 5}})} | {n: "e_note" for n in "bcde"} | {"z": "e_send"}
EDGES = ["a.a>b.x", "b.a>c.x", "c.a>d.x", "b.a>e.x"]


async def test_runs_are_numbered_one_after_the_other(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"}, interval=3600)
    cycles = await asyncio.gather(*(station.run(flow_id) for _ in range(10)))
    assert sorted(cycles) == list(range(10))
    for cycle in cycles:
        assert (await station.end(flow_id, cycle)).status == "completed"
    assert await station.last_cycle(flow_id) == 9
    view = await station.flows.status.cycle(flow_id, 0)
    assert (view["trigger"], view["slot"]) == ("manual", None)


async def test_the_same_run_id_is_the_same_cycle(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"})
    first = await station.flows.run(flow_id, run_id="r1")
    assert await station.flows.run(flow_id, run_id="r1") == first
    assert await station.flows.run(flow_id, run_id="r2") == first + 1


async def test_a_run_with_signals_feeds_handles(station: Engine) -> None:
    nodes = {"ask": "e_ask", "t": "e_two"}
    flow_id = await station.register(nodes, "ask.a>t.x")
    ended = await station.end(flow_id, await station.run(flow_id, signals={"ask.word": "go", "t.y": 7}))
    assert (ended.got("ask"), ended.got("t")) == ("go", ("go", 7))


async def test_a_given_signal_stands_for_the_edge(station: Engine) -> None:
    """The node does not wait for its source, and what that sends later does not count twice."""
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    cycle = await station.run(flow_id, signals={"d.x": "now"})
    await station.node_is(flow_id, cycle, "d", "completed")
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.got("d") == "now"
    assert ended.status == "completed"


async def test_signals_for_what_is_not_there_are_refused_together(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"})
    with pytest.raises(Invalid) as caught:
        await station.run(flow_id, signals={"nobody.x": 1, "s": 2})
    assert len(caught.value.problems) == 2
    assert await station.last_cycle(flow_id) == -1


async def _full(station: Engine) -> str:
    flow_id = await station.register(NODES, *EDGES)
    ended = await station.end(flow_id, await station.run(flow_id))
    assert set(ended.states.values()) == {"completed"}
    stage.runs.clear()
    return flow_id


@pytest.mark.parametrize(
    ("mode", "runs"),
    [("single", "c"), ("", "c"), ("upstream", "a b c"), ("downstream", "c d"), ("component", "a b c d e")],
)
async def test_a_partial_run_takes_its_part_with_stored_signals(station: Engine, mode: str, runs: str) -> None:
    flow_id = await _full(station)
    ended = await station.end(flow_id, await station.run(flow_id, node="c", mode=mode))
    assert sorted(stage.ran(flow_id)) == sorted(runs.split())
    assert ended.status == "completed"
    assert ended.got("c") == 5
    for name, state in ended.states.items():
        assert state == ("completed" if name in runs.split() else "skipped")
    assert ended.view["trigger"] == "partial"
    skipped = next(iter(set(NODES) - set(runs.split())))
    assert ended.nodes[skipped]["message"] == "not part of this run"
    assert (await station.flows.get(flow_id))["status"] == "completed"


async def test_a_partial_run_can_be_given_its_signals(station: Engine) -> None:
    flow_id = await station.register(NODES, *EDGES)
    ended = await station.end(flow_id, await station.run(flow_id, node="c", mode="downstream", signals={"c.x": 9}))
    assert (ended.got("c"), ended.got("d")) == (9, 9)
    assert ended.status == "completed"


async def test_a_given_signal_wins_over_a_stored_one(station: Engine) -> None:
    flow_id = await _full(station)
    ended = await station.end(flow_id, await station.run(flow_id, node="d", mode="single", signals={"d.x": 1}))
    assert ended.got("d") == 1


async def test_a_partial_run_without_any_signal_skips_its_node(station: Engine) -> None:
    flow_id = await station.register(NODES, *EDGES)
    ended = await station.end(flow_id, await station.run(flow_id, node="c", mode="single"))
    assert ended.states["c"] == "skipped"
    assert ended.status == "completed"


async def test_stored_signals_may_come_from_a_named_cycle(station: Engine) -> None:
    flow_id = await station.register({"ask": "e_ask", "b": "e_note", "c": "e_note"}, "ask.a>b.x", "b.a>c.x")
    for word in ("one", "two"):
        await station.end(flow_id, await station.run(flow_id, signals={"ask.word": word}))
    stage.runs.clear()
    await station.end(flow_id, await station.run(flow_id, node="c", mode="single", from_cycle=0))
    await station.end(flow_id, await station.run(flow_id, node="b", mode="single", from_cycle=1))
    assert (stage.got(flow_id, "c"), stage.got(flow_id, "b")) == (["one"], ["two"])
    with pytest.raises(NotFound):
        await station.run(flow_id, node="c", mode="single", from_cycle=99)


async def test_stored_signals_are_the_last_there_are(station: Engine) -> None:
    """A partial run between does not hide what an earlier cycle sent."""
    nodes = {"a": "e_send", "b": "e_note", "y": ("e_send", {"values": {"a": 2}}), "z": "e_note"}
    flow_id = await station.register(nodes, "a.a>b.x", "y.a>z.x")
    await station.end(flow_id, await station.run(flow_id))
    await station.end(flow_id, await station.run(flow_id, node="b", mode="single"))
    stage.runs.clear()
    ended = await station.end(flow_id, await station.run(flow_id, node="z", mode="single"))
    assert ended.got("z") == 2


async def test_a_partial_run_of_nothing_known_is_refused(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"})
    with pytest.raises(NotFound):
        await station.run(flow_id, node="nobody", mode="single")
    with pytest.raises(Invalid):
        await station.run(flow_id, node="s", mode="sideways")


async def test_a_cycle_can_be_run_again_with_what_it_was_given(station: Engine) -> None:
    flow_id = await station.register({"ask": "e_ask", "b": "e_note"}, "ask.a>b.x")
    await station.end(flow_id, await station.run(flow_id, signals={"ask.word": "first"}))
    await station.end(flow_id, await station.run(flow_id, signals={"ask.word": "second"}))
    again = await station.flows.run_again(flow_id, 0)
    ended = await station.end(flow_id, again)
    assert (again, ended.view["trigger"], ended.status) == (2, "again", "completed")
    assert stage.got(flow_id, "b") == ["first", "second", "first"]
    with pytest.raises(NotFound):
        await station.flows.run_again(flow_id, 99)


async def test_a_webhook_feeds_what_its_trigger_names(station: Engine) -> None:
    nodes, triggers = {"ask": "e_ask", "other": "e_two"}, [{"type": "webhook", "to": "ask.word"}]
    flow_id = await station.register(
        nodes, "ask.a>other.x", schedule={"manual": True}, interval=None, triggers=triggers
    )
    cycle = await station.flows.webhook(flow_id, {"n": 1})
    ended = await station.end(flow_id, cycle)
    assert ended.got("ask") == {"n": 1}
    assert ended.view["trigger"] == "webhook"
    assert (await station.flows.get(flow_id))["status"] == "registered"


async def test_a_webhook_without_a_target_feeds_what_waits_for_the_outside(station: Engine) -> None:
    flow_id = await station.register({"ask": "e_ask", "s": "e_send"}, webhook=True)
    ended = await station.end(flow_id, await station.flows.webhook(flow_id, "hello"))
    assert ended.got("ask") == "hello"


async def test_a_flow_without_a_webhook_refuses_one(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"})
    with pytest.raises(Conflict, match="no webhook"):
        await station.flows.webhook(flow_id, {})


async def test_an_event_of_another_room_starts_a_cycle(station: Engine) -> None:
    flow_id = await station.register(
        {"ask": "e_ask"}, interval=3600, triggers=[{"type": "point", "address": "comsrv:1001:m:1", "to": "ask.word"}]
    )
    ended = await station.end(flow_id, await station.flows.fire(flow_id, "point", 21.5))
    assert (ended.got("ask"), ended.view["trigger"]) == (21.5, "point")
