"""The node task registry over every state store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.flows.stores import KINDS, open_store
from tradewind.clock import FakeClock
from tradewind.errors import Conflict, Invalid, NotFound
from tradewind.flows.node_record import NodeStatus
from tradewind.flows.node_tasks import NodeTaskManager
from tradewind.flows.state_store import StateStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, key_prefix: str, clock: FakeClock) -> AsyncIterator[StateStore]:
    async with open_store(request, key_prefix, clock) as found:
        yield found


@pytest.fixture
def manager(store: StateStore) -> NodeTaskManager:
    return NodeTaskManager(store, "w1")


async def ids(manager: NodeTaskManager, worker_id: str | None = None) -> list[str]:
    return [task.node_task_id for task in await manager.get_worker_tasks(worker_id)]


async def test_the_life_of_a_task(manager: NodeTaskManager, clock: FakeClock) -> None:
    task = await manager.register_task("trading_flow", 0, "binance_price", "binance_price_node", {"symbol": "BTC"})
    assert task.node_task_id == "trading_flow_0_binance_price"
    assert (task.worker_id, task.status, task.progress, task.config) == ("w1", "registered", 0, {"symbol": "BTC"})
    clock.advance(5)
    info = {"message": "Executing node", "progress": 50}
    assert await manager.update_task_status(task.node_task_id, "running", info)
    found = await manager.get_task(task.node_task_id)
    assert found and (found.status, found.message, found.progress) == ("running", "Executing node", 50)
    assert found.registered_at == "2023-11-14T22:13:20.000Z" and found.updated_at == "2023-11-14T22:13:25.000Z"
    assert await manager.update_task_status(task.node_task_id, "completed", {"progress": 100})
    assert not await manager.update_task_status(task.node_task_id, "running", {"progress": 60})
    found = await manager.get_task(task.node_task_id)
    assert found and (found.status, found.progress) == ("completed", 100)
    assert await manager.remove_task(task.node_task_id) and not await manager.remove_task(task.node_task_id)
    assert await manager.get_task(task.node_task_id) is None and await ids(manager) == []


async def test_updates_of_nothing_and_of_nonsense_are_refused(manager: NodeTaskManager) -> None:
    with pytest.raises(NotFound):
        await manager.update_task_status("f_0_a", "running")
    await manager.register_task("f", 0, "a", "constant")
    with pytest.raises(Invalid):
        await manager.update_task_status("f_0_a", "sleeping")
    with pytest.raises(Invalid):
        await manager.update_task_status("f_0_a", "running", {"flow_id": "g"})
    assert await manager.update_task_status("f_0_a", "error", {"error_message": "boom"})
    with pytest.raises(Conflict):
        await manager.register_task("f", 0, "a", "constant")


async def test_tasks_by_worker_flow_and_cycle(manager: NodeTaskManager, store: StateStore, clock: FakeClock) -> None:
    other = NodeTaskManager(store, "w2")
    for owner, flow, cycle, node in (
        (manager, "f", 0, "b"),
        (manager, "f", 0, "a"),
        (other, "f", 1, "a"),
        (other, "f_0", 1, "a"),
        (manager, "g", 0, "a"),
    ):
        await owner.register_task(flow, cycle, node, "constant")
        clock.advance(1)
    assert await ids(manager) == ["f_0_b", "f_0_a", "g_0_a"], "in order of registration"
    assert await ids(manager, "w2") == ["f_1_a", "f_0_1_a"] and await ids(manager, "w3") == []
    assert len(await manager.list_tasks()) == 5
    assert [t.node_task_id for t in await manager.list_tasks("f")] == ["f_0_b", "f_0_a", "f_1_a"]
    assert [t.node_id for t in await manager.list_tasks("f", 0)] == ["b", "a"], "f_0_1_a is of flow f_0"
    await store.add_to_set("flow:f:cycle:0:nodes", "a", "b", "1_a", "waiting")  # as the engine does
    assert [t.node_id for t in await manager.list_tasks("f", 0)] == ["b", "a"]
    assert await manager.list_tasks("f", 7) == []


async def test_comprehensive_status(manager: NodeTaskManager) -> None:
    for node in ("a", "b"):
        await manager.register_task("f", 0, node, "constant")
    await manager.update_task_status("f_0_a", "completed")
    await manager.update_task_status("f_0_b", "error", {"error_message": "no price"})
    found = await manager.get_comprehensive_node_status("f", 0)
    assert {node: (view["status"], view["error_message"]) for node, view in found.items()} == {
        "a": ("completed", ""),
        "b": ("failed", "no price"),
    }
    assert found["b"]["message"] == "no price" and found["a"]["worker_id"] == "w1"
    assert await manager.get_comprehensive_node_status("f", -1) == {}
    assert await manager.get_comprehensive_node_status("f", 1) == {}


async def test_stop_sets_the_flag_of_what_has_not_ended(manager: NodeTaskManager, store: StateStore) -> None:
    with pytest.raises(NotFound):
        await manager.stop_task("f_0_a")
    await manager.register_task("f", 0, "a", "constant")
    assert await manager.stop_task("f_0_a")
    flag = await store.get_termination_flag("f_0_a")
    assert flag == {"reason": "Stopped by NodeTaskManager", "timestamp": "2023-11-14T22:13:20.000Z"}
    await manager.update_task_status("f_0_a", "terminated")
    await store.clear_termination_flag("f_0_a")
    assert not await manager.stop_task("f_0_a", "again") and await store.get_termination_flag("f_0_a") is None


async def test_a_lost_worker_fails_what_it_had_in_flight_and_keeps_its_history(
    manager: NodeTaskManager, store: StateStore
) -> None:
    for node in ("registered", "running", "completed", "moved"):
        await manager.register_task("f", 0, node, "constant")
    await manager.update_task_status("f_0_running", "running")
    await manager.update_task_status("f_0_completed", "completed")
    await NodeTaskManager(store, "w2").register_task("f", 0, "moved", "constant")
    await store.add_to_set("worker_tasks:w1", "f_0_moved", "f_0_expired")  # ids that were left behind
    assert await manager.cleanup_worker_tasks("w1") == 2
    found = await manager.get_comprehensive_node_status("f", 0)
    assert {node: view["status"] for node, view in found.items()} == {
        "registered": "failed",
        "running": "failed",
        "completed": "completed",
        "moved": "registered",
    }
    assert found["running"]["error_message"] == "worker w1 is gone"
    assert await ids(manager, "w1") == [] and await ids(manager, "w2") == ["f_0_moved"]
    assert len(await manager.list_tasks("f")) == 4 and await manager.cleanup_worker_tasks("w1") == 0


async def test_old_tasks_leave_the_lists(manager: NodeTaskManager, store: StateStore) -> None:
    for node in ("a", "b"):
        await manager.register_task("f", 0, node, "constant")
    await store.delete_value("node_tasks:f_0_a")  # as when it expires
    assert await manager.cleanup_old_tasks() == 1
    assert await store.get_set_members("node_tasks_list") == await store.get_set_members("worker_tasks:w1") == {"f_0_b"}
    assert await manager.cleanup_old_tasks() == 0


async def test_a_broken_record_of_a_stranger_hides_no_other(manager: NodeTaskManager, store: StateStore) -> None:
    await manager.register_task("f", 0, "a", "constant")
    await store.set_value("node_tasks:f_0_b", {"cycle": "three"})
    await store.add_to_set("worker_tasks:w1", "f_0_b")
    assert await ids(manager) == ["f_0_a"] and await manager.get_task("f_0_b") is None


async def test_a_state_that_differs_from_the_record_counts(manager: NodeTaskManager, store: StateStore) -> None:
    await manager.register_task("f", 0, "a", "constant")
    record = await store.get_value("node_tasks:f_0_a")
    await store.update_node_task("f_0_a", NodeStatus.COMPLETED)
    await store.set_value("node_tasks:f_0_a", record)  # a stranger's late write
    assert (await manager.get_comprehensive_node_status("f", 0))["a"]["status"] == "completed"
    assert not await manager.update_task_status("f_0_a", "running")
