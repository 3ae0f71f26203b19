"""Task functions of the fault tests. Each writes its begin and its end to a ledger outside the system.

Imported by worker processes as a top-level module (their PYTHONPATH names this folder), never by the tests.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

import tradewind

_ledger = os.open(os.environ["FAULT_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _note(kind: str) -> None:
    run = tradewind.current()
    line = f"{kind} {run.id} {run.attempt} {run.token} {os.getpid()} {time.monotonic()}\n"
    os.write(_ledger, line.encode())


@tradewind.task
async def nap(ms: float) -> None:
    _note("begin")
    await asyncio.sleep(ms / 1000)
    _note("end")


@tradewind.task
def thread_nap(ms: float) -> None:
    _note("begin")
    time.sleep(ms / 1000)
    _note("end")


@tradewind.task
async def block_loop(ms: float) -> None:
    """Blocks the worker's event loop: the fault under test."""
    _note("begin")
    time.sleep(ms / 1000)
    _note("end")


@tradewind.task(exclusive="one-at-a-time")
async def exclusive_nap(ms: float) -> None:
    _note("begin")
    await asyncio.sleep(ms / 1000)
    _note("end")


@tradewind.task
def poison() -> None:
    _note("begin")
    os.kill(os.getpid(), signal.SIGKILL)
