"""Tasks as anyone may use them: submit, read, cancel, retry, wait. Each verb is one script, many tasks a call.

Callers: clients, the API, periodic tasks. Workers use worker_store.py, the leader uses leader_store.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from tradewind import codec
from tradewind.errors import Conflict, NotFound, Overloaded
from tradewind.ids import new_ids, short_random
from tradewind.redis.connection import translated
from tradewind.redis.faults import SpoiltRecord, reading
from tradewind.redis.scripts import Arg
from tradewind.tasks.plane import CACHE_MS, CANCEL_MS, Plane
from tradewind.tasks.record import Request, Status, Submission, Task, from_redis
from tradewind.tasks.waiting import WAITS, fill

logger = structlog.get_logger("tradewind.tasks")

if TYPE_CHECKING:  # SQLAlchemy is heavy, and a worker needs none of it
    from tradewind.tasks.archive_table import TaskArchive


class TaskNotFound(NotFound):
    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"there is no task {task_id!r}",
            code="task_not_found",
            hint="finished tasks are kept for tasks.archive_keep_days (without an archive for tasks.result_ttl_s)",
        )
        self.task_id = task_id


class Accepted(msgspec.Struct, frozen=True):
    """One accepted task; `is_new` is False when its idempotency key had already brought it in."""

    id: str
    status: Status
    is_new: bool = True


class Cancelled(msgspec.Struct, frozen=True):
    """`status` is CANCELLED (ended now), PROCESSING (its worker was asked to stop) or the terminal state it had."""

    id: str
    status: Status
    is_done: bool


_pack = msgspec.msgpack.Encoder().encode


class TaskStore:
    def __init__(self, plane: Plane, archive: TaskArchive | None = None) -> None:
        self.plane = plane
        self.archive = archive
        keys = plane.keys
        self._submit_keys = [
            keys.queue("high"), keys.queue("normal"), keys.delayed(), keys.workers(), keys.paused(), keys.rate_config(),
            keys.parked(),
        ]  # fmt: skip

    async def submit(self, submissions: Sequence[Submission]) -> list[Accepted]:
        """Accept all or none. Raises Conflict (idempotency key with another request, id taken) or Overloaded."""
        if not submissions:
            return []
        args = self._submit_head()
        for s in submissions:
            args += (s.id, s.type, s.priority, s.line, _options(s.type, s.request, s.line, s.delay_ms, s.eta_ms))
        reply = await self.plane.scripts.run("task_submit", self._submit_keys, args)
        if reply[0] == 1:
            return [
                Accepted(s.id, Status(answer.decode()))
                if answer[:1] != b"="
                else Accepted(answer[1:].decode(), Status.QUEUED, is_new=False)
                for s, answer in zip(submissions, reply[1:], strict=True)
            ]
        raise self._refusal([s.request.idempotency_key for s in submissions], reply)

    async def submit_plain(self, kind: str, model: Request, lines: Sequence[bytes]) -> list[str]:
        """Many calls of one type that differ in their arguments only; the new ids. All or none. Raises Overloaded."""
        options = _options(kind, model, b"", 0, 0)
        ids = new_ids(len(lines))
        args = self._submit_head()
        for task_id, line in zip(ids, lines, strict=True):
            args += (task_id, kind, "normal", line, options)
        reply = await self.plane.scripts.run("task_submit", self._submit_keys, args)
        if reply[0] != 1:
            raise self._refusal([""] * len(ids), reply)
        return ids

    def _submit_head(self) -> list[Arg]:
        settings = self.plane.settings
        lasts_ms = int(settings.idempotency_ttl_s * 1000)
        return [*self.plane.head(), settings.max_queued, settings.outbox_max, "1", lasts_ms]

    def _refusal(self, keys: Sequence[str], reply: list[Any]) -> Exception:
        if reply[0] == -2:
            return Overloaded(
                f"{reply[1]} tasks are queued already",
                code="queue_full",
                hint="start more workers, or raise tasks.max_queued",
                retry_after_s=5,
            )
        if reply[0] == -3:
            return Overloaded(
                f"{reply[1]} finished tasks wait for the archive",
                code="outbox_full",
                hint="is the SQL database reachable? see /health",
                retry_after_s=10,
            )
        owner = reply[2].decode()
        if reply[0] == -4:
            return Conflict(
                f"there is a task {owner!r} already", code="id_taken", hint="leave the id out to get a new one"
            )
        return Conflict(
            f"idempotency key {keys[reply[1] - 1]!r} belongs to task {owner!r} with another request",
            code="idempotency_mismatch",
            hint="use a new key for a new request",
        )

    async def read(self, ids: Sequence[str]) -> list[Task | None]:
        """The tasks as they stand now, from Redis, else from the archive; None for an unknown one."""
        found = await self.read_live(ids)
        missing = [i for i, task in zip(ids, found, strict=True) if task is None]
        if missing and self.archive is not None:
            archived = await self.archive.get_many(missing)
            found = [task or archived.get(i) for i, task in zip(ids, found, strict=True)]
        return found

    async def read_live(self, ids: Sequence[str]) -> list[Task | None]:
        tasks: list[Task | None] = []
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            rows = await self.plane.scripts.run("task_read", [self.plane.keys.token()], [self.plane.keys.p, *part])
            tasks += [_readable(task_id, row) for task_id, row in zip(part, rows, strict=True)]
        return tasks

    async def get(self, task_id: str) -> Task:
        task = (await self.read([task_id]))[0]
        if task is None:
            raise TaskNotFound(task_id)
        return task

    async def view(self, task_id: str) -> bytes:
        """The public JSON of a task, through the protocol's `task:cache:{id}`; with what it waits for."""
        text = await self._view(task_id)
        if _Head.of(text).status not in WAITS:
            return text
        view = codec.decode(text)
        await fill(self.plane, [view])
        return codec.encode(view)

    async def _view(self, task_id: str) -> bytes:
        keys = self.plane.keys
        with translated():
            cached: bytes | None = await self.plane.redis.get(keys.cache(task_id))
        if cached is not None:
            return cached
        row = (await self.plane.scripts.run("task_read", [keys.token()], [keys.p, task_id]))[0]
        task, token = _task(task_id, row), ""
        if task is None:
            task = await self.get(task_id)
        else:
            fields = dict(zip(row[0][::2], row[0][1::2], strict=True))
            token = fields.get(b"tok", b"").decode()
        text = codec.encode(task.view())
        names = [keys.task(task_id), keys.cache(task_id), keys.status(task_id), keys.marked()]
        await self.plane.scripts.run("task_cache", names, [str(task.status), token, text, CACHE_MS, task_id])
        return text

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        """Cancel each; one that had ended before keeps its state (is_done False). Raises TaskNotFound."""
        timeout_ms = int(self.plane.settings.default_timeout_s * 1000)
        args: list[Arg] = [*self.plane.head(), CANCEL_MS, timeout_ms, *ids]
        names = [self.plane.keys.delayed(), self.plane.keys.marked()]
        replies = await self.plane.scripts.run("task_cancel", names, args)
        done = []
        for task_id, reply in zip(ids, replies, strict=True):
            if reply[0] == -1:
                archived = await self.get(task_id)
                done.append(Cancelled(task_id, archived.status, is_done=False))
            else:
                done.append(Cancelled(task_id, Status(reply[1].decode()), is_done=reply[0] > 0))
        return done

    async def retry(self, task_id: str) -> Status:
        """Bring a task back that ended badly, also an archived one. Raises TaskNotFound, Conflict."""
        keys = self.plane.keys
        names = [keys.dead(), keys.queue("high"), keys.queue("normal")]
        reply = (await self.plane.scripts.run("task_retry", names, [*self.plane.head(), short_random(), task_id]))[0]
        if reply[0] == 1:
            return Status.QUEUED
        if reply[0] == 0:
            raise _not_retryable(task_id, reply[1].decode())
        task = await self.get(task_id)
        if task.status is Status.SUCCESS or not task.is_terminal:
            raise _not_retryable(task_id, task.status)
        request = msgspec.structs.replace(task.request, deadline_ms=0, idempotency_key="")
        again = Submission(task_id, task.type, request, codec.encode(request), task.priority)
        with translated():
            await self.plane.redis.delete(keys.cache(task_id), keys.status(task_id))
            await self.plane.redis.zrem(keys.dead(), task_id)
        status = (await self.submit([again]))[0].status
        with translated():  # a reader of the archived one may have filled them meanwhile
            await self.plane.redis.delete(keys.cache(task_id), keys.status(task_id))
        return status

    async def wait(self, client_id: str, ids: Sequence[str]) -> list[Status | None]:
        """Ask to be told on `task:reply:{client_id}`; the status of those that ended already. Raises TaskNotFound."""
        args: list[Arg] = [*self.plane.head(), client_id, *ids]
        replies = await self.plane.scripts.run("task_wait", [self.plane.keys.token()], args)
        statuses: list[Status | None] = []
        for task_id, reply in zip(ids, replies, strict=True):
            if reply == b"-":
                statuses.append((await self.get(task_id)).status)
            else:
                statuses.append(Status(reply.decode()) if reply else None)
        return statuses


class _Head(msgspec.Struct):
    """Of a task's JSON, what says whether it waits; anything else that stands in the cache is passed on as it is."""

    status: str = ""

    @classmethod
    def of(cls, text: bytes) -> _Head:
        try:
            return _head(text)
        except msgspec.MsgspecError:
            return cls()


_head = msgspec.json.Decoder(_Head).decode


def _options(kind: str, request: Request, line: bytes, delay_ms: int, eta_ms: int) -> bytes:
    options: dict[str, Any] = {}
    if delay_ms:
        options["delay_ms"] = delay_ms
    if eta_ms:
        options["eta_ms"] = eta_ms
    if request.timeout_ms:
        options["tmo"] = str(request.timeout_ms)
    if request.deadline_ms:
        options["ddl"] = str(request.deadline_ms)
    if request.max_attempts > 1:
        options["max"] = str(request.max_attempts)
    if request.exclusive:
        options["lock"] = request.exclusive
    if request.labels:
        options["lab"] = ",".join(request.labels)
    if request.idempotency_key:
        options["idem"] = request.idempotency_key
        options["sha"] = hashlib.sha1(b"%s %s" % (kind.encode(), line)).hexdigest()
    return _pack(options) if options else b""


def _task(task_id: str, row: list[Any]) -> Task | None:
    """Raises SpoiltRecord."""
    if not row:
        return None
    with reading(f"the record of the task {task_id!r}"):
        flat = [item.decode() for item in row[0]]
        return from_redis(task_id, dict(zip(flat[::2], flat[1::2], strict=True)), row[1])


def _readable(task_id: str, row: list[Any]) -> Task | None:
    """One of many: those that nobody can read hold up nobody."""
    try:
        return _task(task_id, row)
    except SpoiltRecord as error:
        logger.warning("task_unreadable", task_id=task_id[:160], error=error.message)
        return None


def _not_retryable(task_id: str, status: str) -> Conflict:
    return Conflict(
        f"task {task_id!r} is {status}",
        code="not_retryable",
        hint="only FAILED, DEAD, TIMEOUT and CANCELLED tasks can be brought back",
    )
