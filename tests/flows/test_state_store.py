"""One contract for every state store: values, sets, flags, times. Node tasks: see test_state_store_nodes.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.flows.stores import KINDS, open_store
from tradewind.clock import FakeClock
from tradewind.errors import Conflict, Invalid
from tradewind.flows.memory_state_store import InMemoryStateStore
from tradewind.flows.node_record import NodeTask
from tradewind.flows.state_store import StateStore

NOW_S = 1_700_000_000
NOW = "2023-11-14T22:13:20.000Z"
TASK = NodeTask("f_0_a", "f", 0, "a", "constant", "w1", config={"empty": [], "none": {}, "big": 9007199254740993})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_S * 1000)


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, key_prefix: str, clock: FakeClock) -> AsyncIterator[StateStore]:
    async with open_store(request, key_prefix, clock) as found:
        yield found


@pytest.mark.parametrize("value", [0, "", "x", [], {}, {"a": [1.5, None, {"b": "ü"}]}, False, None])
async def test_a_value_comes_back_as_it_was(store: StateStore, value: Any) -> None:
    await store.set_value("k", value)
    assert await store.get_value("k") == value


async def test_values_are_missing_until_set_and_after_delete(store: StateStore) -> None:
    assert await store.get_value("k") is None and not await store.delete_value("k")
    await store.set_value("k", 1)
    await store.set_value("l", {"n": 2})
    assert await store.get_values(["k", "no", "l"]) == [1, None, {"n": 2}]
    assert await store.get_values([]) == []
    assert await store.delete_value("k") and await store.get_value("k") is None


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], object(), {"a": {1, 2}.__iter__()}])
async def test_what_is_not_json_is_refused(store: StateStore, value: Any) -> None:
    with pytest.raises(Invalid):
        await store.set_value("k", value)
    assert await store.get_value("k") is None


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan")])
async def test_a_ttl_is_positive(store: StateStore, ttl_s: float) -> None:
    with pytest.raises(Invalid, match="ttl"):
        await store.set_value("k", 1, ttl_s)


async def test_a_kept_value_is_a_copy(store: StateStore) -> None:
    value = {"a": [1]}
    await store.set_value("k", value)
    value["a"].append(2)
    (await store.get_value("k"))["a"].append(3)
    assert await store.get_value("k") == {"a": [1]}


async def test_sets(store: StateStore) -> None:
    assert await store.get_set_members("s") == set()
    assert await store.add_to_set("s", "a", "b", "a") == 2 and await store.add_to_set("s", "b", "c") == 1
    assert await store.add_to_set("s") == await store.remove_from_set("s") == 0
    (await store.get_set_members("s")).clear()
    assert await store.get_set_members("s") == {"a", "b", "c"}
    assert await store.remove_from_set("s", "a", "x") == 1
    assert await store.remove_from_set("s", "b", "c") == 2
    assert await store.get_set_members("s") == set() and not await store.delete_value("s")
    await store.add_to_set("s", "a")
    assert await store.delete_value("s") and await store.get_set_members("s") == set()


async def test_a_large_set_is_read_in_batches_while_it_shrinks(store: StateStore) -> None:
    wanted = {f"m{i}" for i in range(1700)}
    await store.add_to_set("s", *wanted)
    seen: set[str] = set()
    batches = 0
    async for members in store.scan_set("s"):
        batches += 1
        seen.update(members)
        await store.remove_from_set("s", *members)
    assert seen == wanted and batches > 1 and await store.get_set_members("s") == set()


async def test_a_key_is_a_value_or_a_set(store: StateStore) -> None:
    await store.add_to_set("s", "a")
    await store.set_value("k", 1)
    with pytest.raises(Conflict):
        await store.get_value("s")
    with pytest.raises(Conflict):
        await store.add_to_set("k", "a")
    with pytest.raises(Conflict):
        await store.get_set_members("k")
    assert await store.get_values(["s", "k"]) == [None, 1]


async def test_termination_flag(store: StateStore) -> None:
    assert await store.get_termination_flag("f_0_a") is None and not await store.clear_termination_flag("f_0_a")
    assert await store.set_termination_flag("f_0_a", 'User said "stop"'), "also before it is registered"
    assert await store.get_termination_flag("f_0_a") == {"reason": 'User said "stop"', "timestamp": NOW}
    assert await store.clear_termination_flag("f_0_a") and await store.get_termination_flag("f_0_a") is None
    await store.register_node_task(TASK)
    await store.set_node_task_status("f_0_a", "completed")
    assert not await store.set_termination_flag("f_0_a", "too late") and not await store.get_termination_flag("f_0_a")
    with pytest.raises(Invalid, match="reason"):
        await store.set_termination_flag("f_0_b", {"reason": "x"})  # type: ignore[arg-type]


async def test_component_stop_flag(store: StateStore) -> None:
    assert not await store.get_component_stop_flag("f", 3, 0)
    await store.set_component_stop_flag("f", 3, 0)
    assert await store.get_component_stop_flag("f", 3, 0) and not await store.get_component_stop_flag("f", 3, 1)
    assert await store.clear_component_stop_flag("f", 3, 0) and not await store.get_component_stop_flag("f", 3, 0)


async def test_ttls_go_by_the_clock_in_memory(clock: FakeClock) -> None:
    store = InMemoryStateStore(clock)
    await store.initialize()
    await store.set_value("k", 1, 10)
    await store.set_value("kept", 1, 10)
    await store.set_value("kept", 2)
    await store.register_node_task(TASK)
    await store.set_termination_flag("f_0_a", "stop")
    await store.set_component_stop_flag("f", 0, 0)
    clock.advance(9.999)
    assert await store.get_value("k") == 1
    clock.advance(0.001)
    assert await store.get_values(["k", "kept"]) == [None, 2] and not await store.delete_value("k")
    clock.advance(3590)
    assert await store.get_termination_flag("f_0_a") is None and not await store.get_component_stop_flag("f", 0, 0)
    clock.advance(20 * 3600)
    assert await store.set_node_task_status("f_0_a", "running"), "a sign of life renews it"
    clock.advance(86_399)
    found = await store.get_node_task_status("f_0_a")
    assert found and found["status"] == "running"
    assert await store.forget_expired_node_tasks() == 0
    clock.advance(1)
    assert await store.get_node_task_status("f_0_a") is None and await store.get_value("node_tasks:f_0_a") is None
    assert await store.get_set_members("node_tasks_list") == {"f_0_a"}
    assert await store.forget_expired_node_tasks() == 1
    assert await store.get_set_members("node_tasks_list") | await store.get_set_members("worker_tasks:w1") == set()
    await store.close()
