"""What people see of a flow: status while it runs and after, logs, signals and cycles in SQL, the live feed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage
from tradewind.flows.record_query import FlowRecords

STATISTICS = {
    "total_nodes", "running_nodes", "completed_nodes", "failed_nodes", "error_nodes", "skipped_nodes",
    "terminated_nodes", "pending_nodes",
}  # fmt: skip


def _records(station: Engine) -> FlowRecords:
    assert station.flows.records is not None
    return station.flows.records


async def test_a_flow_that_has_not_run(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"})
    view = await station.flows.status.comprehensive(flow_id)
    assert (view["flow_id"], view["cycle"], view["flow_status"], view["nodes"]) == (flow_id, -1, "registered", {})
    assert view["statistics"] == dict.fromkeys(STATISTICS, 0)
    assert (await station.flows.status.flow(flow_id))["current_cycle_status"] is None


async def test_a_running_cycle_is_seen_while_it_runs(station: Engine) -> None:
    nodes = {"s": "e_send", "slow": "e_block", "d": "e_note", "bad": "e_fail", "lost": "e_note"}
    flow_id = await station.register(nodes, "s.a>slow.value", "slow.a>d.x", "bad.a>lost.x", interval=3600)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    await station.node_is(flow_id, cycle, "lost", "skipped")
    view = await station.flows.status.comprehensive(flow_id)
    assert (view["cycle"], view["flow_status"], view["cycle_status"]) == (cycle, "registered", "running")
    assert view["end_time"] is None
    expected = {"total": 5, "running": 1, "completed": 1, "failed": 1, "error": 1, "skipped": 1, "pending": 1}
    assert view["statistics"] == {f"{k}_nodes": v for k, v in {**expected, "terminated": 0}.items()}
    slow = view["nodes"]["slow"]
    assert (slow["status"], slow["worker_id"], slow["finished_at"]) == ("running", station.worker_id, None)
    assert slow["started_at"].endswith("Z")
    bad = view["nodes"]["bad"]
    assert (bad["status"], bad["error_message"]) == ("failed", "ValueError: on purpose")
    assert bad["started_at"] <= bad["finished_at"]
    assert (await station.flows.status.flow(flow_id))["current_cycle_status"]["status"] == "running"
    stage.gate(flow_id).set()
    await station.end(flow_id, cycle)
    view = await station.flows.status.comprehensive(flow_id, cycle)
    assert view["cycle_status"] == "failed"
    assert view["end_time"] >= view["start_time"]
    assert view["statistics"]["completed_nodes"] == 3
    assert view["statistics"]["running_nodes"] == 0


async def test_cycles_are_listed_newest_first(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send"}, interval=3600)
    for _ in range(4):
        await station.end(flow_id, await station.run(flow_id))
    listed = await station.flows.cycles(flow_id)
    assert [c["cycle"] for c in listed] == [3, 2, 1, 0]
    assert [c["cycle"] for c in await station.flows.cycles(flow_id, before=2, limit=1)] == [1]
    assert await station.flows.cycles(flow_id, status="failed") == []


async def test_flows_are_listed_page_by_page(station: Engine) -> None:
    ids = sorted([await station.register({"s": "e_send"}) for _ in range(5)])
    first, after = await station.flows.page(limit=3)
    assert ([f["id"] for f in first], after) == (ids[:3], ids[2])
    rest, end = await station.flows.page(after=after or "", limit=3)
    assert ([f["id"] for f in rest], end) == (ids[3:], None)
    assert (await station.flows.page(status="running"))[0] == []


async def _lines(station: Engine, flow_id: str, many: int, **more: Any) -> list[Any]:
    async def look() -> list[Any]:
        items = (await _records(station).logs(flow_id, **more)).items
        return items if len(items) >= many else []

    return list(await until(look, f"{many} lines of the log"))


async def test_a_cycle_s_lines_stand_in_the_log(station: Engine) -> None:
    flow_id = await station.register({"t": "e_talk", "bad": "e_fail"})
    cycle = await station.run(flow_id)
    await station.running(flow_id, "t")
    (said,) = await _lines(station, flow_id, 1, node_id="t")  # before the node has ended
    assert (said.message, said.log_level, said.log_source, said.log_metadata) == (
        "half way", "WARNING", "node", {"done": 0.5},
    )  # fmt: skip
    assert await station.redis.hget(station.keys.cycle(flow_id, cycle), "status") == b"running"
    stage.gate(flow_id).set()
    await station.end(flow_id, cycle)
    lines = await _lines(station, flow_id, 4)
    messages = [(line.log_source, line.log_level, line.message) for line in lines]
    assert messages[0] == ("scheduler", "INFO", f"Starting cycle {cycle}")
    assert messages[-1] == ("scheduler", "ERROR", f"Cycle {cycle} failed")
    assert ("node", "ERROR", "Node bad failed: ValueError: on purpose") in messages
    assert len(lines) == 4


async def test_a_completed_cycle_says_so(station: Engine) -> None:
    ended = await station.go({"s": "e_send"})
    lines = await _lines(station, ended.flow_id, 2)
    assert [line.message for line in lines] == ["Starting cycle 0", "Cycle 0 completed"]
    assert {line.log_source for line in lines} == {"scheduler"}


async def test_signals_stand_in_the_record_with_their_targets(station: Engine) -> None:
    nodes = {"s": ("e_send", {"values": {"a": {"p": 1}, "b": 2}, "signal": "PRICE_DATA"}), "t": "e_two"}
    ended = await station.go(nodes, "s.a>t.x", "s.a>t.y")

    async def look() -> list[Any]:
        items = (await _records(station).signals(ended.flow_id, ended.cycle)).items
        return items if len(items) >= 4 else []

    found = {
        (e.source_node, e.source_handle, e.target_node, e.target_handle): (e.type, e.payload)
        for e in await until(look, "four signals")
    }
    assert found == {
        ("s", "a", "t", "x"): ("PRICE_DATA", {"p": 1}),
        ("s", "a", "t", "y"): ("PRICE_DATA", {"p": 1}),
        ("s", "b", "", ""): ("PRICE_DATA", 2),
        ("t", "a", "", ""): ("ANY", [{"p": 1}, {"p": 1}]),
    }


async def test_a_signal_from_an_operator_is_on_record(station: Engine) -> None:
    flow_id = await station.register({"ask": "e_ask"})
    cycle = await station.run(flow_id)
    await station.flows.give_input(flow_id, cycle, "ask", "word", "hello")
    await station.end(flow_id, cycle)

    async def look() -> list[Any]:
        items = (await _records(station).signals(flow_id, cycle)).items
        return [e.payload for e in items if e.target_handle == "word"]

    assert await until(look, "the signal") == ["hello"]


async def test_the_record_of_a_cycle_has_its_nodes(station: Engine) -> None:
    ended = await station.go({"s": "e_send", "bad": "e_fail", "d": "e_note"}, "bad.a>d.x")

    async def look() -> Any:
        entry = await _records(station).cycle(ended.flow_id, ended.cycle)
        return entry if entry is not None and entry.end_ms else None

    entry = await until(look, "the record")
    assert (entry.status, entry.trigger, entry.error) == ("failed", "manual", "bad: ValueError: on purpose")
    assert entry.counts == {"total": 3, "completed": 1, "failed": 1, "skipped": 1, "terminated": 0}
    assert {name: node[0] for name, node in entry.nodes.items()} == ended.states
    assert 0 < entry.start_ms <= entry.end_ms


async def test_changes_are_told_as_they_happen(station: Engine) -> None:
    pubsub = station.link.new_client().pubsub(ignore_subscribe_messages=True)
    await pubsub.subscribe(station.keys.flow_events())
    heard: list[dict[str, Any]] = []

    async def listen() -> None:
        async for message in pubsub.listen():
            heard.append(json.loads(message["data"]))

    listener = asyncio.create_task(listen())
    try:

        async def subscribed() -> bool:
            found = await station.redis.pubsub_numsub(station.keys.flow_events())
            return bool(found[0][1])

        await until(subscribed)
        ended = await station.go({"s": "e_send", "bad": "e_fail"})

        async def told() -> bool:
            return any(e["event"] == "cycle_failed" for e in heard)

        await until(told, "the end")
    finally:
        listener.cancel()
        await pubsub.aclose()  # type: ignore[no-untyped-call]
    assert {e["flow_id"] for e in heard} == {ended.flow_id}
    assert heard[0]["event"] == "cycle_started"
    events = [(e["event"], e["node_id"]) for e in heard]
    assert {("node_running", "s"), ("node_completed", "s"), ("node_failed", "bad"), ("cycle_failed", None)} <= set(
        events
    )
    assert events.index(("node_running", "s")) < events.index(("node_completed", "s"))


async def test_a_node_that_nobody_can_run_says_so_by_name(station: Engine) -> None:
    keys = station.keys
    await station.redis.hset(
        keys.worker("ghost"), mapping={"id": "ghost", "capacity": 1, "address": "http://192.0.2.1"}
    )
    await station.redis.sadd(keys.worker_type("ghost_node"), "ghost")
    await station.redis.sadd(keys.worker_types(), "ghost_node")
    await station.flows.types.all(fresh=True)
    flow_id = await station.register({"a": "e_send", "g": "ghost_node", "end": "e_note"}, "a.a>g.x", "g.y>end.x")
    await station.redis.delete(keys.worker("ghost"))
    cycle = await station.run(flow_id)

    async def is_told() -> bool:
        nodes = (await station.flows.status.cycle(flow_id, cycle))["nodes"]
        return nodes["g"]["waiting_for"] == "no live worker supports type 'ghost_node'"

    await until(is_told, "the reason")
    nodes = (await station.flows.status.cycle(flow_id, cycle))["nodes"]
    assert "no live worker supports type 'ghost_node'" in nodes["g"]["message"]
    assert nodes["end"]["waiting_for"] is None
    why = await station.flows.status.why(flow_id, cycle, "g")
    assert "no live worker supports type 'ghost_node'" in why["reason"]
    flow = await station.flows.status.flow(flow_id)
    assert flow["current_cycle_status"]["nodes"]["g"]["waiting_for"]
