"""The two ways from a program to a station: straight to its Redis, or through its HTTP API. One seam, one contract.

A Gate submits raw tasks (the shapes of `POST /api/v1/tasks`), reads, cancels, retries and waits. Errors are the kinds
of errors.py in both. `wait` returns the task's public view once it has ended, or raises TimedOut.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import redis
import structlog

from tradewind import codec
from tradewind.clock import now_ms
from tradewind.errors import (
    Conflict,
    Invalid,
    NotFound,
    Overloaded,
    Problem,
    TimedOut,
    TradewindError,
    Unavailable,
    error_text,
)
from tradewind.ids import short_random
from tradewind.masking import masked_url, secrets_of, struck_out
from tradewind.redis.connection import open_link
from tradewind.settings import Settings
from tradewind.tasks.check import check_plain, check_tasks
from tradewind.tasks.control import TaskControl
from tradewind.tasks.function import Signature, registry
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import TERMINAL
from tradewind.tasks.store import TaskStore
from tradewind.tasks.waiting import fill

log = structlog.get_logger(__name__)
TYPES_FRESH_S = 5.0
BATCH = 1000
#: A page of the largest tasks.
MAX_ANSWER_BYTES = 64_000_000
_PLAIN = {"type", "args"}


class Gate(ABC):
    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises Unavailable."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def submit(self, raws: Sequence[Mapping[str, Any]]) -> list[str]:
        """Accept all or none (up to 5000); the ids in order. Raises Invalid, Conflict, Overloaded."""

    @abstractmethod
    async def submit_plain(self, kind: str, calls: Sequence[Sequence[Any]]) -> list[str]:
        """Many calls of one type with positional arguments only; in batches of 1000, each all or none."""

    @abstractmethod
    async def view(self, task_id: str) -> dict[str, Any]:
        """The task's public view. Raises NotFound."""

    @abstractmethod
    async def cancel(self, task_id: str) -> dict[str, Any]: ...

    @abstractmethod
    async def retry(self, task_id: str) -> dict[str, Any]: ...

    @abstractmethod
    async def wait(self, task_id: str, timeout: float | None) -> dict[str, Any]: ...


class RedisGate(Gate):
    def __init__(self, settings: Settings, plane: Plane | None = None) -> None:
        self._settings = settings
        self._plane = plane
        self._owns = plane is None
        self._client_id = short_random()
        self._types: dict[str, Signature] = {}
        self._types_at = float("-inf")
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    async def open(self) -> None:
        if self._plane is None:
            link = await open_link(self._settings.redis)
            try:
                await link.wait_ready(self._settings.redis.dial_timeout_s)
            except BaseException:
                await link.close()
                raise
            self._plane = Plane(link, self._settings)
        self._store = TaskStore(self._plane)
        self._control = TaskControl(self._plane)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        if self._owns and self._plane is not None:
            await self._plane.link.close()

    async def _known_types(self, wanted: set[str]) -> dict[str, Signature]:
        if time.monotonic() - self._types_at > TYPES_FRESH_S or not wanted <= self._types.keys():
            types = await self._control.types()
            for name in wanted - types.keys():
                if await self._control.has_type(name):
                    types[name] = Signature(var_args=True, var_kwargs=True)
            for function in registry.all():  # what this program defines itself may be submitted before a worker has it
                known = types.get(function.name)
                if known is None or known.is_remembered:
                    types[function.name] = function.signature
            self._types, self._types_at = types, time.monotonic()
        return self._types

    async def submit(self, raws: Sequence[Mapping[str, Any]]) -> list[str]:
        if len(raws) == 1 and raws[0].keys() == _PLAIN:
            return await self.submit_plain(raws[0]["type"], [raws[0]["args"]])
        return await self._submit(raws)

    async def _submit(self, raws: Sequence[Mapping[str, Any]]) -> list[str]:
        types = await self._known_types({t for r in raws if isinstance(t := r.get("type"), str)})
        most = self._settings.tasks.max_payload_bytes
        found = check_tasks(raws, types, now_ms=now_ms(), max_payload=most, single=len(raws) == 1)
        return [accepted.id for accepted in await self._store.submit(found)]

    async def submit_plain(self, kind: str, calls: Sequence[Sequence[Any]]) -> list[str]:
        """While Redis takes one batch the next one is made ready."""
        types = await self._known_types({kind})
        if len(calls) <= BATCH:
            return await self._submit_batch(kind, calls, types.get(kind))
        ids: list[str] = []
        sending: deque[asyncio.Task[list[str]]] = deque()
        try:
            for start in range(0, len(calls), BATCH):
                job = self._submit_batch(kind, calls[start : start + BATCH], types.get(kind))
                sending.append(asyncio.create_task(job, name="tradewind submit"))
                await asyncio.sleep(0)
                if len(sending) > 2:
                    ids += await sending.popleft()
            while sending:
                ids += await sending.popleft()
        finally:
            for task in sending:
                task.cancel()
        return ids

    async def _submit_batch(self, kind: str, calls: Sequence[Sequence[Any]], signature: Signature | None) -> list[str]:
        plain = signature and check_plain(calls, signature, max_payload=self._settings.tasks.max_payload_bytes)
        if plain:
            return await self._store.submit_plain(kind, *plain)
        return await self._submit([{"type": kind, "args": list(args)} for args in calls])

    async def view(self, task_id: str) -> dict[str, Any]:
        view = (await self._store.get(task_id)).view()
        await fill(self._store.plane, [view])
        return view

    async def cancel(self, task_id: str) -> dict[str, Any]:
        done = (await self._store.cancel([task_id]))[0]
        if not done.is_done and done.status != "CANCELLED":
            raise Conflict(f"task {task_id!r} has ended before: {done.status}", code="already_ended")
        return await self.view(task_id)

    async def retry(self, task_id: str) -> dict[str, Any]:
        await self._store.retry(task_id)
        return await self.view(task_id)

    async def wait(self, task_id: str, timeout: float | None) -> dict[str, Any]:
        """Told by `task:reply:{client}`; looked up once a second all the same, since a message may be lost."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="tradewind replies")
        await self._listening.wait()  # everybody, not only the first: a reply before it is lost
        told = self._waiting.setdefault(task_id, asyncio.get_running_loop().create_future())
        try:
            while True:
                if (await self._store.wait(self._client_id, [task_id]))[0] is not None:
                    return await self.view(task_id)
                left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                if left <= 0:
                    raise TimedOut(f"task {task_id!r} has not ended within {timeout:g} s", hint="it goes on; ask again")
                await asyncio.wait([told], timeout=left)
                if told.done():
                    told = self._waiting[task_id] = asyncio.get_running_loop().create_future()
        finally:
            self._waiting.pop(task_id, None)

    async def _listen(self) -> None:
        assert self._plane is not None
        while True:
            client = self._plane.link.new_client()
            pubsub = client.pubsub()
            try:
                await pubsub.subscribe(self._plane.keys.reply(self._client_id))
                async for message in pubsub.listen():
                    if message["type"] != "message":  # the server has heard of it
                        self._listening.set()
                        continue
                    told = self._waiting.get(message["data"].decode(errors="replace"))
                    if told is not None and not told.done():
                        told.set_result(None)
            except redis.RedisError as error:  # also when the server forbids it: looking up needs no channel
                log.warning("replies are looked up meanwhile", error=error_text(error))
                self._listening.set()
                await asyncio.sleep(0.5)
            finally:
                await pubsub.aclose()  # type: ignore[no-untyped-call]
                await client.aclose()


class HttpGate(Gate):
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        import httpx2  # heavy, and only this gate needs it

        from tradewind.http_guard import BadAnswer, read_answer

        # The proxies of the environment are for the internet; a station is not there.
        self._client = httpx2.AsyncClient(base_url=self._url, timeout=30, trust_env=False)
        self._read = read_answer
        self._trouble = (httpx2.HTTPError, BadAnswer)

    async def open(self) -> None:
        await self._ask("GET", "/api/v1/queues")

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        content = _encoded(body) if body is not None else None
        headers = {"Content-Type": "application/json"} if content else {}
        try:
            async with self._client.stream(method, path, content=content, headers=headers, params=params) as answer:
                data = await self._read(answer, MAX_ANSWER_BYTES)
        except self._trouble as error:
            why = struck_out(error_text(error), secrets_of(self._url))
            raise Unavailable(
                f"no station at {masked_url(self._url)}: {why}", hint="start one with: tradewind up"
            ) from error
        if answer.status_code >= 400:
            raise _error(answer.status_code, data)
        return codec.decode(data)

    async def submit(self, raws: Sequence[Mapping[str, Any]]) -> list[str]:
        if len(raws) == 1:
            return [(await self._ask("POST", "/api/v1/tasks", raws[0]))["id"]]
        ids: list[str] = (await self._ask("POST", "/api/v1/tasks/batch", {"tasks": list(raws)}))["ids"]
        return ids

    async def submit_plain(self, kind: str, calls: Sequence[Sequence[Any]]) -> list[str]:
        ids: list[str] = []
        for start in range(0, len(calls), BATCH):
            ids += await self.submit([{"type": kind, "args": list(args)} for args in calls[start : start + BATCH]])
        return ids

    async def view(self, task_id: str) -> dict[str, Any]:
        view: dict[str, Any] = await self._ask("GET", f"/api/v1/tasks/{task_id}")
        return view

    async def cancel(self, task_id: str) -> dict[str, Any]:
        view: dict[str, Any] = await self._ask("POST", f"/api/v1/tasks/{task_id}/cancel")
        return view

    async def retry(self, task_id: str) -> dict[str, Any]:
        view: dict[str, Any] = await self._ask("POST", f"/api/v1/tasks/{task_id}/retry")
        return view

    async def wait(self, task_id: str, timeout: float | None) -> dict[str, Any]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 20.0 if deadline is None else max(0.0, min(20.0, deadline - time.monotonic()))
            view: dict[str, Any] = await self._ask("GET", f"/api/v1/tasks/{task_id}", wait=left)
            if view["status"] in TERMINAL:
                return view
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(f"task {task_id!r} has not ended within {timeout:g} s", hint="it goes on; ask again")


def _encoded(body: Any) -> bytes:
    try:
        content = codec.encode(body)
        is_lossy = codec.lost_non_finite(body, content)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"arguments must be JSON: {error}", code="not_json", hint="give plain JSON data") from error
    if is_lossy:
        raise Invalid("NaN and Infinity are not JSON", code="not_finite", hint="give finite numbers")
    return content


def _error(status: int, content: bytes) -> TradewindError:
    try:
        error = codec.decode(content)["error"]
        message, code, hint = error["message"], error["code"], error.get("hint", "")
        problems = [Problem(**p) for p in error.get("problems", [])]
    except (Invalid, KeyError, TypeError):
        return Unavailable(f"the station answered {status} without an explanation")
    kinds: dict[int, type[TradewindError]] = {
        404: NotFound,
        409: Conflict,
        429: Overloaded,
        503: Unavailable,
        504: TimedOut,
    }
    kind = kinds.get(status)
    if kind is not None:
        return kind(message, code=code, hint=hint)
    if status < 500:
        return Invalid(message, code=code, hint=hint, problems=problems)
    return Unavailable(message, code=code, hint=hint)
