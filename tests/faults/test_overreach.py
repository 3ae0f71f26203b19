"""A task that cancels, stops or closes what it shares with others: they go on, and the task ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psutil
import pytest

from tests import servers
from tests.faults.probe import probe
from tests.faults.station_process import Site, by_id
from tradewind.tasks.record import Status

#: What is done, and how the task that does it ends.
ON_THE_LOOP = {
    "cancel all": ("FAILED", "CancelledError"),
    "cancel the others": ("SUCCESS", ""),
    "stop": ("SUCCESS", ""),
    "close": ("SUCCESS", ""),
    "threads": ("SUCCESS", ""),
    "factory": ("SUCCESS", ""),
    "exit in a job": ("SUCCESS", ""),
    "exit in a forgotten job": ("SUCCESS", ""),
    "exit in a callback": ("SUCCESS", ""),
    "exit in a reader": ("SUCCESS", ""),
    "stop from a thread": ("SUCCESS", ""),
    "signals": ("SUCCESS", ""),
    "fork": ("SUCCESS", ""),
    "time out": ("FAILED", "TimeoutError"),
    "stdout": ("SUCCESS", ""),
}
IN_A_THREAD = ("cancel all", "stop", "fork", "stdout")


def _copies(pid: int) -> list[int]:
    """Live copies of a process that it has forked."""
    own, found = psutil.Process(pid), []
    for child in own.children():
        with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if child.cmdline() == own.cmdline():
                found.append(child.pid)
    return found


async def test_a_task_that_overreaches_ends_alone(make_site: Callable[..., Site]) -> None:
    """A whole station in one process: the leader, the archive, the API and other tasks stand beside it."""
    with servers.redis_server() as redis:
        site = make_site(redis.url)
        station = site.start(imports="fault_tasks,fault_cpu_tasks")
        station.says("worker registered")
        async with probe(site) as there:
            beside = await there.submit("nap", [(4000,)] * 5) + await there.submit("thread_nap", [(4000,)] * 5)
            own = dict(zip(ON_THE_LOOP, await there.submit("overreach", [(how,) for how in ON_THE_LOOP]), strict=True))
            threads = await there.submit("thread_overreach", [(how,) for how in IN_A_THREAD])
            cpu = await there.submit("cpu_overreach", [("a",), ("b",), ("c",)])
            await there.wait_ended(len(beside) + len(own) + len(threads) + len(cpu), 60)
            tasks = await there.read([*own.values()])
            said = {how: (str(t.status), t.error.type if t.error else "") for how, t in zip(own, tasks, strict=True)}
            assert said == ON_THE_LOOP
            assert (await there.read(threads[:1]))[0].status is Status.FAILED, "it has cancelled itself, too"
            for task in await there.read(beside + threads[1:] + cpu):
                assert (task.status, task.attempt) == (Status.SUCCESS, 1), task
            later = await there.submit("nap", [(1,)] * 20)
            await there.wait_ended(len(beside) + len(own) + len(threads) + len(cpu) + 20, 60)
            assert {task.status for task in await there.read(later)} == {Status.SUCCESS}
        assert station.exit_code is None
        assert _copies(station.pid) == [], "what it forked has ended"
        assert "exit_in_callback" in station.output
        assert "task_overreached" in station.output, "its log goes on after stderr was closed"
        assert all(len(begun) == 1 for begun in by_id(site.ledger(), "begin").values()), "each ran once"
        station.terminate()
        assert station.wait(20) == 0, station.output[-3000:]


@pytest.mark.parametrize("how", ["cancel the others", "stop"])
async def test_many_that_overreach_at_once_end_alone(make_site: Callable[..., Site], how: str) -> None:
    """Many at once: none ends another, whichever comes first."""
    with servers.redis_server() as redis:
        site = make_site(redis.url)
        station = site.start()
        station.says("worker registered")
        async with probe(site) as there:
            ids = await there.submit("overreach", [(how,)] * 50)
            await there.wait_ended(50, 60)
            assert {task.status for task in await there.read(ids)} == {Status.SUCCESS}
        assert station.exit_code is None
