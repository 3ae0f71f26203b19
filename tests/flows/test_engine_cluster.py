"""The engine on a Redis Cluster: every script keeps to one slot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage

pytestmark = pytest.mark.parametrize("transport", ["cluster-local", "cluster-amqp"], indirect=True)


async def test_a_flow_with_everything_in_it(station: Engine) -> None:
    child = await station.register({"in": "e_ask", "out": "e_note"}, "in.a>out.x", interval=3600)
    nodes: dict[str, Any] = {
        "s": ("e_send", {"values": {"a": 1, "b": 2}}),
        "retry": ("e_fail", {"times": 1}, {"retries": 1, "backoff": 0.1}),
        "bad": "e_fail",
        "lost": "e_note",
        "j": "e_gather",
        "wait": ("delay", {"seconds": 0.1}),
        "sub": ("subflow", {"flow": child, "inputs": {"n": "in.word"}}),
        "ok": "approval",
    }
    edges = [
        "s.a>retry.value",
        "retry.a>j.data",
        "s.b>j.data",
        "bad.a>lost.x",
        "s.a>wait.value",
        "s.a>sub.n",
        "s.b>ok.request",
    ]
    flow_id = await station.register(nodes, *edges)
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "ok", "awaiting_input")
    assert await station.flows.give_input(flow_id, cycle, "ok", "decision", True)
    ended = await station.end(flow_id, cycle)
    assert ended.status == "failed"
    failed = {"bad": "failed", "lost": "skipped"}
    assert ended.states == {n: failed.get(n, "completed") for n in nodes}
    assert ended.got("j") == {"a": 2, "b": 2}
    await station.flows.delete(flow_id)
    left = {name for name in await station.all_keys(flow_id) if not name.startswith("task:")}
    assert left == set()
    await station.no_queues(flow_id, cycle, list(nodes))


async def test_stops_and_deadlines(station: Engine) -> None:
    nodes = {"slow": "e_block", "d": "e_note", "slow2": "e_block"}
    flow_id = await station.register(nodes, "slow.a>d.x", interval=3600, cycle_timeout=5)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    assert await station.flows.terminate(flow_id, cycle, "slow2")
    assert await station.flows.stop_component(flow_id, cycle, 0)
    ended = await station.end(flow_id, cycle)
    assert ended.states == {"slow": "terminated", "d": "skipped", "slow2": "terminated"}
    late = await station.register({"slow": "e_block"}, cycle_timeout=0.4)
    assert (await station.end(late, await station.run(late))).status == "timeout"


async def test_a_schedule(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send", "t": "e_note"}, "s.a>t.x", interval=0.2)
    await station.flows.start(flow_id)
    await station.cycle_begins(flow_id, 3)
    await station.flows.stop(flow_id)
    last = await station.last_cycle(flow_id)

    async def at_rest() -> bool:
        return not await station.redis.smembers(station.keys.flow_running(flow_id))

    await until(at_rest, "the end of its cycles")
    await asyncio.sleep(0.3)
    assert await station.last_cycle(flow_id) == last
    assert stage.ran(flow_id).count("s") >= 3
