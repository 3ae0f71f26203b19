"""The event loop of a station: code of a running task or node cannot stop it, nor cancel what is not its own.

User code shares the loop with everything else. `for job in asyncio.all_tasks(): job.cancel()` would end the worker, the
leader and every other task with it; so would `loop.stop()`, or an exit in a job that the code has started.
Whether user code is calling is told by the context (`running.entered`): the station's own code has none.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import structlog
import uvloop

from tradewind.tasks.running import Running, entered
from tradewind.tasks.user_error import class_name, text_of, traceback_of

log = structlog.get_logger(__name__)
EXITS_TOLD_S = 1.0


class ExitInJob(Exception):
    """A job that user code had started raised an exit of the process; whoever awaits the job gets this instead."""


class GuardedTask(asyncio.Task[Any]):
    """`is_guarded`: not started by user code, so user code cannot cancel it; its own attempt it can."""

    is_guarded = False

    def cancel(self, msg: Any | None = None) -> bool:
        caller = entered()
        if caller is not None and self.is_guarded and caller.job is not self:
            _refuse(caller, f"cancel {self.get_name()!r}")
            return False
        return super().cancel(msg)


def new_task(
    loop: asyncio.AbstractEventLoop,
    coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
    *,
    context: contextvars.Context | None = None,
) -> GuardedTask:
    """The task factory of a guarded loop."""
    if entered(context) is not None:
        fenced = _fenced(coro) if asyncio.iscoroutine(coro) else coro
        return GuardedTask(fenced, loop=loop, context=context)
    task = GuardedTask(coro, loop=loop, context=context)
    task.is_guarded = True
    return task


async def _fenced(coro: Coroutine[Any, Any, Any]) -> Any:
    """A loop lets these two through to whoever runs it: the process."""
    try:
        return await coro
    except (KeyboardInterrupt, SystemExit) as error:
        raise ExitInJob(f"{class_name(type(error))}: {text_of(error)}") from error


class GuardedLoop(uvloop.Loop):
    """Refuses to be stopped, closed or rebuilt by user code, its callbacks and the threads that it has started."""

    #: What the station is: only its end stops the loop.
    _whole: asyncio.Future[Any] | None = None
    _exits = 0
    _told_s = -EXITS_TOLD_S

    def run_until_complete(self, future: Any) -> Any:
        self._whole = asyncio.ensure_future(future, loop=self)
        try:
            return super().run_until_complete(self._whole)
        finally:
            self._whole = None

    def run_forever(self) -> None:
        """An exit that a callback raises (`loop.call_soon(sys.exit)`) ends that callback. The station itself leaves by
        its end; signals have handlers."""
        while True:
            try:
                return super().run_forever()
            except (KeyboardInterrupt, SystemExit) as error:
                if self._whole is None or self._whole.done():
                    raise
                self._tell(error)

    def _tell(self, error: BaseException) -> None:
        """At most once a second: a callback of `add_reader` comes again at once."""
        self._exits += 1
        if self.time() - self._told_s >= EXITS_TOLD_S:
            said = f"{class_name(type(error))}: {text_of(error)}"
            log.warning("exit_in_callback", error=said, count=self._exits, traceback=traceback_of(error))
            self._told_s, self._exits = self.time(), 0

    def stop(self) -> None:
        if self._whole is None or self._whole.done():
            super().stop()
        elif (caller := entered()) is not None:
            _refuse(caller, "stop the loop")
        else:  # a thread that user code has started, or a context of its own
            log.warning("task_overreached", task="", type="", tried="stop the loop")

    def close(self) -> None:
        self._unless_user_code("close the loop", super().close)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._unless_user_code(
            "handle a signal", lambda: super(GuardedLoop, self).add_signal_handler(sig, callback, *args)
        )

    def remove_signal_handler(self, sig: int) -> bool:
        if (caller := entered()) is not None:
            _refuse(caller, "handle a signal")
            return False
        return super().remove_signal_handler(sig)

    def set_task_factory(self, factory: Any) -> None:
        self._unless_user_code("change the loop", lambda: super(GuardedLoop, self).set_task_factory(factory))

    def set_default_executor(self, executor: Any) -> None:
        self._unless_user_code("change the loop", lambda: super(GuardedLoop, self).set_default_executor(executor))

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        if (caller := entered()) is not None:
            _refuse(caller, "end the threads of the loop")
        else:
            await super().shutdown_default_executor(timeout)

    async def shutdown_asyncgens(self) -> None:
        if (caller := entered()) is not None:
            _refuse(caller, "end the generators of the loop")
        else:
            await super().shutdown_asyncgens()

    @staticmethod
    def _unless_user_code(what: str, do: Callable[[], None]) -> None:
        if (caller := entered()) is not None:
            _refuse(caller, what)
        else:
            do()


def new_event_loop() -> GuardedLoop:
    """For `asyncio.Runner(loop_factory=…)`."""
    loop = GuardedLoop()
    loop.set_task_factory(new_task)
    return loop


def _refuse(caller: Running, what: str) -> None:
    if not caller.was_refused:  # once for each attempt: all jobs of a station would be hundreds of lines
        caller.was_refused = True
        log.warning("task_overreached", task=caller.id, type=caller.type, tried=what)
