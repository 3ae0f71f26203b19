"""One attempt of a task in this process: what functions return and raise, and what that makes of the task."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests import servers
from tests.tasks.worker_tasks import let_go, notes
from tests.tasks.workshop import Workshop, eventually, workshop
from tradewind.tasks.client import TaskFailed
from tradewind.tasks.executor import LocalExecutor, attempt, encoded, retry_ms
from tradewind.tasks.function import registry
from tradewind.tasks.record import Status, decode_outcome
from tradewind.tasks.running import Abort, Running, current
from tradewind.tasks.worker_store import Ending, Taken


@pytest.fixture
async def shop(any_redis: servers.Server | servers.Cluster, key_prefix: str) -> AsyncIterator[Workshop]:
    async with workshop(any_redis.url, key_prefix) as shop:
        await shop.start_worker()
        yield shop


@pytest.fixture
def key() -> str:
    return secrets.token_hex(4)


async def run_once(kind: str, *args: object, request: bytes = b"", **more: object) -> Ending:
    """One attempt without Redis."""
    line = request or msgspec.json.encode({"args": args, **more})
    taken = Taken("t1", kind, 1, "1", 10_000, line, "", 0)
    executor = LocalExecutor(registry, 2)
    try:
        return await attempt(executor, taken, Running("t1", kind, 1, "1", lambda *_: None))
    finally:
        await executor.close()


def error_of(ending: Ending) -> tuple[str, str]:
    error = decode_outcome(ending.outcome).error
    assert error is not None
    return error.type, error.message


async def test_async_functions_run_on_the_loop_and_plain_ones_in_threads(shop: Workshop) -> None:
    assert await (await shop.client.submit("wt_add", 2, b=3)).result(10) == 5
    threaded = await (await shop.client.submit("wt_thread_add", 2, 3)).result(10)
    assert threaded["sum"] == 5 and threaded["thread"].startswith("tradewind-task")


async def test_a_function_knows_which_task_it_runs(shop: Workshop) -> None:
    handle = await shop.client.submit("wt_who")
    said = await handle.result(10)
    assert (said["id"], said["type"], said["attempt"]) == (handle.id, "wt_who", 1)
    assert int(said["token"]) > 0
    with pytest.raises(LookupError):
        current()


async def test_a_failed_attempt_is_repeated_until_it_succeeds(shop: Workshop, key: str) -> None:
    handle = await shop.client.submit("wt_third_time", key)
    assert await handle.result(10) == 3
    assert len(notes[key]) == 3


async def test_attempts_used_up_end_dead_with_the_last_error(shop: Workshop) -> None:
    handle = await shop.client.submit("wt_never")
    with pytest.raises(TaskFailed) as caught:
        await handle.result(10)
    assert caught.value.status is Status.DEAD
    assert (caught.value.error["type"], caught.value.error["message"]) == ("ValueError", "never")
    assert "worker_tasks.py" in caught.value.error["traceback"]
    assert (await shop.task(handle.id)).attempt == 3


async def test_retry_waits_as_long_as_it_asks(shop: Workshop, key: str) -> None:
    handle = await shop.client.submit("wt_retry", key, 0.2)
    assert await handle.result(10) == 2
    first, second = notes[key]
    assert second - first >= 0.19, "its own delay counts"
    assert second - first < 10, "not the backoff of a minute"


async def test_retry_with_a_delay_that_ends_the_calendar_waits_ten_years(shop: Workshop) -> None:
    handle = await shop.client.submit("wt_endless_retry")
    task = await shop.until(handle.id, "RETRYING")
    assert 9 * 365 * 86_400_000 < task.due_ms - task.created_ms < 11 * 366 * 86_400_000
    assert await (await shop.client.submit("wt_add", 1)).result(10) == 1, "the worker goes on"


@pytest.mark.parametrize("delay", ["nan", "text", "less"])
async def test_retry_with_a_delay_that_is_none_falls_back(redis_7: servers.Server, key_prefix: str, delay: str) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        await shop.start_worker()
        assert await (await shop.client.submit("wt_strange_retry", delay)).result(10) == 2


def test_delays_of_retry() -> None:
    assert [retry_ms(d) for d in (None, 0, 1.5, -3, 1e300, float("inf"))] == [
        None, 0, 1500, 0, 316_224_000_000, 316_224_000_000,
    ]  # fmt: skip
    assert retry_ms(float("nan")) is None


async def test_abort_ends_at_once_whatever_attempts_are_left(shop: Workshop) -> None:
    handle = await shop.client.submit("wt_abort")
    with pytest.raises(TaskFailed) as caught:
        await handle.result(10)
    assert (caught.value.status, caught.value.error["type"]) == (Status.FAILED, "Abort")
    assert (await shop.task(handle.id)).attempt == 1


@pytest.mark.parametrize(
    ("what", "says"),
    [("object", "not JSON"), ("surrogate", "not JSON"), ("nan", "NaN or Infinity"), ("large", "1000003 bytes")],
)
async def test_a_result_that_cannot_be_kept_fails_without_a_retry(
    redis_7: servers.Server, key_prefix: str, what: str, says: str
) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        await shop.start_worker()
        handle = await shop.client.submit("wt_result", what)
        with pytest.raises(TaskFailed) as caught:
            await handle.result(10)
        assert caught.value.status is Status.FAILED
        assert says in caught.value.error["message"]
        assert notes[f"result {what}"].count(handle.id) == 1


def test_results_that_are_json_are_kept_as_they_are() -> None:
    assert encoded(None) == b"null"
    assert encoded([None, {"a": None}]) == b'[null,{"a":null}]'
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(Abort):
        encoded(deep)


@pytest.mark.parametrize("kind", ["wt_raise", "wt_thread_raise"])
@pytest.mark.parametrize(
    ("what", "type", "message"),
    [
        ("surrogate", "OSError", "no file caf\\udce9"),
        ("mute", "_Mute", "(its message cannot be read)"),
        ("base", "_Base", "beyond Exception"),
        ("exit", "SystemExit", "3"),
        ("stop", "RuntimeError or StopIteration", ""),
        ("cancelled", "CancelledError", ""),
    ],
)
async def test_whatever_a_function_raises_ends_its_task_and_nothing_else(
    kind: str, what: str, type: str, message: str
) -> None:
    async with asyncio.timeout(10):
        ending = await run_once(kind, what)
    assert ending.status is Status.FAILED
    assert error_of(ending)[0] in type.split(" or ")
    assert message in error_of(ending)[1]


@pytest.mark.parametrize("what", ["surrogate", "mute", "base"])
async def test_a_strange_error_before_a_retry_is_stored_too(
    redis_7: servers.Server, key_prefix: str, what: str
) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        worker = await shop.start_worker()
        handle = await shop.client.submit("wt_raise_twice", what)
        with pytest.raises(TaskFailed) as caught:
            await handle.result(10)
        assert caught.value.status is Status.DEAD
        assert worker.is_registered


async def test_arguments_that_do_not_fit_here_are_not_tried_again() -> None:
    ending = await run_once("no_such_function", max_attempts=5)
    assert (ending.status, error_of(ending)[0]) == (Status.FAILED, "BadArguments")
    ending = await run_once("wt_add", request=b"{broken")
    assert (ending.status, error_of(ending)[0]) == (Status.FAILED, "BadRequest")


async def test_a_task_that_takes_too_long_ends_timeout(shop: Workshop, key: str) -> None:
    began = time.monotonic()
    handles = [await shop.client.submit(kind, key, timeout=0.3) for kind in ("wt_hold", "wt_thread_hold")]
    for handle in handles:
        with pytest.raises(TaskFailed) as caught:
            await handle.result(10)
        assert caught.value.status is Status.TIMEOUT
    assert time.monotonic() - began >= 0.29
    await eventually(lambda: {"stopped", "saw the cancel"} <= set(notes[key]), "both were told to stop")


async def test_a_timed_out_attempt_is_repeated(shop: Workshop, key: str) -> None:
    handle = await shop.client.submit("wt_hold", key, timeout=0.2, max_attempts=2, backoff=0)
    await eventually(lambda: notes[key].count(handle.id) == 2, "second attempt")
    let_go[key].set()
    assert await handle.result(10) == "held"


async def test_cancel_stops_an_async_function_promptly(shop: Workshop, key: str) -> None:
    handle = await shop.client.submit("wt_hold", key)
    await eventually(lambda: notes[key], "start")
    asked = time.monotonic()
    await handle.cancel()
    task = await shop.until(handle.id, "CANCELLED")
    assert time.monotonic() - asked < 5
    assert notes[key] == [handle.id, "stopped"]
    assert task.error is not None and task.error.type == "Cancelled"


async def test_cancel_ends_a_thread_task_at_once_and_tells_the_function(shop: Workshop, key: str) -> None:
    handle = await shop.client.submit("wt_thread_hold", key)
    await eventually(lambda: notes[key], "start")
    await handle.cancel()
    await shop.until(handle.id, "CANCELLED")
    await eventually(lambda: notes[key] == [handle.id, "saw the cancel"], "is_cancelled in the thread")


@pytest.mark.parametrize(("kind", "shown"), [("wt_progress", {"done": 1, "of": 2}), ("wt_thread_progress", 0.25)])
async def test_progress_is_shown_while_a_task_runs(shop: Workshop, key: str, kind: str, shown: object) -> None:
    handle = await shop.client.submit(kind, key)
    await eventually(lambda: _progress(shop, handle.id), "progress")
    view = await handle.view()
    assert (view["status"], view["progress"]) == ("PROCESSING", shown)
    let_go[key].set()
    await handle.result(10)


async def _progress(shop: Workshop, task_id: str) -> object:
    return (await shop.task(task_id)).progress


def test_progress_is_small_json() -> None:
    sent: list[bytes] = []
    run = Running("t", "k", 1, "1", lambda _, data: sent.append(data))
    run.progress(0.5)
    assert sent == [b"0.5"]
    with pytest.raises(Exception, match="2000 bytes"):
        run.progress("x" * 2001)
    with pytest.raises(TypeError):
        run.progress(object())


@pytest.mark.parametrize("kind", ["wt_nested", "wt_thread_nested"])
async def test_a_task_may_submit_another_and_wait_for_it(shop: Workshop, kind: str) -> None:
    assert await (await shop.client.submit(kind, 41)).result(20) == 42


async def test_retry_without_retries_runs_again(shop: Workshop, key: str) -> None:
    handle = await shop.client.submit("wt_asks_again", key, 3)
    assert await handle.result(20) == 3
    assert len(notes[key]) == 3


async def test_retry_is_bounded_without_retries_and_by_max_attempts_if_set(shop: Workshop, key: str) -> None:
    endless = await shop.client.submit("wt_asks_again", key, 1000)
    twice = await shop.client.submit("wt_asks_again", f"{key}2", 1000, max_attempts=2)
    once = await shop.client.submit("wt_asks_again", f"{key}1", 1000, max_attempts=1)
    for handle, times, status in ((endless, 25, Status.DEAD), (twice, 2, Status.DEAD), (once, 1, Status.FAILED)):
        with pytest.raises(TaskFailed) as caught:
            await handle.result(30)
        assert (caught.value.status, (await shop.task(handle.id)).attempt) == (status, times)
        assert caught.value.error["type"] == "Retry"


async def test_threads_that_go_on_after_their_timeout_keep_no_other_from_running(
    redis_7: servers.Server, key_prefix: str, key: str
) -> None:
    """More of them than the worker has slots."""
    async with workshop(redis_7.url, key_prefix) as shop:
        await shop.start_worker(capacity=3)
        await _deaf_threads(shop, key, 7)


async def _deaf_threads(shop: Workshop, key: str, count: int) -> None:
    handles = [await shop.client.submit("wt_thread_deaf", key, timeout=0.2) for _ in range(count)]
    try:
        for handle in handles:
            with pytest.raises(TaskFailed):
                await handle.result(20)
        assert len(notes[key]) == count, "each has begun"
        assert (await (await shop.client.submit("wt_thread_add", 2, 3, timeout=5)).result(10))["sum"] == 5
    finally:
        let_go[key].set()
