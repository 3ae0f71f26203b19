"""Ending early: STOP_EXECUTION, component stop, termination, deadlines, and the flags that somebody sets by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage
from tradewind.flows import terminate_watch

Make = Callable[..., Awaitable[Engine]]

#: Two components: s → slow → e, and first → slow2 → other.
NODES: dict[str, Any] = {"s": "e_send", "slow": "e_block", "e": "e_note"}
NODES |= {"first": "e_send", "slow2": "e_block", "other": "e_note"}
EDGES = ["s.a>slow.value", "slow.a>e.x", "first.a>slow2.value", "slow2.a>other.x"]


async def _two_components(station: Engine, stop: dict[str, Any]) -> str:
    """The stop waits until both slow ones run: its input comes from an operator."""
    nodes = {**NODES, "ask": "e_ask", "stop": ("e_stop", stop), "d": "e_note"}
    return await station.register(nodes, *EDGES, "s.a>ask.value", "ask.a>stop.value", "stop.a>d.x")


@pytest.mark.parametrize("sends", [False, True])
async def test_a_stop_ends_its_component_and_the_cycle_is_completed(station: Engine, sends: bool) -> None:
    flow_id = await _two_components(station, {"sends": sends})
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    await station.flows.give_input(flow_id, cycle, "ask", "word", "go")
    await station.node_is(flow_id, cycle, "slow", "terminated")
    states = await station.states(flow_id, cycle)
    assert states["slow2"] == "running"
    assert states["e"] == states["d"] == "terminated"
    assert states["s"] == states["stop"] == "completed"
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.status == "completed"
    assert ended.view["stopped_by"] == "stop"
    assert ended.view["reason"] == "enough"
    assert ended.states["other"] == "completed"
    assert ended.counts["terminated"] == 3
    assert "stop" in ended.nodes["e"]["error_message"]
    assert "d" not in stage.ran(flow_id)
    raw = await station.hash(station.keys.cycle(flow_id, cycle))
    assert (raw["stopped_by"], raw["stop_scope"], raw["stop_reason"]) == ("stop", "component", "enough")


async def test_a_stop_of_the_flow_ends_every_component(station: Engine) -> None:
    flow_id = await _two_components(station, {"scope": "flow"})
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    await station.flows.give_input(flow_id, cycle, "ask", "word", "go")
    ended = await station.end(flow_id, cycle)
    assert ended.status == "completed"
    assert {n for n, state in ended.states.items() if state == "terminated"} == {"slow", "e", "d", "slow2", "other"}
    assert ended.states["first"] == "completed"
    assert ended.view["stopped_by"] == "stop"
    await station.flow_is(flow_id, "completed")


async def test_a_failure_before_a_stop_still_fails_the_cycle(station: Engine) -> None:
    nodes = {"bad": "e_fail", "ask": "e_ask", "stop": "e_stop"}
    flow_id = await station.register(nodes, "ask.a>stop.value")
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "bad", "failed")
    await station.flows.give_input(flow_id, cycle, "ask", "word", 1)
    ended = await station.end(flow_id, cycle)
    assert (ended.status, ended.view["stopped_by"]) == ("failed", "stop")


async def test_a_component_stop_skips_what_waits_and_terminates_what_runs(station: Engine) -> None:
    flow_id = await station.register({**NODES, "d": "e_note"}, *EDGES, "s.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2", "d")
    await station.node_is(flow_id, cycle, "d", "completed")
    assert await station.flows.stop_component(flow_id, cycle, 0, "enough") is True
    key = station.keys.component_stop(flow_id, cycle, 0)
    assert key.endswith(f"flow:{flow_id}:cycle:{cycle}:component:0:stop")
    assert await station.redis.get(key) == b"1"
    assert 3480 <= await station.redis.ttl(key) <= 3600
    await station.node_is(flow_id, cycle, "slow", "terminated")
    assert (await station.states(flow_id, cycle))["slow2"] == "running"
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.states == {
        "s": "completed", "slow": "terminated", "e": "skipped", "d": "completed", "first": "completed",
        "slow2": "completed", "other": "completed",
    }  # fmt: skip
    assert ended.status == "completed"
    assert ended.nodes["e"]["error_message"] == "component_stopped"
    assert await station.flows.stop_component(flow_id, cycle, 0) is False


async def test_a_stop_flag_set_by_hand_skips_what_would_start_next(station: Engine) -> None:
    flow_id = await station.register(NODES, *EDGES)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    name = f"{station.keys.p}flow:{flow_id}:cycle:{cycle}:component:0:stop"
    await station.redis.set(name, "1", ex=3600)
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.states["e"] == "skipped"
    assert ended.states["other"] == "completed"
    assert stage.ran(flow_id).count("e") == 0


async def test_a_waiting_node_is_terminated_at_once(station: Engine) -> None:
    flow_id = await station.register(NODES, *EDGES)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    assert await station.flows.terminate(flow_id, cycle, "e", "not needed") is True
    assert (await station.states(flow_id, cycle))["e"] == "terminated"
    key = f"{station.keys.p}trading_flow:node:{flow_id}_{cycle}_e:terminate"
    flag = json.loads(await station.redis.get(key))
    assert flag["reason"] == "not needed"
    assert flag["timestamp"].endswith("Z")
    assert 3480 <= await station.redis.ttl(key) <= 3600
    assert await station.flows.terminate(flow_id, cycle, "e") is False
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.status == "completed"
    assert ended.nodes["e"]["error_message"] == "not needed"


async def test_a_running_node_is_terminated_and_its_descendants_are_skipped(station: Engine) -> None:
    flow_id = await station.register(NODES, *EDGES)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    assert await station.flows.terminate(flow_id, cycle, "slow", "enough")
    await station.node_is(flow_id, cycle, "e", "skipped")
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.states["slow"] == "terminated"
    assert ended.states["other"] == "completed"
    assert ended.status == "completed"
    state = await station.hash(station.keys.node_state(f"{flow_id}_{cycle}_slow"))
    assert state["status"] == "terminated"


async def test_a_terminate_flag_set_by_hand_stops_a_running_node(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block"})
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    began = time.monotonic()
    flag = json.dumps({"reason": "by hand", "timestamp": "2025-10-06T10:00:00"})
    await station.redis.set(f"{station.keys.p}trading_flow:node:{flow_id}_{cycle}_slow:terminate", flag, ex=3600)
    ended = await station.end(flow_id, cycle)
    assert time.monotonic() - began < 3
    assert ended.states == {"slow": "terminated"}
    assert ended.nodes["slow"]["error_message"] == "by hand"
    assert ended.status == "completed"


FLAGS = [
    (json.dumps({"reason": "by hand", "timestamp": "2025-10-06T10:00:00"}), "by hand"),
    ("out of hours", "out of hours"),
    ('"quoted"', "quoted"),
    ("1", "1"),
]


@pytest.mark.parametrize(("flag", "reason"), FLAGS)
async def test_a_terminate_flag_set_by_hand_ends_any_node(make_station: Make, flag: str, reason: str) -> None:
    """Running, queued behind it, waiting for inputs, suspended by a delay, waiting for a person or for the outside."""
    station = await make_station(worker__concurrency=1)
    nodes: dict[str, Any] = {
        "pause": ("delay", {"seconds": 600}), "ask": "approval", "slow": ("e_block", {}, {"external": ["value"]}),
        "queued": ("e_block", {}, {"external": ["value"]}), "waits": "e_note",
        "outside": ("e_note", {}, {"external": ["x"]}),
    }  # fmt: skip
    flow_id = await station.register(nodes, "slow.a>waits.x")
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "ask", "awaiting_input")

    async def is_suspended() -> bool:
        return await station.text(station.keys.task(f"{flow_id}_{cycle}_pause"), "status") == "RETRYING"

    await until(is_suspended, "the pause")
    await station.flows.give_input(flow_id, cycle, "slow", "value", 1)  # takes the one place there is
    await station.running(flow_id, "slow")
    await station.flows.give_input(flow_id, cycle, "queued", "value", 1)
    for node in ("pause", "ask", "queued", "waits", "outside", "slow"):
        if node == "slow":  # else what it leads to may be skipped first
            await station.node_is(flow_id, cycle, "waits", "terminated")
        await station.redis.set(f"{station.keys.p}trading_flow:node:{flow_id}_{cycle}_{node}:terminate", flag, ex=3600)
    ended = await station.end(flow_id, cycle, 10)
    assert ended.states == dict.fromkeys(nodes, "terminated")
    assert {name: node["error_message"] for name, node in ended.nodes.items()} == dict.fromkeys(nodes, reason)
    state = await station.hash(station.keys.node_state(f"{flow_id}_{cycle}_pause"))
    assert (state["status"], state["error_message"]) == ("terminated", reason)


async def test_a_terminate_flag_of_a_wrong_type_harms_nobody(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    await station.redis.hset(f"{station.keys.p}trading_flow:node:{flow_id}_{cycle}_slow:terminate", "a", "b")
    await station.flows.stop_cycle(flow_id, cycle, "enough")
    ended = await station.end(flow_id, cycle)
    assert {n["error_message"] for n in ended.nodes.values()} == {"enough"}


async def test_a_component_flag_set_by_hand_stops_what_is_suspended(station: Engine) -> None:
    nodes: dict[str, Any] = {"pause": ("delay", {"seconds": 600}), "d": "e_note", "other": "e_block"}
    flow_id = await station.register(nodes, "pause.value>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "other")
    await station.redis.set(f"{station.keys.p}flow:{flow_id}:cycle:{cycle}:component:0:stop", "1", ex=3600)
    await station.node_is(flow_id, cycle, "pause", "skipped")
    await station.node_is(flow_id, cycle, "d", "skipped")
    assert (await station.states(flow_id, cycle))["other"] == "running"
    stage.gate(flow_id).set()
    assert (await station.end(flow_id, cycle)).states["other"] == "completed"


async def test_many_open_nodes_have_their_turn(station: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminate_watch, "KEYS_A_LOOK", 7)
    watch = terminate_watch.TerminateWatch(station.flows.store)
    nodes: dict[str, Any] = {f"p{i:02d}": ("delay", {"seconds": 600}) for i in range(20)}
    flow_id = await station.register(nodes)
    cycles = [await station.run(flow_id) for _ in range(3)]
    for cycle in cycles:
        for node in nodes:
            await station.redis.set(f"{station.keys.p}trading_flow:node:{flow_id}_{cycle}_{node}:terminate", "x")
    for _ in range(40):
        await watch.look()
    for cycle in cycles:
        assert set((await station.end(flow_id, cycle, 5)).states.values()) == {"terminated"}


async def test_cancelling_the_task_of_a_node_terminates_the_node(station: Engine) -> None:
    nodes = {"slow": "e_block", "d": "e_note", "wait": ("delay", {"seconds": 60})}
    flow_id = await station.register(nodes, "slow.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    await station.node_is(flow_id, cycle, "wait", "pending")
    task = station.keys.task(f"{flow_id}_{cycle}_wait")
    await until(lambda: _is(station, task, "RETRYING"), "the delay")
    await station.station.tasks.cancel([f"{flow_id}_{cycle}_slow", f"{flow_id}_{cycle}_wait"])
    ended = await station.end(flow_id, cycle)
    assert ended.states == {"slow": "terminated", "d": "skipped", "wait": "terminated"}
    assert ended.status == "completed"


async def _is(station: Engine, task: str, status: str) -> bool:
    return await station.text(task, "status") == status


async def test_a_cycle_past_its_deadline_leaves_nothing_running(station: Engine) -> None:
    nodes = {**NODES, "ask": "e_ask", "late": ("delay", {"seconds": 60})}
    flow_id = await station.register(nodes, *EDGES, cycle_timeout=0.5)
    ended = await station.end(flow_id, await station.run(flow_id))
    assert ended.status == "timeout"
    assert ended.counts["open"] == 0
    assert ended.states["s"] == "completed"
    assert {ended.states[n] for n in ("slow", "slow2", "e", "other", "ask", "late")} == {"terminated"}
    assert await station.redis.zscore(station.keys.flows_deadlines(), f"{flow_id}:{ended.cycle}") is None
    assert not await station.redis.smembers(station.keys.flow_running(flow_id))
    await until(lambda: _is_idle(station), "an idle worker")
    await station.flow_is(flow_id, "failed")


async def _is_idle(station: Engine) -> bool:
    delayed = await station.redis.zcard(station.keys.delayed())
    return station.station.workers[0].running == 0 and delayed == 0


async def test_a_stopped_cycle_is_stopped(station: Engine) -> None:
    flow_id = await station.register(NODES, *EDGES, interval=3600)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    assert await station.flows.stop_cycle(flow_id, cycle, "not today") is True
    ended = await station.end(flow_id, cycle)
    assert ended.status == "stopped"
    assert ended.view["reason"] == "not today"
    assert ended.states["e"] == "terminated"
    assert await station.flows.stop_cycle(flow_id, cycle) is False
    await station.flow_is(flow_id, "registered")


async def test_a_sync_node_cannot_be_interrupted_but_its_end_does_not_count(station: Engine) -> None:
    nodes = {"s": "e_send", "t": ("e_thread", {"seconds": 0.6}), "d": "e_note"}
    flow_id = await station.register(nodes, "s.a>t.x", "t.result>d.x")
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "t", "running")
    await station.flows.terminate(flow_id, cycle, "t")
    ended = await station.end(flow_id, cycle)
    assert ended.states == {"s": "completed", "t": "terminated", "d": "skipped"}
    await asyncio.sleep(0.7)
    assert await station.states(flow_id, cycle) == ended.states


async def test_a_node_that_is_cancelled_before_its_first_step_gives_its_slot_back(
    station: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    worker, start = station.station.workers[0], station.station.workers[0].start

    def cancel(task_id: str) -> None:
        worker._slots.cancel(task_id)

    async def start_and_stop(batch: list[Any]) -> None:
        """The message that cancels it is read in the turn in which it is given to the worker."""
        for taken in batch:
            asyncio.get_running_loop().call_soon(cancel, taken.id)
        await start(batch)

    monkeypatch.setattr(worker, "start", start_and_stop)
    cycle = await station.run(flow_id)
    ended = await station.end(flow_id, cycle)
    assert ended.states == {"slow": "terminated", "d": "skipped"}
    assert worker.running == 0


async def test_a_cycle_that_waits_for_people_has_a_day_longer(make_station: Make) -> None:
    station = await make_station(flows__cycle_timeout_s=100)
    deadlines = []
    for node in ("e_block", "approval"):
        flow_id = await station.register({"n": node})
        cycle = await station.run(flow_id)
        score = await station.redis.zscore(station.keys.flows_deadlines(), f"{flow_id}:{cycle}")
        begun = await station.text(station.keys.cycle(flow_id, cycle), "start_ms")
        deadlines.append(round((score - int(begun or 0)) / 1000))
    assert deadlines == [100, 100 + 86_400]
