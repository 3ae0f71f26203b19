"""Runs one attempt of a task and says how it ended. Knows functions and errors, not Redis.

Async functions run on the loop, plain ones in a thread, CPU-bound ones in a child process (cpu_pool.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import CoroutineType
from typing import Any, Protocol

import msgspec

from tradewind import codec
from tradewind.tasks import running
from tradewind.tasks.client import blocking_in_use
from tradewind.tasks.function import Registry, TaskFunction
from tradewind.tasks.one_process import one_process
from tradewind.tasks.record import Failure, Request, Status, decode_request
from tradewind.tasks.retry import after_failure, backoff_ms
from tradewind.tasks.running import Abort, Retry, Running, checked_json
from tradewind.tasks.user_error import failure_of, text_of
from tradewind.tasks.worker_store import Ending, Taken

MAX_RESULT_BYTES = 1_000_000
MAX_RETRY_S = 10 * 366 * 86_400
#: The station ends without waiting for threads of this name.
THREAD_NAME = "tradewind-task"
SPARE_THREADS = 50
NOT_COMMITTED = "NotCommitted"
_SUCCESS = Status.SUCCESS


class BadArguments(Exception):
    """The arguments do not fit the function of this worker; trying again would not help."""


class Raised(msgspec.Struct, omit_defaults=True):
    """What an exception of user code means for its task. `asks_again`: it raised Retry."""

    failure: Failure
    is_retryable: bool = True
    asks_again: bool = False
    delay_ms: int | None = None


class UserCodeFailed(Exception):
    """User code failed where its exception itself must not be passed on: in a thread or in a child process."""

    def __init__(self, raised: Raised) -> None:
        super().__init__(raised.failure.message)
        self.raised = raised


class Executor(Protocol):
    """Runs attempts for a worker. `run` returns the encoded result or raises; `close` ends what it owns."""

    async def run(self, taken: Taken, request: Request, state: Running) -> bytes: ...

    async def close(self) -> None: ...


class LocalExecutor:
    """Functions of this process, on the loop or in threads."""

    def __init__(self, functions: Registry, threads: int) -> None:
        self._functions = functions
        self._threads = user_threads(threads)

    async def run(self, taken: Taken, request: Request, state: Running) -> bytes:
        function = find(self._functions, taken.type)
        args, kwargs = converted(function, request)
        running.enter(state)
        if function.is_async:
            return encoded(await function.function(*args, **kwargs))
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        context.run(blocking_in_use, loop)
        said = await loop.run_in_executor(self._threads, context.run, call, function.function, args, kwargs)
        if isinstance(said, Raised):
            raise UserCodeFailed(said)
        return said

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


def user_threads(slots: int) -> ThreadPoolExecutor:
    """Threads for plain functions of users, for a worker with so many slots.

    Nobody can interrupt a function in a thread: one that goes on after its timeout keeps its thread, but not its slot.
    So there are more threads than slots, or the tasks after it would time out before they begin; none starts unneeded.
    """
    return ThreadPoolExecutor(slots + max(SPARE_THREADS, 3 * slots), thread_name_prefix=THREAD_NAME)


def call(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> bytes | Raised:
    """Call a plain function; its encoded result, or what it raised. Raises nothing: a future could not carry it all."""
    try:
        with one_process():
            result = function(*args, **kwargs)
        return encoded(result)
    except BaseException as error:  # noqa: BLE001 — the fence around user code; the attempt tells it
        return raised_by(error)


def raised_by(error: BaseException) -> Raised:
    """What follows from an exception, by its real type: `isinstance` would ask the object."""
    kind = type(error)
    if issubclass(kind, Retry):
        delay_ms, asks_again = _fenced_retry(error)
        return Raised(Failure("Retry", text_of(error)), asks_again=asks_again, delay_ms=delay_ms)
    return Raised(failure_of(error), is_retryable=not issubclass(kind, (Abort, BadArguments)))


def _fenced_retry(error: BaseException) -> tuple[int | None, bool]:
    try:
        return retry_ms(error.delay), not error.only_if_left  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001 — the fence around user code: attributes of a subclass of Retry
        return None, True


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
        data = checked_json(data)
    except BaseException as error:  # the fence around user code: objects may do anything when they are read
        if type(result) is CoroutineType:
            result.close()
            raise Abort("the function returned a coroutine: declare it with `async def`, or await it") from None
        raise Abort(f"the result is not JSON: {text_of(error)}") from error
    if is_lossy:
        raise Abort("the result is not JSON: it holds NaN or Infinity")
    if len(data) > MAX_RESULT_BYTES:
        raise Abort(f"the result has {len(data)} bytes of JSON; at most {MAX_RESULT_BYTES} are kept")
    return data


async def attempt(executor: Executor, taken: Taken, state: Running) -> Ending:
    """Run one attempt to its end: whatever user code does becomes one ending.

    A cancellation means what `state.stopped` says; without that, that the task did it itself, unless `is_dropped`: then
    it is raised, and there is no ending, because the task is no longer this worker's to end.
    """
    try:
        request = decode_request(taken.request)
    except (msgspec.MsgspecError, RecursionError) as error:
        return ended(taken, Status.FAILED, Failure("BadRequest", f"its request cannot be read: {error}"))
    try:
        with one_process():
            result = await executor.run(taken, request, state)
        return Ending(taken.id, taken.token, taken.type, _SUCCESS, taken.request, b'{"result":' + result + b"}")
    except asyncio.CancelledError:
        if state.stopped is Status.TIMEOUT:
            return failed(taken, request, Failure("Timeout", "it took longer than its timeout"), Status.TIMEOUT)
        if state.stopped is not None:
            return ended(taken, Status.CANCELLED, Failure("Cancelled", "cancelled while it ran"))
        if state.is_dropped:
            raise
        said = Failure("CancelledError", "it cancelled itself, or something that it waited for was cancelled")
        return failed(taken, request, said, Status.FAILED)
    except UserCodeFailed as error:
        raised = error.raised
    except BaseException as error:  # the fence around user code; the worker logs it with the task's id
        if issubclass(type(error), GeneratorExit) and not _is_own_step():
            raise  # nobody threw it: this coroutine is being closed
        raised = raised_by(error)
    return _after(taken, request, raised)


def ended_by(taken: Taken, error: BaseException) -> Ending:
    """The ending of an attempt that `attempt` could not see the end of."""
    try:
        request = decode_request(taken.request)
    except (msgspec.MsgspecError, RecursionError):
        request = Request()
    return _after(taken, request, raised_by(error))


def _after(taken: Taken, request: Request, raised: Raised) -> Ending:
    return failed(
        taken, request, raised.failure, Status.FAILED, is_retryable=raised.is_retryable, asks_again=raised.asks_again,
        delay_ms=raised.delay_ms,
    )  # fmt: skip


def _is_own_step() -> bool:
    """Whether a task of the running loop runs this, not whoever closes its coroutine."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def failed(
    taken: Taken,
    request: Request,
    failure: Failure,
    last: Status,
    *,
    is_retryable: bool = True,
    asks_again: bool = False,
    delay_ms: int | None = None,
) -> Ending:
    """The ending after a failed attempt: RETRYING with a delay, or the end with the failure as outcome."""
    status = after_failure(request, taken.attempt, taken.stalls, last, is_retryable=is_retryable, asks_again=asks_again)
    if status is not Status.RETRYING:
        return ended(taken, status, failure)
    if delay_ms is None:
        delay_ms = backoff_ms(request, max(1, taken.attempt - taken.stalls), random.random)
    error = f"{failure.type}: {failure.message}"[:500]
    return Ending(
        taken.id, taken.token, taken.type, status, taken.request, delay_ms=delay_ms, error=error, failure=failure
    )


def not_committed(ending: Ending, error: Exception) -> Ending:
    """In place of an ending that cannot be stored; of the task room, whatever room it was of."""
    said = Failure(NOT_COMMITTED, f"it ended {ending.status}, but that cannot be stored: {text_of(error)}")
    outcome = codec.encode({"error": said})
    return Ending(ending.id, ending.token, ending.type, Status.FAILED, ending.request, outcome, failure=said)


def ended(taken: Taken, status: Status, failure: Failure) -> Ending:
    outcome = codec.encode({"error": failure})
    return Ending(taken.id, taken.token, taken.type, status, taken.request, outcome, failure=failure)


def retry_ms(delay: float | None) -> int | None:
    """None means the usual backoff: also when `delay` is no number of seconds."""
    if delay is None:
        return None
    try:
        return round(min(max(delay, 0), MAX_RETRY_S) * 1000)  # in this order a NaN stays one and is refused
    except (TypeError, ValueError):
        return None
