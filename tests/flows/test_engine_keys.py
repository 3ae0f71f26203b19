"""The seed's keys as a bare client finds them: types, fields, TTLs, during and after a cycle."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
DAY, WEEK = 86_400, 604_800
SLACK_S = 120
NODES: dict[str, Any] = {"s": "e_send", "slow": "e_block", "d": ("e_note", {}), "bad": "e_fail", "lost": "e_note"}
EDGES = ["s.a>slow.value", "slow.a>d.x", "bad.a>lost.x"]


async def _started(station: Engine) -> tuple[str, int]:
    flow_id = await station.register(NODES, *EDGES, interval=3600)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    await station.node_is(flow_id, cycle, "lost", "skipped")
    return flow_id, cycle


async def _kind(station: Engine, key: str) -> str:
    return str((await station.redis.type(station.keys.p + key)).decode())


async def _ttl(station: Engine, key: str) -> int:
    return int(await station.redis.ttl(station.keys.p + key))


async def _lives(station: Engine, key: str, seconds: int) -> None:
    """It was given that time, in the course of this test."""
    left = await _ttl(station, key)
    assert seconds - SLACK_S <= left <= seconds, f"{key} has {left} s left, not {seconds}"


async def test_the_flow_s_hash(station: Engine) -> None:
    flow_id, cycle = await _started(station)
    key = f"flow:{flow_id}"
    assert await _kind(station, key) == "hash"
    assert await _ttl(station, key) == -1
    raw = await station.hash(station.keys.p + key)
    assert raw["id"] == flow_id
    assert (raw["status"], raw["last_cycle"]) == ("registered", str(cycle))
    assert ISO.fullmatch(raw["created_at"])
    assert float(raw["next_execution"]) == 0
    assert {n["id"] for n in json.loads(raw["config"])["nodes"]} == set(NODES)
    structure = json.loads(raw["structure"])
    assert structure["component_count"] == 2
    first = structure["components"]["0"]
    assert (first["nodes"], first["entry_nodes"], first["node_count"]) == (["s", "slow", "d"], ["s"], 3)
    assert first["is_dag"] is True
    assert set(structure["entry_nodes"]) == {"s", "bad"}
    stage.gate(flow_id).set()
    await station.end(flow_id, cycle)
    await station.flows.start(flow_id)
    await station.cycle_begins(flow_id, cycle + 1)
    raw = await station.hash(station.keys.p + key)
    assert raw["status"] == "running"
    assert 3500 < float(raw["next_execution"]) - time.time() <= 3600
    await station.flows.stop(flow_id)


async def test_the_cycle_s_keys(station: Engine) -> None:
    flow_id, cycle = await _started(station)
    key = f"flow:{flow_id}:cycle:{cycle}"
    raw = await station.hash(station.keys.p + key)
    assert (raw["flow_id"], raw["cycle"], raw["status"], raw["end_time"]) == (flow_id, str(cycle), "running", "")
    assert ISO.fullmatch(raw["start_time"])
    await _lives(station, key, WEEK)
    assert await _kind(station, f"{key}:nodes") == "set"
    members = {m.decode() for m in await station.redis.smembers(f"{station.keys.p}{key}:nodes")}
    assert members == set(NODES)
    await _lives(station, f"{key}:nodes", WEEK)
    for name in await station.all_keys(f"flow:{flow_id}:cycle:"):
        if not name.endswith((":done", ":unsent", ":sent")):  # these are given theirs at the end, or are swept then
            await _lives(station, name, WEEK)
    stage.gate(flow_id).set()
    await station.end(flow_id, cycle)
    raw = await station.hash(station.keys.p + key)
    assert raw["status"] == "failed"
    assert ISO.fullmatch(raw["end_time"])
    assert raw["end_time"] >= raw["start_time"]
    names = await station.all_keys(f"flow:{flow_id}:cycle:")
    assert {f"{key}:done", f"{key}:nodes", f"{key}:in:d"} <= names
    for name in names - {f"{key}:unsent", f"{key}:sent"}:
        await _lives(station, name, WEEK)


async def test_a_node_s_two_records_agree(station: Engine) -> None:
    flow_id, cycle = await _started(station)
    wanted = {"s": "completed", "slow": "running", "d": "pending", "bad": "failed", "lost": "skipped"}
    for node, status in wanted.items():
        task_id = f"{flow_id}_{cycle}_{node}"
        assert await _kind(station, f"node_tasks:{task_id}") == "string"
        record = json.loads(await station.redis.get(f"{station.keys.p}node_tasks:{task_id}"))
        assert record["node_task_id"] == task_id
        assert (record["flow_id"], record["cycle"], record["node_id"]) == (flow_id, cycle, node)
        assert record["status"] == status
        assert {"node_type", "worker_id", "registered_at", "updated_at", "message", "progress", "config"} <= set(record)
        assert ISO.fullmatch(record["updated_at"])
        assert ISO.fullmatch(record["registered_at"])
        assert isinstance(record["config"], dict)
        state = await station.hash(f"{station.keys.p}trading_flow:node:{task_id}")
        assert state["status"] == status
        assert abs(float(state["updated_at"]) - time.time()) < 60
        await _lives(station, f"node_tasks:{task_id}", DAY)
        await _lives(station, f"trading_flow:node:{task_id}", DAY)
        if status in ("running", "completed", "failed"):
            assert record["worker_id"] == station.worker_id
        assert bool(state["error_message"]) == (status in ("failed", "skipped"))


async def test_lists_of_node_tasks(station: Engine) -> None:
    flow_id, cycle = await _started(station)
    ids = {f"{flow_id}_{cycle}_{node}" for node in NODES}
    assert await _kind(station, "node_tasks_list") == "set"
    assert {m.decode() for m in await station.redis.smembers(f"{station.keys.p}node_tasks_list")} == ids
    mine = f"worker_tasks:{station.worker_id}"
    assert await _kind(station, mine) == "set"
    ran = {m.decode() for m in await station.redis.smembers(station.keys.p + mine)}
    assert ran == {f"{flow_id}_{cycle}_{node}" for node in ("s", "slow", "bad")}
    await _lives(station, mine, WEEK)
    assert await _ttl(station, "node_tasks_list") == -1  # swept with the cycles


async def test_progress_and_words_of_a_running_node(station: Engine) -> None:
    flow_id = await station.register({"t": "e_talk"})
    cycle = await station.run(flow_id)
    await station.running(flow_id, "t")
    key = f"{station.keys.p}node_tasks:{flow_id}_{cycle}_t"

    async def look() -> bool:
        return bool(json.loads(await station.redis.get(key))["progress"] == 50)

    await until(look, "progress", 5)
    record = json.loads(await station.redis.get(key))
    assert (record["message"], record["status"], record["config"]) == ("half way", "running", {})
    stage.gate(flow_id).set()
    await station.end(flow_id, cycle)
    record = json.loads(await station.redis.get(key))
    assert (record["progress"], record["status"]) == (100, "completed")


async def test_the_task_of_a_node_has_its_type_and_name(station: Engine) -> None:
    flow_id, cycle = await _started(station)
    view = await station.station.tasks.get(f"{flow_id}_{cycle}_slow")
    assert (view.type, str(view.status)) == ("e_block", "PROCESSING")
    assert await station.redis.exists(station.keys.task(f"{flow_id}_{cycle}_d")) == 0


async def test_inputs_stand_under_the_seed_s_edge_key(station: Engine) -> None:
    flow_id, cycle = await _started(station)
    inputs = await station.hash(station.keys.cycle_inputs(flow_id, cycle, "slow"))
    signal = json.loads(inputs["s:a->value"])
    assert set(signal) == {
        "id", "type", "payload", "timestamp", "source_node", "source_handle", "flow_id", "cycle",
    }  # fmt: skip
    assert (signal["source_node"], signal["source_handle"], signal["payload"]) == ("s", "a", 1)
    assert (signal["flow_id"], signal["cycle"], signal["type"]) == (flow_id, cycle, "ANY")
