"""What a worker may do to Redis: register, renew, take, finish, release, leave. One object per worker and generation.

Nobody else calls these. A reply that says the worker is unknown raises `Lost`: register again under a new generation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import redis
import redis.asyncio

from tradewind.errors import Conflict
from tradewind.redis.scripts import Arg, Call, sha, source
from tradewind.tasks.offers import NODE, digest_of
from tradewind.tasks.plane import LOCK_MS, Plane
from tradewind.tasks.record import Failure, Status

_STRIDE = 6


class Lost(Conflict):
    """The worker was evicted or replaced; what it held has gone to others."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(
            f"worker {worker_id!r} is not registered any more", code="worker_lost", hint="it registers again"
        )


class Taken(msgspec.Struct):
    """One attempt to run: `token` fences it, `left_ms` is how long it may take, `hook` names the room that it is of.

    `extra` is what that room has sent along.
    """

    id: str
    type: str
    attempt: int
    token: str
    left_ms: int
    request: bytes
    lock: str
    stalls: int
    hook: str = ""
    extra: Any = None


class Ending(msgspec.Struct):
    """How an attempt ended: a terminal state with its outcome line, or RETRYING with a delay and a short error.

    `failure` is why, for the log; `follow` is what the room of the hook needs to go on from here.
    """

    id: str
    token: str
    type: str
    status: Status
    request: bytes
    outcome: bytes = b"{}"
    delay_ms: int = 0
    error: str = ""
    hook: str = ""
    follow: Any = None
    failure: Failure | None = None


def _lasting(signature: bytes) -> bytes:
    """Without the time, so that equal workers make equal offers."""
    return re.sub(rb',?"seen_ms":[0-9]+', b"", signature)


class WorkerStore:
    def __init__(self, plane: Plane, worker_id: str, generation: str) -> None:
        self.plane = plane
        self.id = worker_id
        self.generation = generation
        keys, scheduler = plane.keys, plane.all_settings.scheduler
        self._worker, self._queue, self._inflight = (
            keys.worker(worker_id), keys.worker_queue(worker_id), keys.worker_inflight(worker_id)
        )  # fmt: skip
        self._lease_ms = int(scheduler.lease_s * 1000)
        self._ttl_ms = int(scheduler.heartbeat_ttl_s * 1000)
        self._default_timeout_ms = int(plane.settings.default_timeout_s * 1000)
        self._take_keys = [self._worker, self._queue, self._inflight, keys.token(), keys.delayed()]
        self._finish_keys = [
            self._inflight,
            keys.delayed(),
            keys.queue("high"),
            keys.queue("normal"),
            keys.parked(),
            keys.marked(),
        ]

    async def register(
        self, fields: Mapping[str, Arg], types: Mapping[str, bytes], nodes: Mapping[str, bytes] | None = None
    ) -> int:
        """Join with these fields, types (with signatures as JSON, b"" = any arguments) and descriptions of node types;
        how many tasks of an earlier life went back."""
        keys = self.plane.keys
        flat = [item for pair in fields.items() for item in pair]
        offer = {name: _lasting(signature) for name, signature in types.items() if signature}
        offer |= {NODE + name: description for name, description in (nodes or {}).items()}
        args: list[Arg] = [
            *self.plane.head(), self.id, self.generation, self._lease_ms, self._ttl_ms, self.plane.settings.max_stalls,
            len(flat), 2 * len(types), digest_of(offer) if offer else "", *flat,
        ]  # fmt: skip
        for name, entry in (*types.items(), *offer.items()):
            args += (name, entry)
        names = [self._worker, keys.workers(), keys.worker_types(), keys.types()]
        back: int = await self.plane.scripts.run("worker_register", names, args)
        return back

    def _beat(self, status: str, locks: Sequence[str]) -> Call:
        keys = [self._worker, self.plane.keys.workers(), self._queue, self._inflight]
        args = [*self.plane.head(), self.id, self.generation, self._lease_ms, self._ttl_ms, status, LOCK_MS, *locks]
        return "worker_beat", keys, args

    async def beat(self, status: str = "active", locks: Sequence[str] = ()) -> None:
        """Renew the lease. Raises Lost."""
        if not await self.plane.scripts.run(*self._beat(status, locks)):
            raise Lost(self.id)

    def beat_from_thread(self, client: redis.Redis, status: str, locks: Sequence[str]) -> bool:
        """The same on a blocking connection of the lease thread; False when lost. Raises redis errors."""
        name, keys, args = self._beat(status, locks)
        command = ("EVALSHA", sha("tradewind.tasks", name), len(keys), *keys, *args)
        try:
            return bool(client.execute_command(*command))  # type: ignore[no-untyped-call]
        except redis.exceptions.NoScriptError:
            client.script_load(source("tradewind.tasks", name))
            return bool(client.execute_command(*command))  # type: ignore[no-untyped-call]

    async def take(
        self, many: int, *, window: int | None = None, wait_s: float = 0, client: redis.asyncio.Redis | None = None
    ) -> list[Taken]:
        """Up to `many` tasks of the own queue; `wait_s`: wait for the first one, in the same round trip. Raises Lost.

        The wait is a move of the queue's last element onto itself: it blocks until there is one and changes nothing.
        """
        args: list[Arg] = [
            *self.plane.head(), self.id, self.generation, many, self._default_timeout_ms,
            "" if window is None else window, LOCK_MS, self.plane.settings.max_stalls,
        ]  # fmt: skip
        first = ("BLMOVE", self._queue, self._queue, "RIGHT", "RIGHT", wait_s) if wait_s else None
        calls: list[Call] = [("task_take", self._take_keys, args)]
        reply = (await self.plane.scripts.run_all(calls, first=first, client=client))[0]
        if reply[0] < 0:
            raise Lost(self.id)
        return [self.taken(reply, i) for i in range(1, len(reply), _STRIDE)]

    def taken(self, reply: list[Any], i: int) -> Taken:
        """The attempt that begins at that place of a flat reply (see task_take.lua)."""
        extra = reply[i + 5]
        left_ms, stalls, lock, hook = self._default_timeout_ms, 0, "", ""
        if extra:
            left, stalled, lock, hook = extra.decode().split(":")
            left_ms, stalls = int(left), int(stalled)
        return Taken(
            reply[i].decode(), reply[i + 1].decode(), int(reply[i + 2]), reply[i + 3].decode(), left_ms, reply[i + 4],
            lock, stalls, hook,
        )  # fmt: skip

    async def finish(self, endings: Sequence[Ending]) -> list[int]:
        """Commit; per ending 1 committed, 2 committed before by this token, 0 refused (somebody else has the task)."""
        if not endings:
            return []
        args: list[Arg] = [*self.plane.head(), self.id]
        for e in endings:
            args += (e.id, e.token, e.type, e.status.value, e.request, e.outcome, e.delay_ms, e.error)
        verdicts: list[int] = await self.plane.scripts.run("task_finish", self._finish_keys, args)
        return verdicts

    async def progress(self, task_id: str, token: str, value: bytes) -> bool:
        args = [*self.plane.head(), task_id, token, value]
        return bool(await self.plane.scripts.run("task_progress", [self.plane.keys.task(task_id)], args))

    async def release(self, tasks: Sequence[tuple[str, str]], *, queue_too: bool, is_stall: bool = False) -> int:
        """Give running tasks (id, token or '' for any) back, and the queue if asked.

        Not counted as an attempt; or as a stall, when nobody knows how the attempt ended.
        """
        most = self.plane.settings.max_stalls if is_stall else ""
        args: list[Arg] = [*self.plane.head(), self.id, self.generation, "1" if queue_too else "0", most]
        for task_id, token in tasks:
            args += (task_id, token)
        back: int = await self.plane.scripts.run("task_release", [self._worker, self._inflight], args)
        return back

    async def sync(self) -> list[tuple[str, str, bool]]:
        """What Redis thinks this worker runs: id, token, whether it shall stop. Raises Lost."""
        args = [self.plane.keys.p, self.generation]
        reply: list[Any] = await self.plane.scripts.run("worker_sync", [self._worker, self._inflight], args)
        if reply[0] == b"0":
            raise Lost(self.id)
        return [(reply[i].decode(), reply[i + 1].decode(), reply[i + 2] == b"1") for i in range(1, len(reply), 3)]

    async def leave(self) -> bool:
        """Go for good; False while it still holds work."""
        keys = self.plane.keys
        names = [self._worker, keys.workers(), keys.worker_types(), self._queue, self._inflight]
        return bool(await self.plane.scripts.run("worker_leave", names, [keys.p, self.id, self.generation]))
