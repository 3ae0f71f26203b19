"""The slots of a worker: what runs in them, what waits for one, how each ended. Knows nothing of Redis."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable, Container, Sequence

import structlog

from tradewind.tasks.executor import Executor, attempt, ended, ended_by
from tradewind.tasks.record import Failure, Status
from tradewind.tasks.running import Running
from tradewind.tasks.worker_store import Ending, Taken

log = structlog.get_logger(__name__)

#: The worker's queue holds at most this much work ahead (seconds of it at the measured pace, and tasks).
AHEAD_S = 0.05
AHEAD_MOST = 1000


class Run:
    """One attempt in progress here."""

    __slots__ = ("began", "state", "taken", "task", "timer")

    def __init__(self, taken: Taken, state: Running) -> None:
        self.taken = taken
        self.state = state
        self.began = time.monotonic()
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Slots:
    """`hooks`: those of rooms that commit their own tasks. `may_begin`: asked before something that waited is begun; if
    not, all that waits is let go. `endings` and `reports` (id → token and newest progress) are for the worker to take
    away; `has_endings` and `has_room` tell it when to look."""

    def __init__(self, executor: Executor, capacity: int, hooks: Container[str], may_begin: Callable[[], bool]) -> None:
        self.runs: dict[str, Run] = {}
        self.ahead: deque[Taken] = deque()
        self.endings: list[Ending] = []
        self.reports: dict[str, tuple[str, bytes]] = {}
        self.has_endings = asyncio.Event()
        self.has_room = asyncio.Event()
        self._executor = executor
        self._capacity = capacity
        self._hooks = hooks
        self._may_begin = may_begin
        self._pace = AHEAD_S
        self._window = 0
        #: Attempts begin in copies of this context, not in that of the one whose end made room.
        self.context = contextvars.copy_context()

    @property
    def room(self) -> int:
        return self._capacity - len(self.runs) - len(self.ahead)

    @property
    def is_idle(self) -> bool:
        return not (self.runs or self.ahead or self.endings)

    @property
    def reach(self) -> int:
        """How many tasks it may hold, those in its queue included."""
        return self._capacity + self._window

    def new_window(self) -> int | None:
        """How many tasks may wait in the queue beyond the slots, when that has changed enough to tell."""
        ahead = min(AHEAD_MOST, max(0, int(self._capacity * (AHEAD_S / self._pace - 1))))
        if abs(ahead - self._window) <= self._window // 4 and (ahead == 0) == (self._window == 0):
            return None
        self._window = ahead
        return ahead

    def put(self, batch: Sequence[Taken]) -> None:
        """Run them, what is more than the slots one after the other."""
        self.ahead.extend(batch)
        self._fill()

    def _fill(self) -> None:
        if self.ahead and not self._may_begin():
            self.ahead.clear()
        loop = asyncio.get_running_loop()
        while self.ahead and len(self.runs) < self._capacity:
            taken = self.ahead.popleft()
            run = Run(taken, Running(taken.id, taken.type, taken.attempt, taken.token, self._report))
            self.runs[taken.id] = run
            run.task = loop.create_task(self._run_one(run), name=taken.id, context=self.context.copy())
            run.state.job = run.task
            loop.call_soon(self._arm, run, context=self.context)

    def _arm(self, run: Run) -> None:
        """After its first step: what has ended by then needs no timer."""
        if run.task is not None and not run.task.done():
            loop = asyncio.get_running_loop()
            run.timer = loop.call_later(run.taken.left_ms / 1000, self._stop, run, Status.TIMEOUT)

    async def _run_one(self, run: Run) -> None:
        try:
            ending = await attempt(self._executor, run.taken, run.state)
        except asyncio.CancelledError:
            return  # the worker stops: drain gives the task back
        except BaseException as error:  # a future's GeneratorExit passes every fence below this one
            if asyncio.current_task() is not run.task:
                raise  # nobody threw it: this coroutine is being closed
            ending = ended_by(run.taken, error)
        finally:
            if run.timer is not None:
                run.timer.cancel()
            if self.runs.get(run.taken.id) is run:
                del self.runs[run.taken.id]
            self.context.copy().run(self._fill)
            self.has_room.set()
        took = time.monotonic() - run.began
        self._pace += 0.1 * (max(took, 1e-5) - self._pace)
        if ending.status is not Status.SUCCESS:
            log_failure(run.taken, ending)
        self.reports.pop(ending.id, None)
        if run.taken.hook in self._hooks:
            ending.hook, ending.follow = run.taken.hook, run.state.follow
        self.endings.append(ending)
        self.has_endings.set()

    def _stop(self, run: Run, reason: Status) -> None:
        if run.state.stopped is None and run.task is not None and not run.task.done():
            run.state.stopped, run.state.is_cancelled = reason, True
            _cancel_soon(run.task)

    def cancel(self, task_id: str) -> None:
        """Stop it; one that waits for a slot here ends at once."""
        run = self.runs.get(task_id)
        if run is not None:
            self._stop(run, Status.CANCELLED)
            return
        for taken in self.ahead:
            if taken.id == task_id:
                self.ahead.remove(taken)
                self.endings.append(ended(taken, Status.CANCELLED, Failure("Cancelled", "cancelled before it started")))
                self.has_endings.set()
                return

    def let_go(self) -> int:
        """Stop all without endings, forget what waits; how many ran."""
        self.ahead.clear()
        self._window = 0
        running = list(self.runs.values())
        for run in running:
            self.drop(run)
        return len(running)

    def drop(self, run: Run) -> None:
        """Stop it without an ending: the task is no longer ours to end."""
        if run.task is not None:
            run.state.is_cancelled = run.state.is_dropped = True
            _cancel_soon(run.task)

    def _report(self, state: Running, value: bytes) -> None:
        """Progress, maybe from a thread: kept until the next sync, the newest wins."""
        self.reports[state.id] = (state.token, value)


def log_failure(taken: Taken, ending: Ending) -> None:
    """Once for each attempt; the end of a task by its own fault is a warning, with all that is known about it."""
    failure = ending.failure or Failure("", ending.error)
    fields = {
        "task": ending.id,
        "type": taken.type,
        "attempt": taken.attempt,
        "status": str(ending.status),
        "error_type": failure.type,
        "error": failure.message or failure.type,
    }
    if ending.status is Status.RETRYING:
        log.info("task_attempt_failed", **fields, delay_ms=ending.delay_ms)
    elif ending.status is Status.CANCELLED:
        log.info("task_cancelled", **fields)
    else:
        log.warning("task_failed", **fields, traceback=failure.traceback)


def _cancel_soon(task: asyncio.Task[None]) -> None:
    """A turn later: what is cancelled before its first step never runs, nor its `finally`, and would hold its slot."""
    asyncio.get_running_loop().call_soon(task.cancel)
