"""HTTP services as workers: the leader takes from their queues and POSTs each task to `{address}/execute`.

The service keeps its own lease (heartbeats); the leader only carries calls. When the lead changes, what the old leader
had under way goes back to the queue first: its calls may still end, but their tokens are old.
Answer: 2xx with `{"result": …}` (or any other JSON, taken as the result); `{"error": …}`, 5xx, 408, 429 or no answer
is a failure that may be retried; another 4xx is one that is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx2 as httpx
import structlog
from redis.exceptions import RedisError

from tradewind import codec
from tradewind.clock import now_ms
from tradewind.errors import Invalid, TradewindError, Unavailable, error_text
from tradewind.fence import Fence, first_of
from tradewind.http_guard import AddressRefused, BadAnswer, GuardedTransport, guard_with, read_answer
from tradewind.ids import short_random
from tradewind.redis.connection import translated
from tradewind.redis.faults import other_types
from tradewind.tasks.executor import attempt
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import Request, Status
from tradewind.tasks.running import Abort, Running
from tradewind.tasks.worker_slots import log_failure
from tradewind.tasks.worker_store import Lost, Taken, WorkerStore

log = structlog.get_logger(__name__)
LOOK_S = 1.0
MAX_ANSWER_BYTES = 1_000_000


class RemoteFailed(Exception):
    """The service answered that the task failed, or did not answer as it should."""


#: How another room words the call for its tasks: given the worker's id, what goes beside the attempt's own fields.
Wording = Callable[[str, Taken, Request], Awaitable[dict[str, Any]]]


class HttpExecutor:
    """`rooms`: hook → wording of that room's tasks, which may also be served on `/nodes/execute`."""

    def __init__(
        self, client: httpx.AsyncClient, worker_id: str, address: str, rooms: Mapping[str, Wording] | None = None
    ) -> None:
        self._client = client
        self._worker_id = worker_id
        self._address = address.rstrip("/")
        self._url = self._address + "/execute"
        self._rooms = dict(rooms or {})

    async def run(self, taken: Taken, request: Request, state: Running) -> bytes:
        wording = self._rooms.get(taken.hook)
        body: dict[str, Any] = {
            "task_id": taken.id, "task_type": taken.type, "args": request.args, "kwargs": request.kwargs,
            "attempt": taken.attempt, "token": taken.token, "deadline_ms": now_ms() + taken.left_ms,
        }  # fmt: skip
        if wording is not None:
            body = {**body, **await wording(self._worker_id, taken, request)}
        status, data = await self._post(self._url, body, taken.left_ms)
        if status in (404, 405) and wording is not None:
            status, data = await self._post(self._address + "/nodes/execute", body, taken.left_ms)
        if status >= 500 or status in (408, 429):
            raise RemoteFailed(f"POST {self._url} answered {status}")
        if not 200 <= status < 300:
            raise Abort(f"POST {self._url} answered {status}: {data[:200].decode(errors='replace')}")
        return _result(data, self._url)

    async def _post(self, url: str, body: dict[str, Any], left_ms: int) -> tuple[int, bytes]:
        """Status and body. The body is bounded while it comes and while it is unpacked."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        try:
            async with self._client.stream(
                "POST", url, content=codec.encode(body), headers=headers, timeout=left_ms / 1000
            ) as answer:
                return answer.status_code, await read_answer(answer, MAX_ANSWER_BYTES)
        except BadAnswer as error:
            raise Abort(f"POST {url}: {error}") from error
        except AddressRefused as error:
            raise Abort(f"POST {url}: {error} (see tasks.http_workers_allow)") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RemoteFailed(f"POST {url}: {type(error).__name__} {error}".rstrip()) from error

    async def close(self) -> None:
        """The client is shared; its owner closes it."""


def _result(data: bytes, url: str) -> bytes:
    if not data.strip():
        return b"null"
    try:
        value = codec.decode(data)
    except Invalid as error:
        raise RemoteFailed(f"POST {url}: {error.message}") from error
    if isinstance(value, dict):
        if value.get("error") or value.get("status") in ("error", "failed"):
            raise RemoteFailed(str(value.get("error") or value)[:2000])
        if "result" in value:
            value = value["result"]
    return codec.encode(value)


class _Call:
    """One task under way at a service."""

    def __init__(self, taken: Taken) -> None:
        self.taken = taken
        self.state = Running(taken.id, taken.type, taken.attempt, taken.token, _unreported)
        self.state.is_dropped = (
            True  # no user code runs here: a cancellation without a reason is the end of the dispatch
        )
        self.job: asyncio.Task[None] | None = None

    def stop(self, reason: Status) -> None:
        if self.state.stopped is None and self.job is not None:
            self.state.stopped = reason
            self.job.cancel()


class HttpDispatch:
    """Serves every registered worker that has an address and does not pull by itself."""

    def __init__(self, plane: Plane, rooms: Mapping[str, Wording] | None = None) -> None:
        self.plane = plane
        self._rooms = dict(rooms or {})
        self._fence = Fence(job="http workers")

    async def run(self) -> None:
        served: dict[str, asyncio.Task[None]] = {}
        guard = guard_with(self.plane.settings.http_workers_allow)
        transport = GuardedTransport(guard, max_connections=500)
        async with (
            httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False) as client,
            asyncio.TaskGroup() as group,
        ):
            while True:
                try:
                    found = await self._addresses()
                except Unavailable as error:
                    log.warning("http workers wait for Redis", error=error.message)
                    await asyncio.sleep(LOOK_S)
                    continue
                for worker_id, task in list(served.items()):
                    if task.done() or worker_id not in found:
                        task.cancel()
                        del served[worker_id]
                for worker_id, address in found.items():
                    if worker_id not in served:
                        job = self._serve(worker_id, address, client)
                        served[worker_id] = group.create_task(job, name=f"http worker {worker_id}")
                await asyncio.sleep(LOOK_S)

    async def _addresses(self) -> dict[str, str]:
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            ids = {w.decode(errors="replace") for w in await client.zrange(keys.workers(), 0, -1)}
            types = await client.smembers(keys.worker_types())
            if types:
                served = await client.sunion([keys.worker_type(t.decode(errors="replace")) for t in types])
                ids |= {w.decode(errors="replace") for w in served}
            pipe = client.pipeline(transaction=False)
            for worker_id in ids:
                pipe.hmget(keys.worker(worker_id), "address", "api_url", "pull")
            rows = other_types(await pipe.execute(raise_on_error=False))
        found = {}
        for worker_id, row in zip(ids, rows, strict=True):
            if isinstance(row, list) and row[2] != b"1" and (row[0] or row[1]):  # else not a hash, or not for us
                found[worker_id] = (row[0] or row[1]).decode(errors="replace")
        return found

    async def _serve(self, worker_id: str, address: str, client: httpx.AsyncClient) -> None:
        keys, scripts = self.plane.keys, self.plane.scripts
        try:
            generation = (await scripts.run("worker_adopt", [keys.worker(worker_id)], [short_random()])).decode()
        except Unavailable as error:
            log.warning("http worker waits for Redis", worker=worker_id, error=error.message)
            return
        except (TradewindError, RedisError) as error:
            log.error("http worker met an error and goes on", worker=worker_id, error=error_text(error))
            return
        if not generation:
            return
        store = WorkerStore(self.plane, worker_id, generation)
        executor = HttpExecutor(client, worker_id, address, self._rooms)
        blocking = self.plane.link.new_client(LOOK_S)
        try:
            held = await store.sync()
            if held:
                lost = [(task_id, token) for task_id, token, _ in held]  # of a dispatch that is gone
                await store.release(lost, queue_too=False, is_stall=True)
            async with asyncio.TaskGroup() as group:
                running: dict[str, _Call] = {}
                group.create_task(self._watch_cancels(store, running), name=f"{worker_id} cancels")
                while True:
                    capacity = await self._capacity(worker_id)
                    room = capacity - len(running)
                    if room <= 0:
                        under_way = [call.job for call in running.values() if call.job is not None]
                        if under_way:
                            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED, timeout=1)
                        await asyncio.sleep(0)
                        continue
                    for taken in await store.take(room, wait_s=LOOK_S, client=blocking):
                        call = running[taken.id] = _Call(taken)
                        task = group.create_task(self._run_one(store, executor, call), name=taken.id)
                        task.add_done_callback(functools.partial(_forget, running, taken.id))
        except* Lost:
            log.info("http worker is gone", worker=worker_id)
        except* Unavailable as error:
            log.warning("http worker waits for Redis", worker=worker_id, error=error_text(first_of(error)))
        except* (TradewindError, RedisError) as error:
            log.error("http worker met an error and goes on", worker=worker_id, error=error_text(first_of(error)))
        except* Exception as error:  # noqa: BLE001 - it would end the calls of all other services
            self._fence.met(error)
        finally:
            await _give_back(store)
            await blocking.aclose()

    async def _capacity(self, worker_id: str) -> int:
        with translated():
            value = await self.plane.redis.hget(self.plane.keys.worker(worker_id), "capacity")
        return int(value) if value and value.isdigit() else 1

    async def _run_one(self, store: WorkerStore, executor: HttpExecutor, call: _Call) -> None:
        taken, call.job = call.taken, asyncio.current_task()
        timer = asyncio.get_running_loop().call_later(taken.left_ms / 1000, call.stop, Status.TIMEOUT)
        try:
            ending = await attempt(executor, taken, call.state)
        finally:
            timer.cancel()
            call.job = None
        if ending.status is not Status.SUCCESS:
            log_failure(taken, ending)
        await store.finish([ending])

    async def _watch_cancels(self, store: WorkerStore, running: dict[str, _Call]) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for task_id, _, shall_stop in await store.sync():
                if shall_stop and (call := running.get(task_id)) is not None:
                    call.stop(Status.CANCELLED)


async def _give_back(store: WorkerStore) -> None:
    """What this dispatch has begun and will not see the end of: the next one calls again, and it counts once."""
    with contextlib.suppress(TradewindError, RedisError, TimeoutError):
        async with asyncio.timeout(LOOK_S):
            held = [(task_id, token) for task_id, token, _ in await store.sync()]
            if held:
                await store.release(held, queue_too=False)


def _unreported(_state: Running, _value: bytes) -> None:
    """A service reports no progress."""


def _forget(running: dict[str, _Call], task_id: str, _: asyncio.Task[None]) -> None:
    running.pop(task_id, None)
