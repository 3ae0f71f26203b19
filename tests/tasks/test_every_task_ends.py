"""Whatever a function throws or returns, its task ends once, and the worker goes on with all the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import structlog

from tests import servers
from tests.hostile import ERRORS, VALUES
from tests.tasks.worker_tasks import let_go, notes
from tests.tasks.workshop import Workshop, eventually, workshop
from tradewind.tasks.record import DEAD_LETTERS, TERMINAL, Task
from tradewind.tasks.worker import Worker

#: Results that are odd but JSON: a value, or the end of a task, and which of them it is does not matter here.
KEPT = {"dying", "list", "dict", "huge number"}
WAIT_S = 60.0
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of their `__del__`


async def _endings(shop: Workshop, kind: str, names: Mapping[str, Any]) -> dict[str, Task]:
    handles = {name: await shop.client.submit(kind, name) for name in names}
    found: dict[str, Task] = {}

    async def look() -> bool:
        for name, handle in handles.items():
            if name not in found and (task := await shop.task(handle.id)).status in TERMINAL:
                found[name] = task
        return len(found) == len(handles)

    try:
        await eventually(look, "the end of every task", WAIT_S)
    except TimeoutError:
        pytest.fail(f"no end: {sorted(set(handles) - set(found))}")
    return found


def _check(worker: Worker, found: dict[str, Task], kept: set[str] | None = None) -> None:
    """One run, one ending with a type and a message."""
    for name, task in found.items():
        if name in (kept or ()):
            continue
        assert task.status in DEAD_LETTERS, name
        assert task.error is not None and task.error.type and len(task.error.message) <= 2000, name
        assert (task.attempt, task.stalls) == (1, 0), name
        assert len(notes[f"throw {task.id}"]) <= 1, f"{name} ran again"
    assert worker.is_registered and worker.running == 0


@pytest.mark.parametrize("kind", ["wt_throw", "wt_throw_later", "wt_throw_through_a_future", "wt_thread_throw"])
async def test_whatever_is_thrown_ends_the_task_once(redis_7: servers.Server, key_prefix: str, kind: str) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        worker = await shop.start_worker()
        found = await _endings(shop, kind, ERRORS)
        _check(worker, found)
        assert found["ValueError"].error is not None
        assert ("worker_tasks.py" in found["ValueError"].error.traceback) or kind.endswith("future")
        assert await (await shop.client.submit("wt_add", 1, 2)).result(10) == 3


@pytest.mark.parametrize("kind", ["wt_give", "wt_thread_give"])
async def test_whatever_is_returned_ends_the_task_once(redis_7: servers.Server, key_prefix: str, kind: str) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        worker = await shop.start_worker()
        found = await _endings(shop, kind, VALUES)
        _check(worker, found, KEPT)
        assert "async def" in found["coroutine"].error.message  # type: ignore[union-attr]
        assert await (await shop.client.submit("wt_add", 1, 2)).result(10) == 3


async def test_whatever_a_child_process_throws_or_returns_ends_the_task_once(
    redis_7: servers.Server, key_prefix: str
) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        worker = await shop.start_cpu_worker()
        _check(worker, await _endings(shop, "wt_cpu_throw", ERRORS))
        _check(worker, await _endings(shop, "wt_cpu_give", VALUES), KEPT)
        assert (await (await shop.client.submit("wt_crunch", 3)).result(20))["sum"] == 5


async def test_a_task_that_cancels_itself_ends(redis_7: servers.Server, key_prefix: str) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        await shop.start_worker()
        handle = await shop.client.submit("wt_cancel_itself")
        task = await shop.until(handle.id, *TERMINAL)
        assert (str(task.status), task.attempt, task.stalls) == ("FAILED", 1, 0)
        assert task.error is not None and task.error.type == "CancelledError"
        assert await (await shop.client.submit("wt_add", 1, 2)).result(10) == 3


async def test_an_ending_that_cannot_be_stored_holds_up_no_other(redis_7: servers.Server, key_prefix: str) -> None:
    """Somebody has put a list where the hash of the task was: every script that reads it fails."""
    async with workshop(redis_7.url, key_prefix, tasks={"max_stalls": 1}) as shop:
        worker = await shop.start_worker()
        held = await shop.client.submit("wt_hold", "not stored", max_attempts=5)
        await eventually(lambda: notes["not stored"], "start")
        await shop.redis.delete(shop.keys.task(held.id))
        await shop.redis.rpush(shop.keys.task(held.id), "no hash")
        let_go["not stored"].set()
        others = [await shop.client.submit("wt_add", n) for n in range(20)]
        assert [await handle.result(10) for handle in others] == list(range(20))
        assert worker.is_registered
        await eventually(lambda: _is_idle(shop), "the broken one being let go")


async def _is_idle(shop: Workshop) -> bool:
    return not await shop.redis.exists(shop.keys.worker_inflight("w1"))


async def test_the_last_failure_is_logged_once_with_its_type_message_and_traceback(
    redis_7: servers.Server, key_prefix: str
) -> None:
    with structlog.testing.capture_logs() as lines:
        async with workshop(redis_7.url, key_prefix) as shop:
            await shop.start_worker()
            never, empty = await shop.client.submit("wt_never"), await shop.client.submit("wt_throw", "empty")
            for handle in (never, empty):
                await shop.until(handle.id, *TERMINAL)
    final = {line["task"]: line for line in lines if line["event"] == "task_failed"}
    assert set(final) == {never.id, empty.id}
    said = final[never.id]
    assert (said["log_level"], said["error_type"], said["error"]) == ("warning", "ValueError", "never")
    assert "worker_tasks.py" in said["traceback"] and said["attempt"] == 3
    assert final[empty.id]["error"] == "ValueError", "never an empty error"
    tries = [line for line in lines if line["event"] == "task_attempt_failed"]
    assert [(line["task"], line["log_level"]) for line in tries] == [(never.id, "info")] * 2
    assert len([line for line in lines if line["event"] == "task_failed"]) == 2
