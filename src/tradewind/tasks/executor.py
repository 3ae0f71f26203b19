"""Runs one attempt of a task and says how it ended. Knows functions and errors, not Redis.

Async functions run on the loop, plain ones in a thread, CPU-bound ones in a child process (cpu_pool.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from tradewind import codec
from tradewind.tasks import running
from tradewind.tasks.client import blocking_in_use
from tradewind.tasks.function import Registry, TaskFunction
from tradewind.tasks.record import Failure, Request, Status, decode_request
from tradewind.tasks.retry import after_failure, backoff_ms
from tradewind.tasks.running import Abort, Retry, Running
from tradewind.tasks.worker_store import Ending, Taken

MAX_RESULT_BYTES = 1_000_000
MAX_RETRY_S = 10 * 366 * 86_400
THREAD_NAME = "tradewind-task"
_SUCCESS = Status.SUCCESS


class BadArguments(Exception):
    """The arguments do not fit the function of this worker; trying again would not help."""


class Executor(Protocol):
    """Runs attempts for a worker. `run` returns the encoded result or raises; `close` ends what it owns."""

    async def run(self, taken: Taken, request: Request, state: Running) -> bytes: ...

    async def close(self) -> None: ...


class LocalExecutor:
    """Functions of this process, on the loop or in threads."""

    def __init__(self, functions: Registry, threads: int) -> None:
        self._functions = functions
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=THREAD_NAME)

    async def run(self, taken: Taken, request: Request, state: Running) -> bytes:
        function = find(self._functions, taken.type)
        args, kwargs = converted(function, request)
        running.enter(state)
        if function.is_async:
            result = await function.function(*args, **kwargs)
        else:
            loop, context = asyncio.get_running_loop(), contextvars.copy_context()
            context.run(blocking_in_use, loop)
            result = await loop.run_in_executor(self._threads, context.run, _call, function.function, args, kwargs)
        return encoded(result)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class RoutedExecutor:
    """Tasks of other rooms (by their hook) go to those rooms' executors, all others to the first one."""

    def __init__(self, own: Executor, rooms: Mapping[str, Executor]) -> None:
        self._own = own
        self._rooms = dict(rooms)

    async def run(self, taken: Taken, request: Request, state: Running) -> bytes:
        if not taken.hook:
            return await self._own.run(taken, request, state)
        room = self._rooms.get(taken.hook)
        if room is None:
            raise BadArguments(f"this worker does not serve {taken.hook}")
        return await room.run(taken, request, state)

    async def close(self) -> None:
        for executor in (self._own, *self._rooms.values()):
            await executor.close()


def _call(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration as error:  # a future cannot carry it: whoever awaits would wait for ever
        raise RuntimeError("the function raised StopIteration") from error


def find(functions: Registry, name: str) -> TaskFunction[Any, Any]:
    function = functions.get(name)
    if function is None:
        raise BadArguments(f"this worker has no function for the type {name!r}")
    return function


def converted(function: TaskFunction[Any, Any], request: Request) -> tuple[list[Any], dict[str, Any]]:
    try:
        return function.convert(request.args, request.kwargs)
    except msgspec.ValidationError as error:
        raise BadArguments(f"the arguments do not fit {function.name!r}: {error}") from error


def encoded(result: Any) -> bytes:
    """A result as JSON. Raises Abort when it cannot be kept: the work is done, a retry would repeat it for nothing."""
    if result is None:
        return b"null"
    try:
        data = codec.encode(result)
        is_lossy = codec.lost_non_finite(result, data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Abort(f"the result is not JSON: {error}") from error
    if is_lossy:
        raise Abort("the result is not JSON: it holds NaN or Infinity")
    if len(data) > MAX_RESULT_BYTES:
        raise Abort(f"the result has {len(data)} bytes of JSON; at most {MAX_RESULT_BYTES} are kept")
    return data


async def attempt(executor: Executor, taken: Taken, state: Running) -> Ending:
    """Run one attempt to its end. If it is cancelled, `state.stopped` says what that means; None: the worker stops."""
    try:
        request = decode_request(taken.request)
    except (msgspec.MsgspecError, RecursionError) as error:
        return ended(taken, Status.FAILED, Failure("BadRequest", f"its request cannot be read: {error}"))
    try:
        result = await executor.run(taken, request, state)
        return Ending(taken.id, taken.token, taken.type, _SUCCESS, taken.request, b'{"result":' + result + b"}")
    except asyncio.CancelledError:
        reason = state.stopped
        if reason is None:
            job = asyncio.current_task()
            if job is not None and job.cancelling():
                raise
            said = Failure("CancelledError", "something that it waited for was cancelled")
            return failed(taken, request, said, Status.FAILED)
        if reason is Status.TIMEOUT:
            return failed(taken, request, Failure("Timeout", "it took longer than its timeout"), Status.TIMEOUT)
        return ended(taken, Status.CANCELLED, Failure("Cancelled", "cancelled while it ran"))
    except Retry as error:
        said = Failure("Retry", _text(error))
        return failed(taken, request, said, Status.FAILED, delay_ms=retry_ms(error.delay))
    except (Abort, BadArguments) as error:
        return failed(taken, request, failure_of(error), Status.FAILED, is_retryable=False)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 — the fence around user code; the worker logs it with the task's id
        return failed(taken, request, failure_of(error), Status.FAILED)


def failed(
    taken: Taken,
    request: Request,
    failure: Failure,
    last: Status,
    *,
    is_retryable: bool = True,
    delay_ms: int | None = None,
) -> Ending:
    """The ending after a failed attempt: RETRYING with a delay, or the end with the failure as outcome."""
    status = after_failure(request, taken.attempt, taken.stalls, last, is_retryable=is_retryable)
    if status is not Status.RETRYING:
        return ended(taken, status, failure)
    if delay_ms is None:
        delay_ms = backoff_ms(request, max(1, taken.attempt - taken.stalls), random.random)
    error = f"{failure.type}: {failure.message}"[:500]
    return Ending(taken.id, taken.token, taken.type, status, taken.request, delay_ms=delay_ms, error=error)


def ended(taken: Taken, status: Status, failure: Failure) -> Ending:
    return Ending(taken.id, taken.token, taken.type, status, taken.request, codec.encode({"error": failure}))


def failure_of(error: BaseException) -> Failure:
    text = "".join(traceback.format_exception(error, limit=-20))
    return Failure(type(error).__name__, _text(error)[:2000], _encodable(text)[-8000:])


def _text(error: BaseException) -> str:
    try:
        return _encodable(str(error))
    except Exception:  # noqa: BLE001 — the fence around user code: its __str__
        return "(its message cannot be read)"


def _encodable(text: str) -> str:
    """Lone surrogates, as in the name of a file that is not UTF-8, cannot be stored; they are shown escaped."""
    return text.encode(errors="backslashreplace").decode()


def retry_ms(delay: float | None) -> int | None:
    """None means the usual backoff: also when `delay` is no number of seconds."""
    if delay is None:
        return None
    try:
        return round(min(max(delay, 0), MAX_RETRY_S) * 1000)  # in this order a NaN stays one and is refused
    except (TypeError, ValueError):
        return None
