"""CPU-bound functions in child processes: a call each, a sure end, and nothing that they print matters."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests import servers
from tests.process import die_with_parent
from tests.tasks.workshop import eventually, workshop
from tradewind.tasks.client import TaskFailed
from tradewind.tasks.cpu_pool import CpuExecutor, ProcessFailed
from tradewind.tasks.executor import UserCodeFailed, attempt
from tradewind.tasks.record import Request, Status, decode_outcome
from tradewind.tasks.running import Running
from tradewind.tasks.worker_store import Taken

ROOT = Path(__file__).resolve().parents[2]


class Pool:
    def __init__(self, processes: int = 1) -> None:
        self.executor = CpuExecutor(["tests.tasks.worker_tasks"], processes)
        self.token = 1
        self.reports: list[bytes] = []

    def taken(self, kind: str, *args: Any) -> Taken:
        return Taken("t1", kind, 1, str(self.token), 60_000, msgspec.json.encode({"args": args}), "", 0)

    async def run(self, kind: str, *args: Any) -> Any:
        self.token += 1
        state = Running("t1", kind, 1, str(self.token), lambda _, data: self.reports.append(data))
        request = Request(args=list(args))
        return msgspec.json.decode(await self.executor.run(self.taken(kind, *args), request, state))


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool()
    yield pool
    await pool.executor.close()


async def test_a_child_serves_many_calls_and_ends_with_the_pool(pool: Pool) -> None:
    said = [await pool.run("wt_crunch", n) for n in range(1, 5)]
    assert [one["sum"] for one in said] == [0, 1, 5, 14]
    pids = {one["pid"] for one in said}
    assert len(pids) == 1 and os.getpid() not in pids
    assert said[0]["group"] != os.getpgid(0), "Ctrl-C in the terminal would end it"
    await pool.executor.close()
    assert not psutil.pid_exists(pids.pop())


async def test_calls_beyond_the_processes_wait_for_their_turn() -> None:
    pool = Pool(processes=2)
    try:
        said = await asyncio.gather(*(pool.run("wt_crunch", 1000) for _ in range(6)))
        assert len({one["pid"] for one in said}) == 2
    finally:
        await pool.executor.close()


async def test_a_function_knows_its_task_and_reports_progress(pool: Pool) -> None:
    heard: list[bytes] = []
    state = Running("t1", "wt_cpu_progress", 1, "1", lambda _, value: heard.append(value))
    result = await pool.executor.run(pool.taken("wt_cpu_progress"), Request(), state)
    assert msgspec.json.decode(result) == ["t1", "wt_cpu_progress", 1]
    assert heard == [b"0.5", b"1"]


async def test_what_a_function_prints_does_not_reach_the_protocol(pool: Pool) -> None:
    first = (await pool.run("wt_crunch", 2))["pid"]
    assert await pool.run("wt_cpu_chatter") == "said"
    assert (await pool.run("wt_crunch", 3)) == {"sum": 5, "pid": first, "group": first}


async def test_a_child_that_ends_is_named_and_replaced(pool: Pool) -> None:
    first = (await pool.run("wt_crunch", 2))["pid"]
    with pytest.raises(ProcessFailed, match="code 7 before it answered"):
        await pool.run("wt_cpu_exit", 7)
    assert (await pool.run("wt_crunch", 2))["pid"] != first


async def test_a_child_that_died_while_it_was_idle_harms_no_call(pool: Pool) -> None:
    first = (await pool.run("wt_crunch", 2))["pid"]
    (idle,) = pool.executor._idle
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: idle.returncode is not None, "the end of the child")
    assert (await pool.run("wt_crunch", 3))["sum"] == 5


async def test_a_module_that_cannot_be_imported_fails_the_call() -> None:
    executor = CpuExecutor(["no_such_module_anywhere"], 1)
    taken = Taken("t1", "wt_crunch", 1, "1", 60_000, b'{"args":[1]}', "", 0)
    with pytest.raises(ProcessFailed, match="code 1"):
        await executor.run(taken, Request(args=[1]), Running("t1", "wt_crunch", 1, "1", lambda *_: None))
    await executor.close()


@pytest.mark.parametrize(
    ("what", "kind", "says", "is_retryable"),
    [
        ("value", "ValueError", "bad", True),
        ("abort", "Abort", "no use", False),
        ("exit", "SystemExit", "3", True),
        ("stop", "StopIteration", "", True),
        ("surrogate", "OSError", "no file caf\\udce9", True),
        ("mute", "_Mute", "(its message cannot be read)", True),
    ],
)
async def test_what_a_function_raises_comes_back(
    pool: Pool, what: str, kind: str, says: str, *, is_retryable: bool
) -> None:
    with pytest.raises(UserCodeFailed) as caught:
        await pool.run("wt_cpu_raise", what)
    raised = caught.value.raised
    assert (raised.failure.type, raised.failure.message, raised.is_retryable) == (kind, says, is_retryable)
    assert "worker_tasks.py" in raised.failure.traceback
    assert len(pool.executor._idle) == 1, "the child goes on"


async def test_retry_keeps_its_delay(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(UserCodeFailed, match="again") as caught:
        await pool.run("wt_cpu_retry", str(tmp_path / "seen"))
    assert (caught.value.raised.asks_again, caught.value.raised.delay_ms) == (True, 10)


@pytest.mark.parametrize("what", ["object", "nan", "large", "surrogate"])
async def test_a_result_that_cannot_be_kept_is_not_computed_again(pool: Pool, what: str) -> None:
    with pytest.raises(UserCodeFailed, match="result") as caught:
        await pool.run("wt_cpu_result", what)
    assert not caught.value.raised.is_retryable
    assert await pool.run("wt_cpu_result", "null") == [None, {"a": None}]


async def _pids(path: Path) -> list[int]:
    await eventually(path.exists, "the start of the function")
    return [int(pid) for pid in path.read_text().split()]


@pytest.mark.parametrize(("reason", "status"), [(Status.TIMEOUT, "TIMEOUT"), (Status.CANCELLED, "CANCELLED")])
async def test_stopping_kills_the_child_and_what_it_has_started(
    pool: Pool, tmp_path: Path, reason: Status, status: str
) -> None:
    state = Running("t1", "wt_cpu_hold", 1, "1", lambda *_: None)
    path = tmp_path / "pids"
    job = asyncio.create_task(attempt(pool.executor, pool.taken("wt_cpu_hold", str(path)), state))
    pids = await _pids(path)
    assert all(psutil.pid_exists(pid) for pid in pids)
    state.stopped = reason
    job.cancel()
    ending = await job
    assert str(ending.status) == status
    assert decode_outcome(ending.outcome).error is not None
    assert not psutil.pid_exists(pids[0])
    await eventually(lambda: not _is_alive(pids[1]), "the end of the grandchild")


def _is_alive(pid: int) -> bool:
    """A killed orphan may stay a zombie until whoever has adopted it looks."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def test_a_child_at_work_dies_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    program = f"import asyncio; from {__name__} import Pool; asyncio.run(Pool().run('wt_cpu_hold', {str(path)!r}))"
    worker = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, preexec_fn=die_with_parent)
    child, grandchild = await _pids(path)
    worker.kill()
    worker.wait()
    try:
        await eventually(lambda: not _is_alive(child), "the end of the child")
    finally:
        os.kill(grandchild, signal.SIGKILL)


async def test_cpu_tasks_of_a_worker(
    any_redis: servers.Server | servers.Cluster, key_prefix: str, tmp_path: Path
) -> None:
    async with workshop(any_redis.url, key_prefix) as shop:
        await shop.start_cpu_worker()
        again = await shop.client.submit("wt_cpu_retry", str(tmp_path / "seen"))
        held = await shop.client.submit("wt_cpu_hold", str(tmp_path / "pids"))
        pid = (await _pids(tmp_path / "pids"))[0]
        await held.cancel()
        await shop.until(held.id, "CANCELLED")
        await eventually(lambda: not _is_alive(pid), "the end of the child")
        assert await again.result(20) == "second"
        slow = await shop.client.submit("wt_cpu_hold", str(tmp_path / "more"), timeout=1.0)
        gone = await shop.client.submit("wt_cpu_exit", 3)
        with pytest.raises(TaskFailed) as caught:
            await gone.result(20)
        assert caught.value.status is Status.FAILED
        assert "code 3" in caught.value.error["message"]
        with pytest.raises(TaskFailed) as caught:
            await slow.result(20)
        assert caught.value.status is Status.TIMEOUT
        assert (await (await shop.client.submit("wt_crunch", 3)).result(20))["sum"] == 5


@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_a_copy_of_the_child_answers_nothing(pool: Pool, how: str) -> None:
    """`os.fork` in a function: the copy comes back from it, too, and would answer in place of the next call."""
    for n in range(1, 4):
        assert await pool.run("wt_cpu_fork", how) == "of the child"
        assert (await pool.run("wt_crunch", n))["sum"] == [0, 1, 5][n - 1]


@pytest.mark.parametrize(
    "forged",
    [b"\xff\xff\xff\xff", b"\0\0\0\2{}", b'\0\0\0\x1f{"token":"0","result":"forged"}   ', b"\0\0\0\3abc"],
    ids=["length", "empty", "token", "no JSON"],
)
async def test_what_a_function_writes_to_the_pipe_is_no_answer(pool: Pool, forged: bytes) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(ProcessFailed):
            await pool.run("wt_cpu_forge", forged.decode("latin-1"))
        assert (await pool.run("wt_crunch", 3))["sum"] == 5


async def test_progress_of_a_thread_that_was_left_behind_is_not_that_of_the_next(pool: Pool) -> None:
    assert await pool.run("wt_cpu_leave_thread") == "left"
    pool.reports.clear()
    for n in range(1, 20):
        await pool.run("wt_crunch", n)
    assert pool.reports == []
