"""Task functions of the fault tests. Each writes its begin and its end to a ledger outside the system.

Imported by worker processes as a top-level module (their PYTHONPATH names this folder), never by the tests.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
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


async def _exit() -> None:
    raise SystemExit(3)


async def _interrupt() -> None:
    raise KeyboardInterrupt


def _raise(error: BaseException) -> None:
    raise error


@tradewind.task
async def overreach(how: str) -> str:
    """Does to the loop that it shares what it should not."""
    _note("begin")
    loop = asyncio.get_running_loop()
    if how == "cancel all":
        for job in asyncio.all_tasks():
            job.cancel()
        await asyncio.sleep(30)
    elif how == "cancel the others":
        for job in asyncio.all_tasks():
            if job is not asyncio.current_task():
                job.cancel()
    elif how == "stop":
        loop.stop()
        loop.call_soon(loop.stop)
    elif how == "close":
        loop.close()
    elif how == "threads":
        await loop.shutdown_default_executor()
    elif how == "factory":
        loop.set_task_factory(None)
    elif how == "stdout":
        sys.stdout.close()
        sys.stderr.close()
    elif how == "exit in a job":
        await asyncio.gather(asyncio.create_task(_exit()), asyncio.create_task(_interrupt()), return_exceptions=True)
    elif how == "exit in a forgotten job":
        asyncio.create_task(_exit())  # noqa: RUF006 — forgotten on purpose
        await asyncio.sleep(0.1)
    elif how == "exit in a callback":
        loop.call_soon(sys.exit, 3)
        loop.call_later(0.05, sys.exit, 3)
        loop.create_task(asyncio.sleep(0)).add_done_callback(lambda _: sys.exit(3))
        loop.call_soon(_raise, KeyboardInterrupt())
        contextvars.Context().run(loop.call_soon, sys.exit, 3)
        await asyncio.sleep(0.2)
    elif how == "exit in a reader":
        reads, writes = os.pipe()
        loop.add_reader(reads, sys.exit, 3)
        os.write(writes, b"x")
        await asyncio.sleep(0.1)
        loop.remove_reader(reads)
    elif how == "stop from a thread":
        threading.Thread(target=loop.call_soon_threadsafe, args=[loop.stop]).start()
        contextvars.Context().run(loop.stop)
        await asyncio.sleep(0.1)
    elif how == "signals":
        loop.add_signal_handler(signal.SIGTERM, _note, "caught")
        loop.remove_signal_handler(signal.SIGTERM)
    elif how == "fork":
        if os.fork() == 0:
            return "of the copy"
    elif how == "time out":
        async with asyncio.timeout(0.05):
            await asyncio.sleep(30)
    _note("end")
    return how


@tradewind.task
def thread_overreach(how: str) -> str:
    _note("begin")
    loop = tradewind.current().job.get_loop()
    if how == "cancel all":
        for job in asyncio.all_tasks(loop):
            loop.call_soon_threadsafe(job.cancel)
    elif how == "stop":
        loop.call_soon_threadsafe(loop.stop)
    elif how == "fork" and os.fork() == 0:
        return "of the copy"
    elif how == "stdout":
        sys.stdout.close()
        sys.stderr.close()
    _note("end")
    return how
