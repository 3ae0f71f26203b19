"""Nothing grows and nothing stays: old cycles leave, a deleted flow leaves nothing behind."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest
import structlog

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage
from tradewind.errors import NotFound

NODES = {"s": "e_send", "d": "e_note", "bad": "e_fail", "lost": "e_note"}
EDGES = ["s.a>d.x", "bad.a>lost.x"]


async def _no_task_without_end(station: Engine) -> bool:
    """Every ended task's key has a TTL: the archive has it."""
    for name in await station.all_keys("task:"):
        if name.startswith("task:f") and await station.redis.ttl(station.keys.p + name) < 0:
            return False
    return True


async def _members(station: Engine, flow_id: str) -> set[str]:
    """Where a flow is named inside keys that all flows share."""
    keys, client = station.keys, station.redis
    found: set[str] = set()
    for key in (keys.flows(), keys.flows_due(), keys.flows_deadlines(), keys.flows_unsent(), keys.flows_held()):
        found |= {f"{key} {m.decode()}" for m in await client.zrange(key, 0, -1)}
    for key in (keys.flows_queues(), keys.flows_hosts()):
        found |= {f"{key} {m.decode()}" for m in await client.hkeys(key)}
    for key in (keys.node_tasks_list(), keys.worker_tasks(station.worker_id), keys.marked()):
        found |= {f"{key} {m.decode()}" for m in await client.smembers(key)}
    for key in (keys.flows_ended(), keys.task_ended("flows")):
        found |= {f"{key} {m.decode()}" for m in await client.lrange(key, 0, -1)}
    return {name for name in found if flow_id in name}


async def _is_clean(station: Engine, flow_id: str) -> bool:
    left = {name for name in await station.all_keys(flow_id) if not name.startswith("task:")}
    return not left and not await _members(station, flow_id)


async def test_a_node_of_a_cycle_that_a_hand_removed_ends_alone(station: Engine) -> None:
    """In one commit with a node of another cycle, which goes on."""
    gone, other = [await station.register({"n": "e_block", "d": "e_note"}, "n.a>d.x") for _ in range(2)]
    cycles = {flow_id: await station.run(flow_id) for flow_id in (gone, other)}
    for flow_id, cycle in cycles.items():
        await station.node_is(flow_id, cycle, "n", "running")
    await station.redis.delete(station.keys.cycle(gone, cycles[gone]))
    with structlog.testing.capture_logs() as told:
        for flow_id in cycles:
            stage.gate(flow_id).set()
        ended = await station.end(other, cycles[other])
    assert ended.status == "completed"
    task = await station.hash(station.keys.task(f"{gone}_{cycles[gone]}_n"))
    assert task["status"] == "SUCCESS" and not [line for line in told if line["event"] == "task_not_committed"]
    assert not await station.redis.exists(station.keys.cycle(gone, cycles[gone]))


async def test_a_deleted_flow_leaves_nothing(station: Engine) -> None:
    flow_id = await station.register(NODES, *EDGES)
    for _ in range(3):
        await station.end(flow_id, await station.run(flow_id))
    records = station.flows.records
    assert records is not None

    async def recorded() -> bool:
        return len((await records.cycles(flow_id)).items) == 3 and bool((await records.logs(flow_id)).items)

    await until(recorded, "the record")
    await station.flows.delete(flow_id)
    with pytest.raises(NotFound):
        await station.flows.get(flow_id)
    assert await _is_clean(station, flow_id), (await station.all_keys(flow_id), await _members(station, flow_id))
    for cycle in range(3):
        await station.no_queues(flow_id, cycle, list(NODES))

    async def forgotten() -> bool:
        return not any(
            [
                (await records.cycles(flow_id)).items,
                (await records.logs(flow_id)).items,
                *[(await records.signals(flow_id, n)).items for n in range(3)],
            ]
        )

    await until(forgotten, "the end of the record")
    await until(lambda: _no_task_without_end(station), "the archive")
    with pytest.raises(NotFound):
        await station.flows.delete(flow_id)


async def test_deleting_stops_what_runs(station: Engine) -> None:
    nodes = {"slow": "e_block", "d": "e_note", "ask": "e_ask", "late": ("delay", {"seconds": 60})}
    flow_id = await station.register(nodes, "slow.a>d.x", interval=60)
    await station.flows.start(flow_id)
    await station.running(flow_id, "slow")
    await station.flows.stop_component(flow_id, 0, 2)
    await station.flows.delete(flow_id)
    assert await _is_clean(station, flow_id), (await station.all_keys(flow_id), await _members(station, flow_id))
    assert await _members(station, flow_id) == set()
    await station.no_queues(flow_id, 0, list(nodes))
    assert stage.ran(flow_id) == ["slow"]
    await until(lambda: _no_task_without_end(station), "the archive")


async def test_a_flow_of_the_same_name_begins_anew(station: Engine) -> None:
    flow_id = await station.register(NODES, *EDGES)
    await station.end(flow_id, await station.run(flow_id))
    await station.flows.delete(flow_id)
    await station.register({"s": "e_send", "d": "e_note"}, "s.a>d.x", id=flow_id)
    assert (await station.flows.get(flow_id))["last_cycle"] == -1
    ended = await station.end(flow_id, await station.run(flow_id))
    assert (ended.cycle, ended.status) == (0, "completed")
    records = station.flows.records
    assert records is not None

    async def recorded() -> bool:
        page = await records.cycles(flow_id)
        return [(c.cycle, c.status) for c in page.items] == [(0, "completed")]

    await until(recorded, "the new record")


@pytest.mark.parametrize("outcome", ["ends", "stopped", "delayed"])
async def test_old_cycles_leave_redis(make_station: Callable[..., Awaitable[Engine]], outcome: str) -> None:
    """The number of keys and members is the same, however many cycles there were."""
    station = await make_station(flows__keep_cycles=3, tasks__archive=False, tasks__result_ttl_s=1)
    nodes = {**NODES, "late": ("delay", {"seconds": 60 if outcome == "delayed" else 0})}
    if outcome == "stopped":
        nodes["slow"] = "e_block"
    flow_id = await station.register(nodes, *EDGES, interval=3600)

    async def once() -> None:
        cycle = await station.run(flow_id)
        if outcome == "stopped":
            await until(lambda: _has_run(flow_id, cycle, "slow"), "the slow one")
            await station.flows.stop_component(flow_id, cycle, 0)
            await station.flows.terminate(flow_id, cycle, "slow")
            await station.flows.stop_cycle(flow_id, cycle)
        if outcome == "delayed":
            task = station.keys.task(f"{flow_id}_{cycle}_late")
            await until(lambda: _is_delayed(station, task), "the delay")
            await station.flows.stop_cycle(flow_id, cycle)
        await station.end(flow_id, cycle)

    async def numbers() -> list[int]:
        """Which cycles have keys; once for each key."""
        kinds = ("flow:", "node_tasks:", "trading_flow:")
        names = [n.replace(flow_id, "") for n in await station.all_keys(flow_id) if n.startswith(kinds)]
        assert {"flow:", "flow::cycles"} <= set(names)
        found = [re.search(r":cycle:(\d+)|:_(\d+)_", n) for n in names]
        assert len(names) - len([f for f in found if f]) == 3, names  # the flow, its plan, its cycles
        return [int(f[1] or f[2]) for f in found if f]

    for _ in range(5):
        await once()
    before = await numbers()
    for _ in range(5):
        await once()
    after = await numbers()
    assert (set(before), set(after)) == ({2, 3, 4}, {7, 8, 9})
    if outcome == "ends" and not station.is_amqp:
        assert len(after) == len(before)
    listed = {m.decode() for m in await station.redis.smembers(station.keys.node_tasks_list())}
    assert listed == {f"{flow_id}_{cycle}_{node}" for cycle in (7, 8, 9) for node in nodes}
    ran = {m.decode() for m in await station.redis.smembers(station.keys.worker_tasks(station.worker_id))}
    assert {f"{flow_id}_{cycle}_s" for cycle in (7, 8, 9)} <= ran <= listed
    assert await station.redis.zcard(station.keys.flow_cycles(flow_id)) == 3
    for cycle in range(7):
        assert not await station.redis.exists(station.keys.cycle(flow_id, cycle))


async def _has_run(flow_id: str, cycle: int, node: str) -> bool:
    return node in stage.ran(flow_id, cycle)


async def _is_delayed(station: Engine, task: str) -> bool:
    return await station.text(task, "status") == "RETRYING"


async def test_the_plan_of_an_old_definition_leaves_with_its_last_cycle(
    make_station: Callable[..., Awaitable[Engine]],
) -> None:
    station = await make_station(flows__keep_cycles=2)
    flow_id = station.new_id()
    for n in range(5):
        await station.register({"s": ("e_send", {"values": {"a": n}})}, id=flow_id, interval=3600)
        await station.end(flow_id, await station.run(flow_id))
    plans = await station.all_keys(f"flow:{flow_id}:plan:")
    assert len(plans) == 2
    for n in range(5, 8):
        await station.register({"s": ("e_send", {"values": {"a": n}})}, id=flow_id, interval=3600)
    assert len(await station.all_keys(f"flow:{flow_id}:plan:")) == 3


async def test_a_cycle_that_redis_has_forgotten_is_read_from_the_record(
    make_station: Callable[..., Awaitable[Engine]],
) -> None:
    station = await make_station(flows__keep_cycles=1)
    flow_id = await station.register(NODES, *EDGES, interval=3600)
    first = await station.end(flow_id, await station.run(flow_id))
    await station.end(flow_id, await station.run(flow_id))
    assert not await station.redis.exists(station.keys.cycle(flow_id, 0))
    records = station.flows.records
    assert records is not None

    async def recorded() -> bool:
        entry = await records.cycle(flow_id, 0)
        return entry is not None and entry.end_ms > 0

    await until(recorded, "the record")
    view = await station.flows.status.comprehensive(flow_id, 0)
    assert view["cycle_status"] == first.status == "failed"
    assert {n: v["status"] for n, v in view["nodes"].items()} == first.states
    assert view["statistics"]["failed_nodes"] == 1
    assert [c["cycle"] for c in await station.flows.cycles(flow_id)] == [1, 0]
