"""Node tasks in every state store: two records that agree, only the transitions of the table, one end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.flows.stores import KINDS, open_store
from tradewind import codec
from tradewind.clock import FakeClock, iso
from tradewind.errors import Conflict, Invalid, NotFound
from tradewind.flows.node_record import IN_FLIGHT, TERMINAL, TRANSITIONS, NodeStatus, NodeTask, parse_node_status
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


async def state(store: StateStore, task_id: str = "f_0_a") -> tuple[str, str]:
    """Status and error of both records, which must agree."""
    found, record = await store.get_node_task_status(task_id), await store.get_value(f"node_tasks:{task_id}")
    assert found is not None
    if record is not None:
        assert record["status"] == found["status"]
        assert record["updated_at"] == iso(round(found["updated_at"] * 1000))
    return found["status"], found["error_message"]


def test_what_ended_stays_ended_and_everything_else_may_end() -> None:
    assert set(TRANSITIONS) == set(NodeStatus) == TERMINAL | IN_FLIGHT
    assert {"completed", "failed", "terminated", "skipped"} == TERMINAL
    for status in IN_FLIGHT:
        assert TRANSITIONS[status] >= TERMINAL | {status}, "also the same again: a repeat after a lost reply"
        assert (NodeStatus.REGISTERED in TRANSITIONS[status]) == (status == NodeStatus.REGISTERED)


def test_status_words() -> None:
    assert parse_node_status("error") is parse_node_status("Failed") is NodeStatus.FAILED
    with pytest.raises(Invalid, match="'done'"):
        parse_node_status("done")


async def test_registration_writes_both_records_and_both_sets(store: StateStore) -> None:
    task = await store.register_node_task(TASK)
    assert (task.status, task.registered_at, task.updated_at) == ("registered", NOW, NOW)
    assert task.config == TASK.config
    record = await store.get_value("node_tasks:f_0_a")
    assert list(record) == list(NodeTask.__struct_fields__)
    assert await store.get_node_task_status("f_0_a") == {
        "status": "registered",
        "updated_at": float(NOW_S),
        "error_message": "",
    }
    assert await store.get_set_members("node_tasks_list") == await store.get_set_members("worker_tasks:w1") == {"f_0_a"}


async def test_an_update_changes_what_it_says_and_nothing_else(store: StateStore, clock: FakeClock) -> None:
    before = codec.decode(codec.encode(await store.register_node_task(TASK)))
    clock.advance(1.25)
    info = {"message": 'says "config": {', "progress": 50}
    assert await store.update_node_task("f_0_a", NodeStatus.RUNNING, info=info)
    record = await store.get_value("node_tasks:f_0_a")
    changed = {"status": "running", "updated_at": "2023-11-14T22:13:21.250Z", **info}
    assert record == before | changed and list(record) == list(before)
    assert await store.get_node_task_status("f_0_a") == {
        "status": "running",
        "updated_at": NOW_S + 1.25,
        "error_message": "",
    }
    assert await store.update_node_task("f_0_a", NodeStatus.RUNNING, info={"progress": {"of": [1, 2]}})
    assert await store.set_node_task_status("f_0_a", "error", "no price")
    record = await store.get_value("node_tasks:f_0_a")
    assert (record["message"], record["progress"], record["config"]) == ("no price", {"of": [1, 2]}, TASK.config)
    assert await state(store) == ("failed", "no price")


NASTY = ['5" pipe', "\\", '\\"', '","status":"completed', "}]{[,:", "\x00\n\t", "ü\u2028😀", ',"config":{}}', ""]


@pytest.mark.parametrize("text", NASTY)
async def test_no_text_confuses_the_record(store: StateStore, text: str) -> None:
    config = {text: text, "deep": [[{"a": [text, {}, []]}], -1.5e-300, 0.1], "status": text}
    await store.register_node_task(NodeTask("f_0_a", "f", 0, "a", "constant", "w1", message=text, config=config))
    info = {"message": text * 2, "progress": {text: [text]}}
    assert await store.update_node_task("f_0_a", NodeStatus.RUNNING, text, info=info)
    assert await store.update_node_task("f_0_a", NodeStatus.FAILED, text, info={"message": text})
    record = await store.get_value("node_tasks:f_0_a")
    assert (record["message"], record["progress"], record["config"]) == (text, info["progress"], config)
    assert len(record) == 12 and await state(store) == ("failed", text)


@pytest.mark.parametrize("old", list(NodeStatus))
async def test_only_the_transitions_of_the_table(store: StateStore, clock: FakeClock, old: NodeStatus) -> None:
    for n, new in enumerate(NodeStatus):
        task = NodeTask(f"f_{n}_a", "f", n, "a", "constant", "w1")
        await store.register_node_task(task)
        assert await store.update_node_task(task.node_task_id, old, "first")
        clock.advance(1)
        is_allowed = new in TRANSITIONS[old]
        assert await store.update_node_task(task.node_task_id, new, "second") == (is_allowed or new == old)
        expected = (new, "second") if is_allowed else (old, "first")
        assert await state(store, task.node_task_id) == expected


async def test_a_repeated_end_changes_nothing(store: StateStore, clock: FakeClock) -> None:
    await store.register_node_task(TASK)
    await store.set_node_task_status("f_0_a", "completed")
    before = await store.get_value("node_tasks:f_0_a")
    clock.advance(5)
    assert await store.update_node_task("f_0_a", NodeStatus.COMPLETED, info={"message": "again"})
    assert await store.get_value("node_tasks:f_0_a") == before


async def test_a_status_without_a_record_is_kept_as_a_state_only(store: StateStore) -> None:
    assert await store.get_node_task_status("f_0_a") is None
    assert await store.set_node_task_status("f_0_a", "running")
    assert await state(store) == ("running", "") and await store.get_value("node_tasks:f_0_a") is None
    assert (await store.register_node_task(TASK)).status == "running", "what is known is not forgotten"
    assert await state(store) == ("running", "")
    with pytest.raises(NotFound, match="f_9_a"):
        await store.update_node_task("f_9_a", NodeStatus.RUNNING, is_registered=True)
    assert await store.get_node_task_statuses(["f_9_a", "f_0_a"]) == [None, await store.get_node_task_status("f_0_a")]


async def test_another_worker_takes_over_what_has_not_ended(store: StateStore, clock: FakeClock) -> None:
    await store.register_node_task(TASK)
    await store.set_node_task_status("f_0_a", "running")
    assert (await store.register_node_task(TASK)).status == "running", "a repeat by the same worker"
    clock.advance(9)
    other = NodeTask("f_0_a", "f", 0, "a", "constant", "w2", config={"v": 2})
    task = await store.register_node_task(other)
    assert (task.worker_id, task.status, task.registered_at, task.config) == ("w2", "pending", NOW, {"v": 2})
    assert await state(store) == ("pending", "")
    assert await store.get_set_members("worker_tasks:w1") == set()
    assert await store.get_set_members("worker_tasks:w2") == {"f_0_a"}
    assert not await store.update_node_task("f_0_a", NodeStatus.FAILED, worker_id="w1")
    assert await store.update_node_task("f_0_a", NodeStatus.FAILED, worker_id="w2")
    with pytest.raises(Conflict, match="has ended: failed"):
        await store.register_node_task(TASK)


async def test_two_places_with_one_id_are_refused(store: StateStore) -> None:
    await store.register_node_task(NodeTask("a_1_2_b", "a_1", 2, "b", "constant", "w1"))
    with pytest.raises(Conflict, match="taken"):
        await store.register_node_task(NodeTask("a_1_2_b", "a", 1, "2_b", "constant", "w1"))
    assert (await store.get_value("node_tasks:a_1_2_b"))["flow_id"] == "a_1"


async def test_a_wrong_task_names_all_problems(store: StateStore) -> None:
    with pytest.raises(Invalid) as raised:
        await store.register_node_task(NodeTask("x", "a:b", -1, "", "constant", "type"))
    assert [p.path for p in raised.value.problems] == ["flow_id", "node_id", "worker_id", "cycle"]
    for task_id in ("a:b", "", "a" * 161, "x:terminate"):
        with pytest.raises(Invalid):
            await store.set_node_task_status(task_id, "running")
        with pytest.raises(Invalid):
            await store.get_termination_flag(task_id)
    with pytest.raises(Invalid, match="worker_id"):
        await store.update_node_task("f_0_a", NodeStatus.RUNNING, info={"worker_id": "w9"})
    with pytest.raises(Invalid, match="progress"):
        await store.update_node_task("f_0_a", NodeStatus.RUNNING, info={"progress": float("nan")})


async def test_remove_leaves_nothing(store: StateStore) -> None:
    await store.register_node_task(TASK)
    await store.set_termination_flag("f_0_a", "enough")
    assert await store.remove_node_task("f_0_a") and not await store.remove_node_task("f_0_a")
    assert await store.get_value("node_tasks:f_0_a") is None and await store.get_node_task_status("f_0_a") is None
    assert await store.get_termination_flag("f_0_a") is None
    assert await store.get_set_members("node_tasks_list") | await store.get_set_members("worker_tasks:w1") == set()


async def test_fifty_writers_race_and_one_end_wins(store: StateStore) -> None:
    for cycle in range(5):
        task_id = f"f_{cycle}_a"
        await store.register_node_task(NodeTask(task_id, "f", cycle, "a", "constant", "w1"))
        words = ["running", "completed", "failed", "running", "terminated"] * 10

        async def write(n: int, word: str, task_id: str = task_id) -> tuple[str, bool]:
            error = f"writer {n}"
            return word, await store.update_node_task(task_id, NodeStatus(word), error, info={"progress": n})

        done = await asyncio.gather(*(write(n, word) for n, word in enumerate(words)))
        status, error = await state(store, task_id)
        assert status in TERMINAL
        ends = {word for word, is_set in done if is_set and word in TERMINAL}
        assert ends == {status}, "only writers of the end that won are told so"
        writer = int(error.removeprefix("writer "))
        record = await store.get_value(f"node_tasks:{task_id}")
        assert words[writer] == status and record["progress"] == writer and record["message"] == error
        assert not await store.set_node_task_status(task_id, "running", "late")
        assert await state(store, task_id) == (status, error)


@pytest.mark.parametrize(
    "ms",
    [0, 951_782_399_999, 951_782_400_000, 1_709_164_800_123, 1_735_689_599_100, 4_107_542_400_010, 1_700_000_000_001],
)
async def test_scripts_write_times_as_python_does(store: StateStore, clock: FakeClock, ms: int) -> None:
    clock.ms = ms
    assert (await store.register_node_task(TASK)).registered_at == iso(ms)
    found = await store.get_node_task_status("f_0_a")
    assert found and found["updated_at"] == ms / 1000
