"""The measurements on one system: W1 enqueue and W2 drain together, W3 and W3b latency."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import redis
from executions import START, count_log, read_log
from server import PerTask, Usage
from system import BenchError, System

WARM_UP = 10


@dataclass(frozen=True, slots=True)
class Drain:
    """Rates per second. `missing` ids never ran, `twice` ran more than once: both must be 0 for the rate to count."""

    n: int
    enqueue_rate: float
    drain_rate: float
    middle_rate: float
    missing: int
    twice: int
    settle_s: float
    enqueue_cost: PerTask
    drain_cost: PerTask
    worker_cpu_us: float
    service_cpu_us: float


@dataclass(frozen=True, slots=True)
class Latency:
    """From just before the submit call to the first line of the task, in milliseconds."""

    p50: float
    p99: float
    most: float
    lost: int


def wait_until(is_true: Callable[[], bool], timeout_s: float, every_s: float = 0.02) -> bool:
    limit = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > limit:
            return False
        time.sleep(every_s)
    return True


def enqueue_only(system: System, client: redis.Redis, n: int) -> float:
    """W1 alone: rate of enqueueing n no-ops while no worker runs."""
    system.begin(client)
    _, seconds = system.enqueue(n)
    system.stop()
    return n / seconds


def drain(system: System, client: redis.Redis, n: int, workers: int, timeout_s: float = 120) -> Drain:
    """W1 and W2: enqueue n no-ops, start the workers, wait until all ran; rate from first to last execution."""
    system.begin(client)
    usage = Usage(client)
    ids, seconds = system.enqueue(n)
    enqueue_cost = usage.per_task(n)
    usage = Usage(client)
    started = time.monotonic()
    system.start_workers(workers)
    wait_until(lambda: count_log(system.log) > 0 or system.workers.has_ended(), timeout_s)
    cpu = system.workers.cpu_s(), system.services.cpu_s()
    wait_until(lambda: count_log(system.log) >= n or system.workers.has_ended(), timeout_s)
    worker_cpu_us = (system.workers.cpu_s() - cpu[0]) * 1e6 / n
    service_cpu_us = (system.services.cpu_s() - cpu[1]) * 1e6 / n
    ran = time.monotonic()
    wait_until(lambda: system.is_settled(client), timeout_s)
    settle_s = time.monotonic() - ran
    time.sleep(0.3)  # the last acknowledgements belong to the cost, and a second execution would show
    drain_cost = usage.per_task(n)
    system.stop()
    times, missing, twice = _check(system, ids, started)
    low, high = times[len(times) // 10], times[len(times) * 9 // 10]
    return Drain(
        n=n,
        enqueue_rate=n / seconds,
        drain_rate=(len(times) - 1) / max(times[-1] - times[0], 1e-9),
        middle_rate=0.8 * len(times) / max(high - low, 1e-9),
        missing=missing,
        twice=twice,
        settle_s=settle_s,
        enqueue_cost=enqueue_cost,
        drain_cost=drain_cost,
        worker_cpu_us=worker_cpu_us,
        service_cpu_us=service_cpu_us,
    )


def _check(system: System, ids: range, started: float) -> tuple[list[float], int, int]:
    """Sorted start times, ids that never ran, ids that ran more than once. BenchError when the log is not ours."""
    starts = [(i, at) for i, kind, at in read_log(system.log) if kind == START]
    times = sorted(at for _, at in starts)
    counts = Counter(i for i, _ in starts)
    if len(times) < 2:
        raise BenchError(f"{system.name}: {len(times)} of {len(ids)} tasks ran; {system.last_output()}")
    if not counts.keys() <= set(ids):
        raise BenchError(f"{system.name}: the log holds tasks of another run")
    if times[0] < started:
        raise BenchError(f"{system.name}: a task ran before its worker was started")
    return times, len(ids) - len(counts), sum(1 for count in counts.values() if count > 1)


def latency(system: System, client: redis.Redis, count: int, gap_s: tuple[float, float], warm_up: int) -> Latency:
    """One idle warm worker; submits one at a time, each a random `gap_s` after the previous task began."""
    system.begin(client)
    system.start_workers(1)
    submitted = {}
    for i in range(warm_up + count):
        if i:
            time.sleep(random.uniform(*gap_s))
        task_id, at = system.submit_one()
        if i >= warm_up:
            submitted[task_id] = at
        # the first submit also waits for the worker to start
        wait_until(_more_than(system.log, i), 10 if i else 30, every_s=0.0005)
    system.stop()
    started = {i: at for i, kind, at in read_log(system.log) if kind == START}
    found = sorted((started[i] - at) * 1e3 for i, at in submitted.items() if i in started)
    if not found:
        raise BenchError(f"{system.name}: no task of {count} ran; {system.last_output()}")
    p99 = found[max(int(len(found) * 0.99) - 1, 0)]
    return Latency(statistics.median(found), p99, found[-1], count - len(found))


def _more_than(log: Path, count: int) -> Callable[[], bool]:
    return lambda: count_log(log) > count
