"""Starts the limited process of a code node, feeds it, and reads what it says, within bounds.

The limits are against accidents and greed; `python_sandbox.py` says what keeps the code from files, sockets and other
processes, and where.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import msgspec

from tradewind import codec
from tradewind.nodes import python_child

MAX_ANSWER_BYTES = 1_000_000
MAX_PRINTED_BYTES = 20_000
MAX_FILE_BYTES = 10_000_000
MAX_FILES = 64
_CHILD = str(Path(python_child.__file__).resolve())
_READ_BYTES = 65_536
_slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


class CodeError(msgspec.Struct, frozen=True):
    """`type` is the exception's name, or NotJson, TooLarge, NotConfined, TimedOut, Killed. `line` 0: unknown."""

    type: str
    message: str
    line: int = 0
    source: str = ""


class CodeAnswer(msgspec.Struct, frozen=True):
    value: Any = None
    error: CodeError | None = None
    printed: str = ""


_decode = msgspec.json.Decoder(CodeAnswer).decode


async def run_code(code: str, inputs: dict[str, Any], *, timeout_s: float, memory_mb: int) -> CodeAnswer:
    """Run `run(inputs)` of the code in a process of its own and wait for its end. Never raises for what the code does.

    When cancelled, the process is killed. At most four for each processor run at once; waiting for a place is not
    counted in `timeout_s`.
    """
    limits = {
        "cpu_s": math.ceil(timeout_s) + 1, "memory_bytes": memory_mb << 20, "file_bytes": MAX_FILE_BYTES,
        "files": MAX_FILES, "answer_bytes": MAX_ANSWER_BYTES,
    }  # fmt: skip
    request = codec.encode({"code": code, "inputs": inputs, "limits": limits})
    async with _slot():
        folder = tempfile.TemporaryDirectory(prefix=f"tradewind-code-{os.getpid()}-", ignore_cleanup_errors=True)
        try:
            if os.getuid() == 0:
                os.chown(folder.name, python_child.NOBODY, python_child.NOBODY)
            return await _run(request, folder.name, timeout_s)
        finally:
            await asyncio.shield(asyncio.to_thread(folder.cleanup))


async def _run(request: bytes, folder: str, timeout_s: float) -> CodeAnswer:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", "-X", "utf8", _CHILD, cwd=folder, start_new_session=True,
        env={"HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    printed, data = bytearray(), bytearray()
    prints = asyncio.create_task(_collect(child.stderr, printed, MAX_PRINTED_BYTES), name="code node prints")
    answer = asyncio.create_task(_collect(child.stdout, data, MAX_ANSWER_BYTES + 1000), name="code node answer")
    is_late = False
    try:
        async with asyncio.timeout(timeout_s):
            with contextlib.suppress(ConnectionError):  # it died early; its code says more
                child.stdin.write(request)
                await child.stdin.drain()
            child.stdin.close()
            await asyncio.shield(answer)
    except TimeoutError:
        is_late = True
    finally:
        _kill(child)  # also when it has answered: nothing more is expected of it
        await asyncio.wait(
            [prints, answer]
        )  # to their ends: a pipe that nobody reads would keep the process in its books
        await child.wait()
    if is_late:
        error = CodeError("TimedOut", f"it was still running after {timeout_s:g} s")
        return CodeAnswer(error=error, printed=_text(printed))
    return _answer(bytes(data), child.returncode or 0, _text(printed))


def _answer(data: bytes, code: int, printed: str) -> CodeAnswer:
    try:
        answer = _decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return CodeAnswer(error=CodeError("Killed", _ending(data, code)), printed=printed)
    return CodeAnswer(answer.value, answer.error, printed)


def _ending(data: bytes, code: int) -> str:
    if data:
        return "its process did not answer in JSON; only run(inputs) may answer"
    if code == -signal.SIGXCPU:
        return "it used up its processor time"
    if code == -signal.SIGKILL:
        return "its process ended without an answer; it may have run out of memory"
    return f"its process ended with code {code} and without an answer"


async def _collect(stream: asyncio.StreamReader, into: bytearray, most: int) -> None:
    """Read to the end, keep the first `most` bytes."""
    while part := await stream.read(_READ_BYTES):
        into += part[: most - len(into)]


def _text(printed: bytearray) -> str:
    text = printed.decode(errors="replace")
    return text + "\n…" if len(printed) >= MAX_PRINTED_BYTES else text


def _kill(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _slot() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    if loop not in _slots:
        _slots[loop] = asyncio.Semaphore(4 * (os.cpu_count() or 1))
    return _slots[loop]
