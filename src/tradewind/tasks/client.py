"""How a program uses a station: `async with tradewind.connect(url) as tw`, or `with …` for the blocking twin.

The twin is the same object behind one background loop; there is no second implementation.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Any, TypeVar

from tradewind.errors import Invalid, TradewindError
from tradewind.settings import Settings, load_settings
from tradewind.tasks.function import OPTIONS
from tradewind.tasks.gate import Gate, HttpGate, RedisGate
from tradewind.tasks.record import Status

T = TypeVar("T")
_NAMES = {
    "delay": "delay_s",
    "timeout": "timeout_s",
    "backoff": "backoff_s",
    "backoff_max": "backoff_max_s",
    "task_id": "id",
}


class TaskFailed(TradewindError):
    """The task ended without a result: `status` says how, `error` is what it said."""

    code = "task_failed"

    def __init__(self, view: dict[str, Any]) -> None:
        error = view.get("error") or {}
        said = f": {error.get('type')}: {error.get('message')}" if error else ""
        super().__init__(f"task {view['id']!r} ended {view['status']}{said}", hint="see task show")
        self.task_id: str = view["id"]
        self.status = Status(view["status"])
        self.error = error


class Handle:
    """A submitted task."""

    def __init__(self, gate: Gate, task_id: str) -> None:
        self._gate = gate
        self.id = task_id

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until it has ended and return its result. Raises TaskFailed, TimedOut."""
        view = await self._gate.wait(self.id, timeout)
        if view["status"] != Status.SUCCESS:
            raise TaskFailed(view)
        return view["result"]

    async def view(self) -> dict[str, Any]:
        return await self._gate.view(self.id)

    async def status(self) -> Status:
        return Status((await self.view())["status"])

    async def cancel(self) -> dict[str, Any]:
        return await self._gate.cancel(self.id)

    async def retry(self) -> dict[str, Any]:
        return await self._gate.retry(self.id)

    def __repr__(self) -> str:
        return f"<task {self.id}>"


class Client:
    """A connected program.

    Options of submit: priority, delay, eta, timeout, max_attempts, backoff, backoff_max, deadline, idempotency_key,
    tags, labels, exclusive, task_id; every other keyword is an argument of the task.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def submit(self, type: str, *args: Any, **kwargs: Any) -> Handle:
        ids = await self._gate.submit([_raw(type, args, kwargs)])
        return Handle(self._gate, ids[0])

    async def submit_many(self, calls: Iterable[Sequence[Any]]) -> list[Handle]:
        """Many tasks: each `(type,)`, `(type, args)` or `(type, args, kwargs)`; kwargs may hold options.

        Sent in batches of 1000, each of them all or none.
        """
        handles: list[Handle] = []
        batch = list(calls)
        kinds = {call[0] for call in batch}
        if len(kinds) == 1 and all(len(call) == 2 and isinstance(call[1], (tuple, list)) for call in batch):
            ids = await self._gate.submit_plain(batch[0][0], [call[1] for call in batch])
            return [Handle(self._gate, i) for i in ids]
        for start in range(0, len(batch), 1000):
            part = batch[start : start + 1000]
            raws = [_raw(c[0], c[1] if len(c) > 1 else (), c[2] if len(c) > 2 else {}) for c in part]
            handles += [Handle(self._gate, i) for i in await self._gate.submit(raws)]
        return handles

    def task(self, task_id: str) -> Handle:
        """A handle of a task that was submitted elsewhere."""
        return Handle(self._gate, task_id)

    async def close(self) -> None:
        await self._gate.close()


def _raw(kind: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    is_many = isinstance(args, Sequence) and not isinstance(args, (str, bytes))  # else the check says what is wrong
    raw: dict[str, Any] = {"type": kind, "args": list(args) if is_many else args}
    named: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in OPTIONS:
            raw[_NAMES.get(name, name)] = value
        else:
            named[name] = value
    if named:
        raw["kwargs"] = named
    return raw


class BlockingHandle:
    """The blocking twin of Handle."""

    def __init__(self, client: BlockingClient, handle: Handle) -> None:
        self._client = client
        self._handle = handle
        self.id = handle.id

    def result(self, timeout: float | None = None) -> Any:
        return self._client.call(self._handle.result(timeout))

    def view(self) -> dict[str, Any]:
        return self._client.call(self._handle.view())

    def status(self) -> Status:
        return self._client.call(self._handle.status())

    def cancel(self) -> dict[str, Any]:
        return self._client.call(self._handle.cancel())

    def retry(self) -> dict[str, Any]:
        return self._client.call(self._handle.retry())

    def __repr__(self) -> str:
        return repr(self._handle)


class BlockingClient:
    """The blocking twin of Client: the same calls, run on a background loop."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def submit(self, type: str, *args: Any, **kwargs: Any) -> BlockingHandle:
        return BlockingHandle(self, self.call(self._client.submit(type, *args, **kwargs)))

    def submit_many(self, calls: Iterable[Sequence[Any]]) -> list[BlockingHandle]:
        return [BlockingHandle(self, h) for h in self.call(self._client.submit_many(calls))]

    def task(self, task_id: str) -> BlockingHandle:
        return BlockingHandle(self, self._client.task(task_id))


_in_use: ContextVar[Client | BlockingClient] = ContextVar("tradewind_connection")


def connection_in_use() -> Client | BlockingClient:
    try:
        return _in_use.get()
    except LookupError:
        raise Invalid(
            "no connection is open here", code="not_connected", hint="use: async with tradewind.connect(url) as tw: …"
        ) from None


def blocking_in_use(loop: asyncio.AbstractEventLoop) -> None:
    """In a thread of the worker: `function.submit` blocks there and goes through the worker's own connection."""
    client = _in_use.get(None)
    if isinstance(client, Client):
        _in_use.set(BlockingClient(client, loop))


def use(client: Client | BlockingClient) -> Token[Client | BlockingClient]:
    """Make `function.submit` in this context go through that client."""
    return _in_use.set(client)


class Connection:
    """What `connect` returns: open it with `async with` or with `with`."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop
        self._token: Token[Client | BlockingClient] | None = None
        self._thread: threading.Thread | None = None

    async def open(self) -> Client:
        gate: Gate = HttpGate(self._url) if self._url.startswith(("http://", "https://")) else RedisGate(self._settings)
        try:
            await gate.open()
        except BaseException:
            await gate.close()
            raise
        return Client(gate)

    async def __aenter__(self) -> Client:
        client = self._client = await self.open()
        self._token = use(client)
        return client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()
        self._forget()

    def __enter__(self) -> BlockingClient:
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="tradewind-client", daemon=True)
        self._thread.start()
        try:
            opened = asyncio.run_coroutine_threadsafe(self.open(), loop).result()
        except BaseException:
            self._end_loop()
            raise
        client = BlockingClient(opened, loop)
        self._client = opened
        self._token = use(client)
        return client

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result()
        self._end_loop()
        self._forget()

    def _end_loop(self) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    def _forget(self) -> None:
        if self._token is not None:
            _in_use.reset(self._token)
            self._token = None


def connect(url: str | os.PathLike[str] | None = None, **overrides: Any) -> Connection:
    """Connect to a station: a Redis URL, `http://…` of its API, or its data folder; by default as the settings say.

    Overrides are settings such as key_prefix="plant7:".
    """
    text = os.fspath(url) if url is not None else ""
    if text.startswith(("http://", "https://")):
        return Connection(text, load_settings(overrides=overrides))
    if text and "://" not in text:
        from tradewind.redis.embedded import socket_of

        text = f"unix://{socket_of(Path(text))}"
    settings = load_settings(overrides={**overrides, "redis.url": text} if text else overrides)
    if not settings.redis.url and not text:
        from tradewind.redis.embedded import socket_of

        text = f"unix://{socket_of(settings.data_dir)}"
        settings = load_settings(overrides={**overrides, "redis.url": text})
    return Connection(text, settings)
