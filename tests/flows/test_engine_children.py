"""Nodes that run other flows: `subflow` and `map`, their waiting, their failures, their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.flows.engine import Engine
from tests.flows.engine_nodes import stage
from tradewind.errors import Conflict
from tradewind.flows.starting import start_child

Make = Callable[..., Awaitable[Engine]]


async def _doubler(station: Engine) -> str:
    nodes = {"in": "e_ask", "twice": ("expression", {"expression": "x * 2"})}
    return await station.register(nodes, "in.a>twice.x", schedule={"manual": True}, interval=None)


async def test_a_subflow_is_one_step_and_holds_no_slot(make_station: Make) -> None:
    station = await make_station(worker__concurrency=1)
    child = await _doubler(station)
    config = {"flow": child, "inputs": {"n": "in.word"}}
    nodes = {"s": ("e_send", {"values": {"a": 21}}), "sub": ("subflow", config), "end": "e_note"}
    ended = await station.go(nodes, "s.a>sub.n", "sub.outputs>end.x")
    assert ended.status == "completed"
    assert ended.got("end")["twice"] == {"result": 42}
    view = await station.flows.status.cycle(child, 0)
    assert (view["trigger"], view["status"]) == ("subflow", "completed")
    assert view["parent"] == f"{ended.flow_id}:{ended.cycle}:sub"


async def test_a_failed_child_fails_its_parent_node(station: Engine) -> None:
    child = await station.register({"bad": "e_fail"}, interval=3600)
    ended = await station.go({"sub": ("subflow", {"flow": child}), "d": "e_note"}, "sub.outputs>d.x")
    assert ended.states == {"sub": "failed", "d": "skipped"}
    assert "ended failed" in ended.nodes["sub"]["error_message"]


async def test_a_child_flow_that_is_not_there_fails_the_node(station: Engine) -> None:
    ended = await station.go({"sub": ("subflow", {"flow": "nobody"})})
    assert ended.states == {"sub": "failed"}
    assert "nobody" in ended.nodes["sub"]["error_message"]


async def test_a_flow_cannot_start_itself(station: Engine) -> None:
    flow_id = station.new_id()
    await station.register({"sub": ("subflow", {"flow": flow_id})}, id=flow_id)
    ended = await station.end(flow_id, await station.run(flow_id))
    assert ended.status == "failed"
    assert await station.last_cycle(flow_id) == 0


async def test_a_child_that_is_stopped_wakes_its_parent(station: Engine) -> None:
    child = await station.register({"slow": "e_block"}, interval=3600)
    flow_id = await station.register({"sub": ("subflow", {"flow": child})})
    cycle = await station.run(flow_id)
    await station.running(child, "slow")
    await station.node_is(flow_id, cycle, "sub", "pending")
    await station.flows.stop_cycle(child, 0)
    ended = await station.end(flow_id, cycle)
    assert "ended stopped" in ended.nodes["sub"]["error_message"]


async def test_a_subflow_past_its_timeout_fails(station: Engine) -> None:
    child = await station.register({"slow": "e_block"}, interval=3600)
    ended = await station.go({"sub": ("subflow", {"flow": child, "timeout": 0.4})})
    assert ended.states == {"sub": "failed"}
    assert "had not ended" in ended.nodes["sub"]["error_message"]


async def test_a_retried_subflow_starts_a_new_cycle(station: Engine) -> None:
    child = await station.register({"bad": "e_fail"}, interval=3600)
    ended = await station.go({"sub": ("subflow", {"flow": child}, {"retries": 1, "backoff": 0.1})})
    assert ended.states == {"sub": "failed"}
    assert stage.ran(child) == ["bad", "bad"]


async def test_a_map_runs_a_flow_for_each_item_in_order(make_station: Make) -> None:
    station = await make_station(worker__concurrency=2)
    child = await _doubler(station)
    config = {"flow": child, "input": "in.word", "output": "twice.result", "concurrency": 4}
    nodes = {"s": ("e_send", {"values": {"a": list(range(10))}}), "m": ("map", config), "end": "e_note"}
    ended = await station.go(nodes, "s.a>m.items", "m.results>end.x")
    assert ended.status == "completed"
    assert ended.got("end") == [2 * n for n in range(10)]
    assert await station.last_cycle(child) == 9


@pytest.mark.parametrize("on_error", ["fail", "collect"])
async def test_a_map_over_a_flow_that_fails_for_one_item(station: Engine, on_error: str) -> None:
    nodes = {"in": "e_ask", "out": ("expression", {"expression": "10 / x"})}
    child = await station.register(nodes, "in.a>out.x", schedule={"manual": True}, interval=None)
    config = {"flow": child, "input": "in.word", "output": "out.result", "on_error": on_error}
    parent = {"s": ("e_send", {"values": {"a": [1, 0, 5]}}), "m": ("map", config), "r": "e_note", "e": "e_note"}
    ended = await station.go(parent, "s.a>m.items", "m.results>r.x", "m.errors>e.x")
    if on_error == "fail":
        assert ended.states == {"s": "completed", "m": "failed", "r": "skipped", "e": "skipped"}
    else:
        assert ended.got("r") == [10, None, 2]
        (error,) = ended.got("e")
        assert error["index"] == 1


async def test_a_map_over_nothing_is_nothing(station: Engine) -> None:
    child = await _doubler(station)
    config = {"flow": child, "input": "in.word"}
    nodes = {"s": ("e_send", {"values": {"a": []}}), "m": ("map", config), "end": "e_note"}
    ended = await station.go(nodes, "s.a>m.items", "m.results>end.x")
    assert ended.got("end") == []


@pytest.mark.parametrize("way", ["node", "cycle", "flow", "deadline"])
async def test_children_are_stopped_with_their_parent(station: Engine, way: str) -> None:
    """Through two generations, what runs and what waits."""
    grandchild = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x", interval=3600)
    child = await station.register({"sub": ("subflow", {"flow": grandchild})}, interval=3600)
    more = {"cycle_timeout": 1.5} if way == "deadline" else {}
    flow_id = await station.register({"sub": ("subflow", {"flow": child})}, interval=3600, **more)
    cycle = await station.run(flow_id)
    await station.running(grandchild, "slow")
    await station.node_is(child, 0, "sub", "pending")
    if way == "node":
        await station.flows.terminate(flow_id, cycle, "sub")
    elif way == "cycle":
        await station.flows.stop_cycle(flow_id, cycle)
    elif way == "flow":
        await station.flows.stop(flow_id)
    assert (await station.end(flow_id, cycle)).states == {"sub": "terminated"}
    ended = await station.end(grandchild, 0)
    assert (ended.status, ended.states) == ("stopped", {"slow": "terminated", "d": "terminated"})
    assert "has ended: terminated" in ended.view["reason"]
    assert (await station.end(child, 0)).status == "stopped"


async def test_children_that_outlive_a_timeout_are_stopped(station: Engine) -> None:
    child = await station.register({"slow": "e_block"}, interval=3600)
    config = {"flow": child, "input": "slow.value", "timeout": 0.4, "concurrency": 3}
    for on_error in ("fail", "collect"):
        nodes = {"s": ("e_send", {"values": {"a": [1, 2, 3]}}), "m": ("map", {**config, "on_error": on_error})}
        ended = await station.go(nodes, "s.a>m.items")
        assert ended.states["m"] == ("failed" if on_error == "fail" else "completed")
    for n in range(6):
        assert (await station.end(child, n)).status == "stopped"


async def test_a_retried_subflow_stops_what_took_too_long_and_starts_anew(station: Engine) -> None:
    child = await station.register({"slow": "e_block"}, interval=3600)
    config = {"flow": child, "timeout": 0.4}
    ended = await station.go({"sub": ("subflow", config, {"retries": 1, "backoff": 0.1})})
    assert ended.states == {"sub": "failed"}
    assert stage.ran(child) == ["slow", "slow"]
    for n in range(2):
        assert (await station.end(child, n)).status == "stopped"


async def test_no_child_is_started_for_a_node_that_has_ended(station: Engine) -> None:
    child = await station.register({"slow": "e_block"}, interval=3600)
    flow_id = await station.register({"s": "e_send", "slow": "e_block"})
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "s", "completed")
    with pytest.raises(Conflict, match="has ended"):
        await start_child(station.flows.store, child, {}, f"{flow_id}:{cycle}:s", "k")
    assert await station.last_cycle(child) == -1


async def test_children_of_children(station: Engine) -> None:
    child = await _doubler(station)
    config = {"flow": child, "inputs": {"n": "in.word"}}
    middle = await station.register({"in": "e_ask", "sub": ("subflow", config)}, "in.a>sub.n", interval=3600)
    nodes = {"s": ("e_send", {"values": {"a": 4}}), "sub": ("subflow", {"flow": middle, "inputs": {"n": "in.word"}})}
    ended = await station.go({**nodes, "end": "e_note"}, "s.a>sub.n", "sub.outputs>end.x")
    assert ended.got("end")["sub"]["outputs"]["twice"] == {"result": 8}
