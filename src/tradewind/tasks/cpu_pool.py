"""CPU-bound functions in child processes: one call at a time, killed on timeout or cancel, replaced when they die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import sys
from collections.abc import Sequence

import msgspec

from tradewind.tasks.cpu_child import Answer, Call
from tradewind.tasks.executor import MAX_RESULT_BYTES, UserCodeFailed
from tradewind.tasks.record import Request
from tradewind.tasks.running import Running
from tradewind.tasks.worker_store import Taken

_LENGTH = struct.Struct(">I")
#: A result with its frame, or an error with its traceback.
MAX_ANSWER_BYTES = MAX_RESULT_BYTES + 100_000
_decode = msgspec.json.Decoder(Answer).decode


class ProcessFailed(Exception):
    """The child process ended before its function did."""


class CpuExecutor:
    """At most `processes` children; each imports the given modules once and then serves calls."""

    def __init__(self, modules: Sequence[str], processes: int) -> None:
        self._modules = list(modules)
        self._idle: list[asyncio.subprocess.Process] = []
        self._slots = asyncio.Semaphore(processes)

    async def run(self, taken: Taken, request: Request, state: Running) -> bytes:
        async with self._slots:
            child = self._living() or await self._start()
            try:
                answer = await self._call(child, Call(taken.id, taken.type, taken.attempt, taken.token, request), state)
            except BaseException:  # also a cancellation: whatever it computes now is of no use
                await _end(child)
                raise
            self._idle.append(child)
        if answer.raised is not None:
            raise UserCodeFailed(answer.raised)
        return bytes(answer.result)

    async def close(self) -> None:
        for child in self._idle:
            await _end(child)
        self._idle.clear()

    def _living(self) -> asyncio.subprocess.Process | None:
        while self._idle:
            child = self._idle.pop()
            if child.returncode is None:  # one that died while it was idle has done no harm to any task
                return child
        return None

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tradewind.tasks.cpu_child", *self._modules,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "TRADEWIND_CHILD": "1"},
            start_new_session=True,  # Ctrl-C must reach the worker only: it lets the call end while it drains
        )  # fmt: skip

    async def _call(self, child: asyncio.subprocess.Process, call: Call, state: Running) -> Answer:
        assert child.stdin is not None and child.stdout is not None
        data = msgspec.json.encode(call)
        try:
            child.stdin.write(_LENGTH.pack(len(data)) + data)
            await child.stdin.drain()
            while True:
                length = _LENGTH.unpack(await child.stdout.readexactly(_LENGTH.size))[0]
                if length > MAX_ANSWER_BYTES:
                    raise ProcessFailed("its code wrote to the pipe of its process")
                answer = _decode(await child.stdout.readexactly(length))
                if bytes(answer.progress):
                    if answer.token == call.token:  # else of a thread that the call before has left
                        state.pass_on(bytes(answer.progress))
                elif answer.token == call.token:
                    return answer
                else:
                    raise ProcessFailed("its process answered for another task")
        except msgspec.MsgspecError as error:
            raise ProcessFailed("its code wrote to the pipe of its process") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = await child.wait()
            raise ProcessFailed(f"its process ended with code {code} before it answered") from error


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # with whatever the function has started
    await child.wait()
