"""A worker: takes assigned tasks, runs them, commits how they ended.

Two loops share the slots: one takes (waiting on the server while there is nothing), one commits whatever has ended
since the last commit, so that batches form by themselves. The lease is renewed by a thread (lease.py). When the
worker is told that it is lost, it stops what it runs (others run it by now) and registers again.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from tradewind.errors import Unavailable
from tradewind.fence import Fence
from tradewind.ids import short_random
from tradewind.redis.connection import RETRYABLE
from tradewind.redis.faults import WrongType
from tradewind.tasks.executor import NOT_COMMITTED, Executor, not_committed
from tradewind.tasks.lease import LeaseKeeper
from tradewind.tasks.plane import Plane
from tradewind.tasks.worker_slots import Slots
from tradewind.tasks.worker_store import Ending, Lost, Taken, WorkerStore

log = structlog.get_logger(__name__)

#: One commit carries at most so many endings.
COMMIT_BATCH = 500
SYNC_S = 1.0
TAKE_WAIT_S = 2.0
#: How long, past the grace time, a worker tries to hand its work back before it goes.
LEAVE_S = 1.5


class Finisher(Protocol):
    """How a room commits the endings of its own tasks (those with its hook)."""

    async def finish(
        self, store: WorkerStore, endings: Sequence[Ending], capacity: int
    ) -> tuple[list[int], list[Taken]]:
        """Verdicts as `WorkerStore.finish`, and what this worker shall start at once. Raises Unavailable."""
        ...


class Worker:
    """`fields` are the rest of its record (name, labels, …); `types` maps each served type to its signature as JSON,
    `nodes` each node type among them to its description."""

    def __init__(
        self,
        plane: Plane,
        worker_id: str,
        executor: Executor,
        *,
        capacity: int,
        fields: Mapping[str, Any],
        types: Mapping[str, bytes],
        nodes: Mapping[str, bytes] | None = None,
        rooms: Mapping[str, Finisher] | None = None,
    ) -> None:
        self.plane = plane
        self.id = worker_id
        self.capacity = capacity
        self._executor = executor
        self._fields = {"capacity": capacity, "status": "active", "pull": "1", **fields}
        self._types = dict(types)
        self._nodes = dict(nodes or {})
        self._rooms = dict(rooms or {})
        self._lease_s = plane.all_settings.scheduler.lease_s
        #: Told about control messages that are not for the worker itself.
        self.listeners: list[Callable[[str], None]] = []
        self._slots = Slots(executor, capacity, self._rooms, self._may_begin)
        self._committing: list[Ending] = []
        self._commit_turn = asyncio.Lock()
        #: So many endings are committed one by one.
        self._careful = 0
        self._fence = Fence(worker=worker_id)
        self._lost = asyncio.Event()
        self._is_draining = False
        self.store = WorkerStore(plane, worker_id, short_random())
        self._keeper: LeaseKeeper | None = None
        self._client: redis.asyncio.Redis | None = None
        self.is_registered = False

    @property
    def running(self) -> int:
        return len(self._slots.runs)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; then drain: finish what runs within the grace time, give the rest back, leave."""
        self._client = self.plane.link.new_client(TAKE_WAIT_S)
        self._slots.context = contextvars.copy_context()
        try:
            await self._register()
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(self._take_loop(), name=f"{self.id} take"),
                    group.create_task(self._control_loop(), name=f"{self.id} control"),
                    group.create_task(self._sync_loop(), name=f"{self.id} sync"),
                ]
                commit = group.create_task(self._commit_loop(), name=f"{self.id} commit")
                await stop.wait()
                self._is_draining = True
                for loop in loops:
                    loop.cancel()
                grace_s = self.plane.all_settings.worker.grace_s
                try:
                    async with asyncio.timeout(grace_s + LEAVE_S):
                        await self._drain(grace_s)
                except TimeoutError:
                    log.warning("worker could not leave in time; its lease will end", worker=self.id)
                commit.cancel()
        finally:
            self._slots.let_go()
            if self._keeper is not None:
                await asyncio.to_thread(self._keeper.stop)
            await self._executor.close()
            await self._client.aclose()

    # joining and leaving

    async def _register(self) -> None:
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.stop)
        self.store = WorkerStore(self.plane, self.id, short_random())
        while True:
            try:
                back = await self.store.register(self._fields, self._types, self._nodes)
                break
            except Unavailable as error:
                log.warning("worker cannot register yet", worker=self.id, error=error.message)
                await asyncio.sleep(0.5)
            except (WrongType, RedisError) as error:  # whoever mends that record lets it in
                self._fence.met(error)
                await asyncio.sleep(1)
        self._lost.clear()
        loop = asyncio.get_running_loop()
        self._keeper = LeaseKeeper(
            self.plane.link,
            self.store,
            self.plane.all_settings.scheduler.renew_s,
            lambda: [run.taken.lock for run in list(self._slots.runs.values()) if run.taken.lock],
            lambda: _call_soon(loop, self._lost.set),
        )
        self._keeper.start()
        self.is_registered = True
        log.info(
            "worker registered", worker=self.id, types=sorted(self._types), capacity=self.capacity, given_back=back
        )

    async def _rejoin(self) -> None:
        """Lost: others run our tasks by now, so stop ours, without an ending that could be taken for a cancellation."""
        log.warning("worker was lost and registers again", worker=self.id, running=len(self._slots.runs))
        self.is_registered = False
        self._slots.let_go()
        await self._register()

    async def _drain(self, grace_s: float) -> None:
        """Stop intake, finish, cancel, hand back, leave."""
        if self._keeper is not None:
            self._keeper.status = "draining"
            self._keeper.renew_now()
        try:
            await self.store.beat("draining")
            await self.store.release([], queue_too=True)
            await self._wait_idle(grace_s)
            left = self._slots.let_go()
            await self._flush()
            for _ in range(3):  # a take that was under way when intake stopped may still have moved something
                held = [(task_id, "") for task_id, _, _ in await self.store.sync()]
                back = await self.store.release(held, queue_too=True)
                if await self.store.leave():
                    break
            log.info("worker left", worker=self.id, given_back=left, back=back)
        except (Lost, Unavailable) as error:
            log.warning("worker could not leave cleanly; its lease will end", worker=self.id, error=error.message)

    async def _wait_idle(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        while (self._committing or not self._slots.is_idle) and time.monotonic() < deadline:
            self._slots.has_room.clear()
            try:
                async with asyncio.timeout(min(0.2, max(0.01, deadline - time.monotonic()))):
                    await self._slots.has_room.wait()
            except TimeoutError:
                pass

    # taking

    async def _take_loop(self) -> None:
        while True:
            if self._lost.is_set():
                await self._rejoin()
            room = self._slots.room
            if room <= 0 or len(self._slots.endings) > 4 * COMMIT_BATCH:
                self._slots.has_room.clear()
                await self._slots.has_room.wait()
                continue
            window = self._slots.new_window()
            try:
                taken = await self.store.take(room, window=window, wait_s=TAKE_WAIT_S, client=self._client)
            except Lost:
                self._lost.set()
                continue
            except Unavailable as error:
                log.warning("worker cannot take tasks", worker=self.id, error=error.message)
                await asyncio.sleep(0.5)
                continue
            except Exception as error:  # noqa: BLE001 - a spoilt record of it must not end this process
                self._fence.met(error)
                await asyncio.sleep(1)
                continue
            if taken:
                await self.start(taken)

    async def start(self, batch: list[Taken]) -> None:
        """Run what Redis has given to this worker, what is more than its slots one after the other.

        Also called by the rooms that let work arrive.
        """
        self._slots.put(batch)
        await asyncio.sleep(0)  # what does not wait has ended now

    def _may_begin(self) -> bool:
        """Not after a pause longer than the lease (SIGSTOP, say): others have the tasks by now."""
        if self._keeper is None or time.monotonic() - self._keeper.renewed <= self._lease_s:
            return True
        log.warning("tasks are not begun: the lease has run out", worker=self.id, tasks=len(self._slots.ahead))
        self._keeper.renew_now()
        return False

    # committing

    async def _commit_loop(self) -> None:
        while True:
            await self._slots.has_endings.wait()
            self._slots.has_endings.clear()
            await self._flush()

    async def _flush(self) -> None:
        async with self._commit_turn:
            while self._slots.endings:
                await self._commit()

    async def _commit(self) -> None:
        """One batch; it stays in `_committing` until Redis has answered: neither running nor forgotten."""
        size = 1 if self._careful else COMMIT_BATCH
        self._careful = max(0, self._careful - 1)
        batch = self._committing = self._slots.endings[:size]
        del self._slots.endings[:size]
        try:
            batch, verdicts, given = await self._finish(batch)
        except Unavailable as error:
            waiting = len(batch) + len(self._slots.endings)
            log.warning("results wait for Redis", worker=self.id, waiting=waiting, error=error.message)
            self._slots.endings[:0] = batch
            self._committing = []
            await asyncio.sleep(0.5)
        except Exception as error:  # noqa: BLE001 — one ending that cannot be stored must not hold up the others
            self._set_aside(batch, error)
        else:
            for ending, verdict in zip(batch, verdicts, strict=True):
                if verdict == 0:
                    log.warning(
                        "result refused: the task is somebody else's now", task=ending.id, status=str(ending.status)
                    )
            self._committing = []
            if given:
                await self.start(given)
        finally:
            self._committing = []

    def _set_aside(self, batch: list[Ending], error: Exception) -> None:
        """A commit was refused by an error of its content: the batch is tried one by one; the culprit ends FAILED.

        When even that cannot be stored, it is left without an ending, which counts as a stall (see `_reconcile`).
        """
        log.exception("task_not_committed", worker=self.id, tasks=[ending.id for ending in batch][:20])
        if len(batch) > 1:
            self._careful = len(batch)
            self._slots.endings[:0] = batch
        elif batch[0].failure is None or batch[0].failure.type != NOT_COMMITTED:
            self._slots.endings.insert(0, not_committed(batch[0], error))

    async def _finish(self, batch: list[Ending]) -> tuple[list[Ending], list[int], list[Taken]]:
        """Commit by rooms, all of one in a call; what is committed twice, since a later call failed, counts once."""
        done: list[Ending] = []
        verdicts: list[int] = []
        given: list[Taken] = []
        for hook in dict.fromkeys(ending.hook for ending in batch):
            part = [ending for ending in batch if ending.hook == hook]
            done += part
            if not hook:
                verdicts += await self.store.finish(part)
            else:
                room = 0 if self._is_draining or self._lost.is_set() else self._slots.reach
                answers, taken = await self._rooms[hook].finish(self.store, part, room)
                verdicts += answers
                given += taken
        return done, verdicts, given

    # cancelling and reconciling

    async def _control_loop(self) -> None:
        """Cancels as they come; a lost message is made good by the sync loop within a second."""
        while True:
            client = self.plane.link.new_client()
            pubsub = client.pubsub(ignore_subscribe_messages=True)
            try:
                await pubsub.subscribe(self.plane.keys.control(self.id))
                async for message in pubsub.listen():
                    verb, _, task_id = message["data"].decode(errors="replace").partition(":")
                    if verb != "cancel":
                        for listener in self.listeners:
                            listener(verb)
                    else:
                        self._slots.cancel(task_id)
            except RETRYABLE:
                await asyncio.sleep(1)
            except Exception as error:  # noqa: BLE001 - anybody may publish anything there
                self._fence.met(error)
                await asyncio.sleep(1)
            finally:
                await pubsub.aclose()  # type: ignore[no-untyped-call]
                await client.aclose()

    async def _sync_loop(self) -> None:
        """Every second: progress out, cancel flags in, and what Redis and we disagree about."""
        strangers: set[str] = set()
        while True:
            await asyncio.sleep(SYNC_S)
            store = self.store
            try:
                reports, self._slots.reports = self._slots.reports, {}
                for task_id, (token, value) in list(reports.items()):  # a thread may still write to it
                    try:
                        await self.store.progress(task_id, token, value)
                    except WrongType as error:
                        self._fence.met(error)
                strangers = await self._reconcile(await store.sync(), strangers)
            except Lost:
                if store is self.store:  # else: an answer to the life before
                    self._lost.set()
                    self._slots.has_room.set()
            except Unavailable as error:
                log.warning("worker cannot reach Redis", worker=self.id, error=error.message)
            except Exception as error:  # noqa: BLE001 - a spoilt record of it must not end this process
                self._fence.met(error)

    async def _reconcile(self, held: list[tuple[str, str, bool]], strangers: set[str]) -> set[str]:
        """Stop what shall stop; give back what Redis says we run but we do not, once seen twice.

        A reply was lost, or an attempt has left no ending: it counts as a stall, so that it cannot go on for ever.
        """
        unknown: dict[str, str] = {}
        waiting = {ending.id for ending in (*self._slots.endings, *self._committing)}
        ahead = {taken.id for taken in self._slots.ahead}
        for task_id, token, shall_stop in held:
            run = self._slots.runs.get(task_id)
            if run is None and task_id not in ahead:
                if task_id not in waiting:
                    unknown[task_id] = token
            elif run is not None and int(token) > int(run.taken.token):
                self._slots.drop(run)
            elif shall_stop:
                self._slots.cancel(task_id)
        again = [(task_id, token) for task_id, token in unknown.items() if f"{task_id} {token}" in strangers]
        if again:
            log.warning(
                "tasks given back: neither a run nor an ending is known", worker=self.id, tasks=[t for t, _ in again]
            )
            await self.store.release(again, queue_too=False, is_stall=True)
        return {f"{task_id} {token}" for task_id, token in unknown.items()}


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(call)
