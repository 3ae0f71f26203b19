"""Dagster: execute_in_process. BENCH_DAGSTER=sqlite keeps its state in a temporary folder, else it is in memory."""

from __future__ import annotations

import logging
import os
import tempfile
from typing import Any

from dagster import DagsterInstance, DynamicOut, DynamicOutput, job, op

logging.disable(logging.CRITICAL)
if os.environ.get("BENCH_DAGSTER") == "sqlite":
    instance = DagsterInstance.local_temp(tempfile.mkdtemp(prefix="dagster-"))
else:
    instance = DagsterInstance.ephemeral()
_jobs: dict[tuple[str, int], Any] = {}


@op
def first():
    return 0 + 1


@op
def noop(x):
    return x + 1


@op
def total(xs):
    return sum(xs)


def prepare(kind: str, n: int) -> None:
    if (kind, n) not in _jobs:
        _jobs[kind, n] = {"chain": _chain_job, "fan": _fan_job, "flows": _single_job}[kind](n)


def _chain_job(n: int) -> Any:
    @job(name=f"chain{n}")
    def made():
        x = first()
        for _ in range(n - 1):
            x = noop(x)

    return made


def _fan_job(n: int) -> Any:
    @op(out=DynamicOut())
    def spread(x):
        for k in range(n):
            yield DynamicOutput(x, mapping_key=str(k))

    @job(name=f"fan{n}")
    def made():
        total(spread(first()).map(noop).collect())

    return made


def _single_job(n: int) -> Any:
    @job(name=f"single{n}")
    def made():
        first()

    return made


def _end(kind: str, n: int, name: str) -> Any:
    done = _jobs[kind, n].execute_in_process(instance=instance)
    assert done.success
    return done.output_for_node(name)


def chain(n: int) -> None:
    assert _end("chain", n, "noop" if n == 2 else f"noop_{n - 1}") == n


def fan(n: int) -> None:
    assert _end("fan", n, "total") == 2 * n


def flows(n: int) -> None:
    assert [_end("flows", n, "first") for _ in range(n)] == [1] * n
