"""Task functions of the worker tests. Also imported by the CPU children, which share nothing with the test process.

Functions that run in the test process tell what they do in `notes` under a key that the test chose.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.hostile import ERRORS, VALUES
from tradewind import Abort, Retry, current, task
from tradewind.tasks.function import Signature, registry

notes: dict[str, list[Any]] = defaultdict(list)
let_go: dict[str, threading.Event] = defaultdict(threading.Event)


def signature(name: str) -> Signature:
    function = registry.get(name)
    assert function is not None
    return function.signature


async def _let_go(key: str) -> None:
    while not let_go[key].is_set():  # noqa: ASYNC110 — shared with threads
        await asyncio.sleep(0.005)


@task
async def wt_add(a: int, b: int = 0) -> int:
    return a + b


@task
def wt_thread_add(a: int, b: int = 0) -> dict[str, Any]:
    return {"sum": a + b, "thread": threading.current_thread().name}


@task
async def wt_hold(key: str) -> str:
    """Wait until the test lets go."""
    notes[key].append(current().id)
    try:
        await _let_go(key)
    except asyncio.CancelledError:
        notes[key].append("stopped")
        raise
    return "held"


@task
def wt_thread_deaf(key: str) -> None:
    """Hears of no cancel."""
    notes[key].append(current().id)
    let_go[key].wait(60)


@task
def wt_thread_hold(key: str) -> str:
    """Wait until the test lets go or somebody stops it; a thread must look for itself."""
    run = current()
    notes[key].append(run.id)
    while not let_go[key].wait(0.005):
        if run.is_cancelled:
            notes[key].append("saw the cancel")
            break
    return "held"


@task
async def wt_who() -> dict[str, Any]:
    run = current()
    return {"id": run.id, "type": run.type, "attempt": run.attempt, "token": run.token}


@task
async def wt_progress(key: str) -> None:
    current().progress({"done": 1, "of": 2})
    notes[key].append("reported")
    await _let_go(key)


@task
def wt_thread_progress(key: str) -> None:
    current().progress(0.25)
    let_go[key].wait(20)


@task(retries=5, backoff=0.01)
async def wt_third_time(key: str) -> int:
    notes[key].append(time.monotonic())
    if current().attempt < 3:
        raise ConnectionError("not yet")
    return current().attempt


@task(retries=2, backoff=0.01)
async def wt_never() -> None:
    raise ValueError("never")


@task(retries=5, backoff=60)
async def wt_retry(key: str, seconds: float) -> int:
    notes[key].append(time.monotonic())
    if current().attempt == 1:
        raise Retry("again", delay=seconds)
    return current().attempt


@task(retries=5, backoff=0.01)
async def wt_strange_retry(what: str) -> int:
    if current().attempt == 1:
        raise Retry("again", delay={"nan": float("nan"), "text": "soon", "less": -5}[what])  # type: ignore[arg-type]
    return current().attempt


@task
async def wt_asks_again(key: str, times: int) -> int:
    notes[key].append(current().attempt)
    if current().attempt < times:
        raise Retry("again", delay=0.01)
    return current().attempt


@task(retries=5)
async def wt_endless_retry() -> None:
    raise Retry("much later", delay=1e300)


@task(retries=5)
async def wt_abort() -> None:
    raise Abort("no use")


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this fails")


class _Base(BaseException):
    pass


_STRANGE = {
    "surrogate": lambda: OSError("no file caf\udce9"),
    "mute": lambda: _Mute(),
    "base": lambda: _Base("beyond Exception"),
    "exit": lambda: SystemExit(3),
    "stop": lambda: StopIteration(),
    "cancelled": lambda: asyncio.CancelledError(),
}


@task
async def wt_raise(what: str) -> None:
    raise _STRANGE[what]()


@task
def wt_thread_raise(what: str) -> None:
    raise _STRANGE[what]()


@task(retries=1, backoff=0)
async def wt_raise_twice(what: str) -> None:
    raise _STRANGE[what]()


_RESULTS: dict[str, Any] = {
    "object": object(),
    "nan": {"a": [float("nan")]},
    "surrogate": "\ud800",
    "large": "x" * 1_000_001,
    "null": [None, {"a": None}],
    "bytes": b"ab",
}


@task(retries=3)
async def wt_result(what: str) -> Any:
    notes[f"result {what}"].append(current().id)
    return _RESULTS[what]


@task
async def wt_nested(a: int) -> int:
    handle = await wt_add.submit(a, b=1)
    return int(await handle.result(timeout=15))


@task
def wt_thread_nested(a: int) -> int:
    return int(wt_add.submit(a, b=1).result(timeout=15))


def _alone(key: str) -> str:
    """Notes an overlap if another one is inside."""
    inside = notes[f"{key} inside"]
    inside.append(current().id)
    if len(inside) > 1:
        notes[f"{key} overlaps"].append(list(inside))
    return key


@task
async def wt_one_at_a_time(key: str, seconds: float = 0.05) -> None:
    _alone(key)
    await asyncio.sleep(seconds)
    notes[f"{key} inside"].remove(current().id)
    notes[key].append(current().id)


@task(cpu=True)
def wt_crunch(n: int) -> dict[str, Any]:
    return {"sum": sum(i * i for i in range(n)), "pid": os.getpid(), "group": os.getpgid(0)}


@task(cpu=True)
def wt_cpu_hold(path: str) -> None:
    """Tell its pid and that of a child of its own, then never end."""
    child = subprocess.Popen(["sleep", "600"])
    Path(path).with_suffix(".new").write_text(f"{os.getpid()} {child.pid}")
    Path(path).with_suffix(".new").rename(path)
    while True:
        time.sleep(1)


@task(cpu=True)
def wt_cpu_exit(code: int) -> None:
    os._exit(code)


@task(cpu=True)
def wt_cpu_fork(how: str) -> str:
    """Goes on twice."""
    if os.fork() == 0:
        if how == "raises":
            raise ValueError("in the copy")
        return "of the copy"
    os.wait()
    return "of the child"


@task(cpu=True)
def wt_cpu_forge(data: str) -> str:
    """Writes to every pipe of its process."""
    for number in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(number, data.encode("latin-1"))
    return "said"


@task(cpu=True)
def wt_cpu_leave_thread() -> str:
    """Reports its progress when it has ended long ago."""
    state = current()

    def report() -> None:
        for _ in range(200):
            state.progress("of the one before")
            time.sleep(0.005)

    threading.Thread(target=report, daemon=True).start()
    return "left"


@task(cpu=True)
def wt_cpu_chatter() -> str:
    print("\x00\x00\x00\x02{}", flush=True)  # noqa: T201
    os.write(1, b"\xff" * 5000)
    sys.stdout.buffer.write(b'{"result": "forged"}')
    sys.stdout.flush()
    subprocess.run(["echo", "from a child"], check=True)
    return "said"


@task(cpu=True)
def wt_cpu_raise(what: str) -> None:
    raise {"value": ValueError("bad"), "abort": Abort("no use"), **{n: f() for n, f in _STRANGE.items()}}[what]


@task(cpu=True, retries=3, backoff=60)
def wt_cpu_retry(path: str) -> str:
    if not Path(path).exists():
        Path(path).touch()
        raise Retry("again", delay=0.01)
    return "second"


@task(cpu=True)
def wt_cpu_result(what: str) -> Any:
    return _RESULTS[what]


@task(cpu=True)
def wt_cpu_progress() -> list[Any]:
    state = current()
    for step in (0.5, 1):
        state.progress(step)
    return [state.id, state.type, state.attempt]


@task
async def wt_throw(name: str) -> None:
    notes[f"throw {current().id}"].append(name)
    raise ERRORS[name]()


@task
async def wt_throw_later(name: str) -> None:
    notes[f"throw {current().id}"].append(name)
    await asyncio.sleep(0)
    raise ERRORS[name]()


@task
async def wt_throw_through_a_future(name: str) -> None:
    notes[f"throw {current().id}"].append(name)
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_exception, ERRORS[name]())
    await asyncio.wait_for(future, 2)


@task
def wt_thread_throw(name: str) -> None:
    notes[f"throw {current().id}"].append(name)
    raise ERRORS[name]()


@task(cpu=True)
def wt_cpu_throw(name: str) -> None:
    raise ERRORS[name]()


@task
async def wt_cancel_itself() -> None:
    job = asyncio.current_task()
    assert job is not None
    job.cancel()
    await asyncio.sleep(30)


@task
async def wt_give(name: str) -> Any:
    notes[f"throw {current().id}"].append(name)
    return VALUES[name]()


@task
def wt_thread_give(name: str) -> Any:
    notes[f"throw {current().id}"].append(name)
    return VALUES[name]()


@task(cpu=True)
def wt_cpu_give(name: str) -> Any:
    return VALUES[name]()


CPU_TYPES = [f.name for f in registry.all() if f.is_cpu and f.name.startswith("wt_")]
TYPES = [f.name for f in registry.all() if not f.is_cpu and f.name.startswith("wt_")]
