"""What a task function can ask and say while it runs: its id, its attempt, its progress, whether it shall stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

import msgspec

from tradewind import codec
from tradewind.errors import Invalid
from tradewind.tasks.record import Status


class Retry(Exception):
    """Raise in a task function to be run again after `delay` seconds (None: the usual backoff).

    Also when the task has no retries; then up to 25 attempts. `only_if_left`: only while it has attempts left.
    """

    def __init__(
        self, message: str = "asked to be run again", delay: float | None = None, *, only_if_left: bool = False
    ) -> None:
        super().__init__(message)
        self.delay = delay
        self.only_if_left = only_if_left


class Abort(Exception):
    """Raise in a task function to end FAILED at once, whatever attempts are left."""


def checked_json(data: bytes) -> bytes:
    """JSON of user code on one line. Raises Invalid: `msgspec.Raw` passes anything through an encoder."""
    try:
        _skim(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"not valid JSON: {error}", code="bad_json", hint="return plain data") from error
    return data if b"\n" not in data else codec.encode(codec.decode(data))


_skim = msgspec.json.Decoder(msgspec.Raw).decode


class Running:
    """The attempt that runs here. `progress` and `is_cancelled` may be used from a thread, too."""

    __slots__ = (
        "_report", "attempt", "follow", "id", "is_cancelled", "is_dropped", "job", "stopped", "token", "type",
        "was_refused",
    )  # fmt: skip

    def __init__(
        self, task_id: str, task_type: str, attempt: int, token: str, report: Callable[[Running, bytes], None]
    ) -> None:
        self.id = task_id
        self.type = task_type
        self.attempt = attempt
        self.token = token
        #: True once it shall stop. For functions in threads, which nobody can interrupt: look now and then, and return.
        self.is_cancelled = False
        #: What that means: TIMEOUT or CANCELLED.
        self.stopped: Status | None = None
        #: True once the task is no longer this worker's to end: it stops, or others have the task.
        self.is_dropped = False
        #: The asyncio task that runs it, the only one of the station's that its code may cancel.
        self.job: asyncio.Task[Any] | None = None
        #: What the room of the task's hook needs when it has ended.
        self.follow: Any = None
        #: True once its code was kept from harming the loop that it shares.
        self.was_refused = False
        self._report = report

    def progress(self, value: Any) -> None:
        """Report progress: a number from 0 to 1, or any small JSON. Shown while the task runs; the newest wins."""
        data = checked_json(codec.encode(value))
        if len(data) > 2000:
            raise Invalid("a progress report is at most 2000 bytes of JSON", code="progress_too_large")
        self._report(self, data)

    def pass_on(self, data: bytes) -> None:
        """Report progress that is JSON already."""
        self._report(self, data)


_running: ContextVar[Running] = ContextVar("tradewind_running")
enter = _running.set


def entered(context: Context | None = None) -> Running | None:
    """The attempt whose code is calling, here or in that context; None for the station's own code."""
    return _running.get(None) if context is None else context.get(_running)


def current() -> Running:
    """The running task. Raises LookupError outside of one."""
    return _running.get()
