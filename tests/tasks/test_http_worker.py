"""HTTP services as workers: a real little service, registered properly or by hand as in the seed."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import urllib.request
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

import tradewind
from tests import servers
from tests.cli.conftest import station_process
from tests.tasks.worker_tasks import let_go
from tests.tasks.workshop import Workshop, eventually, workshop
from tradewind.tasks.client import Handle, TaskFailed
from tradewind.tasks.control import TaskControl
from tradewind.tasks.record import Status
from tradewind.tasks.worker_store import WorkerStore


class Service:
    """Answers `POST /execute` with the next (status, body) that `by_word` has for the first argument of the task."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.hung_up = 0
        self.let_go = asyncio.Event()
        self.by_word: dict[str, list[tuple[int, bytes]]] = {}
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    int(v.split(":")[1]) for v in head.lower().split("\r\n") if v.startswith("content-length")
                )
                body = json.loads(await reader.readexactly(length))
                self.lines.append(head.split("\r\n")[0])
                self.asked.append(body)
                status, data = await self._answer(body, reader)
                more = "Location: /elsewhere\r\n" if status == 302 else ""
                if data[:2] == b"\x1f\x8b":
                    more += "Content-Encoding: gzip\r\n"
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{more}\r\n".encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], reader: asyncio.StreamReader) -> tuple[int, bytes]:
        word = body["args"][0] if body["args"] else ""
        if word == "hang":
            gone, free = asyncio.ensure_future(reader.read(1)), asyncio.ensure_future(self.let_go.wait())
            await asyncio.wait([gone, free], return_when=asyncio.FIRST_COMPLETED)
            free.cancel()
            if gone.done():
                self.hung_up += 1
                raise ConnectionResetError
            gone.cancel()
        answers = self.by_word.get(word)
        return answers.pop(0) if answers else (200, b'{"result": "done"}')

    def calls(self, task_id: str) -> list[dict[str, Any]]:
        return [body for body in self.asked if body["task_id"] == task_id]


@asynccontextmanager
async def new_service() -> AsyncIterator[Service]:
    service = Service()
    listener = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        service.let_go.set()
        listener.close()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with new_service() as service:
        yield service


@pytest.fixture
async def shop(redis_7: servers.Server, key_prefix: str) -> AsyncIterator[Workshop]:
    async with workshop(redis_7.url, key_prefix, scheduler_={"lease_s": 20}) as shop:
        yield shop


async def register(shop: Workshop, service: Service, worker_id: str = "svc", capacity: int = 50) -> WorkerStore:
    store = WorkerStore(shop.plane, worker_id, "g1")
    fields = {"id": worker_id, "address": service.address, "capacity": capacity, "status": "active"}
    await store.register(fields, {"price": b""})
    return store


async def register_by_hand(shop: Workshop, service: Service, kind: str = "price", ttl_ms: int = 30_000) -> None:
    """Word for word the commands of seed 004 §3."""
    key = shop.keys.worker("hand")
    fields = {
        "id": "hand", "name": "by hand", "address": service.address, "capacity": 10, "current_load": 0,
        "supported_types": json.dumps([kind]), "last_heartbeat": int(time.time()),
    }  # fmt: skip
    await shop.redis.hset(key, mapping=fields)
    await shop.redis.pexpire(key, ttl_ms)
    await shop.redis.sadd(shop.keys.worker_type(kind), "hand")


async def failure(handle: Handle) -> TaskFailed:
    with pytest.raises(TaskFailed) as caught:
        await handle.result(20)
    return caught.value


async def test_a_service_gets_all_it_needs_and_its_answer_is_the_result(shop: Workshop, service: Service) -> None:
    await register(shop, service)
    before = time.time() * 1000
    handle = await shop.client.submit("price", "oil", unit="barrel", timeout=60)
    assert await handle.result(20) == "done"
    (body,) = service.asked
    assert service.lines == ["POST /execute HTTP/1.1"]
    deadline_ms, token = body.pop("deadline_ms"), body.pop("token")
    assert body == {
        "task_id": handle.id, "task_type": "price", "args": ["oil"], "kwargs": {"unit": "barrel"}, "attempt": 1,
    }  # fmt: skip
    assert before + 59_000 < deadline_ms < time.time() * 1000 + 61_000
    assert int(token) > 0
    assert (await shop.task(handle.id)).worker_id == "svc"


ANSWERS: list[tuple[str, bytes, Any]] = [
    ("object", b'{"result": {"a": 1}}', {"a": 1}),
    ("null", b'{"result": null}', None),
    ("bare", b"[1, 2]", [1, 2]),
    ("other", b'{"price": 5}', {"price": 5}),
    ("empty", b"", None),
    ("fine", b'{"error": null, "result": 3}', 3),
]
FAULTS: list[tuple[str, int, bytes, str]] = [
    ("e500", 500, b"oops", "answered 500"),
    ("e503", 503, b"", "answered 503"),
    ("e408", 408, b"", "answered 408"),
    ("e429", 429, b"", "answered 429"),
    ("error", 200, b'{"error": "no price today"}', "no price today"),
    ("status", 200, b'{"status": "failed", "why": "x"}', "why"),
    ("text", 200, b"<html>", "not valid JSON"),
]


async def test_answers_and_what_becomes_of_them(shop: Workshop, service: Service) -> None:
    """All in one: each look for new services takes the leader a second."""
    await register(shop, service)
    submit = shop.client.submit
    for word, data, _ in ANSWERS:
        service.by_word[word] = [(200, data)]
    for word, status, data, _ in FAULTS:
        service.by_word[word] = [(status, data)] * 2
        service.by_word[f"{word}-once"] = [(status, data), (201, b'{"result": "second"}')]
    service.by_word["large"] = [(200, b'"' + b"x" * 1_000_001 + b'"')]
    service.by_word |= {"e400": [(400, b"bad symbol")], "e302": [(302, b"")]}
    good = {word: await submit("price", word) for word, _, _ in ANSWERS}
    often = {w: await submit("price", w, max_attempts=2, backoff=0) for w, *_ in FAULTS}
    once = {w: await submit("price", f"{w}-once", max_attempts=2, backoff=0) for w, *_ in FAULTS}
    final = {w: await submit("price", w, max_attempts=5) for w in ("e400", "e302", "large")}

    assert {word: await handle.result(20) for word, handle in good.items()} == {w: value for w, _, value in ANSWERS}
    for word, _, _, says in FAULTS:
        error = await failure(often[word])
        assert (error.status, says in error.error["message"]) == (Status.DEAD, True), (word, error.error)
        assert [call["attempt"] for call in service.calls(often[word].id)] == [1, 2]
        assert await once[word].result(20) == "second"
    for word, says in (("e400", "400: bad symbol"), ("e302", "302"), ("large", "larger than 1000000 bytes")):
        error = await failure(final[word])
        assert (error.status, says in error.error["message"]) == (Status.FAILED, True), (word, error.error)
        assert len(service.calls(final[word].id)) == 1


async def test_no_answer_at_all_is_a_failure_that_may_be_retried(shop: Workshop, service: Service) -> None:
    service.address = f"http://127.0.0.1:{servers.free_port()}"
    await register(shop, service)
    error = await failure(await shop.client.submit("price", max_attempts=2, backoff=0))
    assert (error.status, "ConnectError" in error.error["message"]) == (Status.DEAD, True)


async def test_timeout_and_cancel_close_the_call(shop: Workshop, service: Service) -> None:
    await register(shop, service)
    slow = await shop.client.submit("price", "hang", timeout=0.5)
    error = await failure(slow)
    assert error.status is Status.TIMEOUT
    await eventually(lambda: service.hung_up == 1, "the call is closed")
    handle = await shop.client.submit("price", "hang")
    await eventually(lambda: service.calls(handle.id), "the call")
    await handle.cancel()
    await shop.until(handle.id, "CANCELLED")
    await eventually(lambda: service.hung_up == 2, "the call is closed")


async def test_a_service_gets_no_more_calls_at_once_than_its_capacity(shop: Workshop, service: Service) -> None:
    await register(shop, service, capacity=2)
    handles = await shop.client.submit_many([("price", ("hang",))] * 5)
    await eventually(lambda: len(service.asked) == 2, "two calls")
    assert await (await shop.client.submit_many([("price", ("hang",))]))[0].status() == "QUEUED"
    assert len(service.asked) == 2
    service.let_go.set()
    assert [await handle.result(20) for handle in handles] == ["done"] * 5


async def test_a_service_registered_by_hand_as_in_the_seed_works(
    any_redis: servers.Server | servers.Cluster, key_prefix: str, service: Service
) -> None:
    async with workshop(any_redis.url, key_prefix) as shop:
        await register_by_hand(shop, service)
        first = await shop.client.submit("price", "oil")
        assert await first.result(20) == "done"
        handles = await shop.client.submit_many([("price", (n,)) for n in range(30)])
        assert [await handle.result(20) for handle in handles] == ["done"] * 30
        assert (await shop.task(first.id)).worker_id == "hand"


async def test_a_new_leader_calls_again_and_the_attempt_counts_once(shop: Workshop, service: Service) -> None:
    await register(shop, service)
    handle = await shop.client.submit("price", "hang")
    await eventually(lambda: service.calls(handle.id), "the call")
    await shop.stop(shop.schedulers[0])
    await eventually(lambda: service.hung_up == 1, "the old leader's call is closed")
    shop.start_scheduler("s2")
    await eventually(lambda: len(service.calls(handle.id)) == 2, "the new leader's call")
    first, second = service.calls(handle.id)
    assert (first["attempt"], second["attempt"]) == (1, 1)
    assert int(second["token"]) > int(first["token"])
    service.let_go.set()
    assert await handle.result(20) == "done"


async def test_a_service_whose_record_expires_loses_its_tasks_to_others(shop: Workshop, service: Service) -> None:
    await register_by_hand(shop, service, "wt_add", ttl_ms=60_000)
    handle = await shop.client.submit("wt_add", 3, 4)
    await eventually(lambda: service.calls(handle.id), "the call")
    assert await handle.result(20) == "done", "an answer in time counts"
    await register_by_hand(shop, service, "wt_hold", ttl_ms=60_000)
    handle = await shop.client.submit("wt_hold", "hang")
    await eventually(lambda: service.calls(handle.id), "the call")
    await shop.redis.pexpire(shop.keys.worker("hand"), 1)
    await eventually(lambda: service.hung_up == 1, "the call is closed")
    let_go["hang"].set()
    await shop.start_worker("w1")
    assert await handle.result(20) == "held"
    task = await shop.task(handle.id)
    assert (task.worker_id, task.stalls) == ("w1", 1)


async def test_a_record_that_makes_no_sense_does_not_stop_the_others(shop: Workshop, service: Service) -> None:
    """Whoever writes records by hand makes mistakes; the scheduler must outlive them."""
    redis, keys = shop.redis, shop.keys
    await redis.hset(keys.worker("odd"), mapping={"id": "odd", "address": "http://127.0.0.1:1", "capacity": "many"})
    await redis.hset(
        keys.worker("odd"), mapping={"last_heartbeat": "now", "supported_types": "[1", "started_ms": "nan"}
    )
    await redis.set(keys.worker("text"), "not a hash")
    await redis.sadd(keys.worker_type("price"), "odd", "text")
    await redis.sadd(keys.worker_types(), "price")
    await register_by_hand(shop, service)
    await shop.start_worker("w1")
    handle = await shop.client.submit("price", "oil")
    assert await (await shop.client.submit("wt_add", 1, 2)).result(20) == 3
    assert await handle.result(20) == "done"
    assert shop.schedulers[0].leads
    shown = {worker.id: worker for worker in await TaskControl(shop.plane).workers()}
    assert set(shown) == {"odd", "hand", "w1"}
    assert (shown["odd"].capacity, shown["odd"].types, shown["odd"].last_heartbeat) == (0, [], "")


async def test_a_service_registers_through_the_api(service: Service, tmp_path: Path) -> None:
    def post(url: str, body: Any) -> Any:
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    with station_process(tmp_path) as station:
        workers = f"{station.url}/api/v1/workers"
        body = {"id": "svc", "address": service.address, "types": ["price"], "capacity": 3}
        told = await asyncio.to_thread(post, workers, body)
        async with tradewind.connect(station.url) as tw:
            handle = await tw.submit("price", "oil")
            assert await handle.result(20) == "done"
            assert (await handle.view())["worker_id"] == "svc"
        beat = await asyncio.to_thread(post, f"{workers}/svc/heartbeat", {"generation": told["generation"]})
        assert beat == {"status": "active"}
        assert await asyncio.to_thread(station.stop) == 0


async def test_a_packed_answer_is_bounded_while_it_is_unpacked(shop: Workshop, service: Service) -> None:
    await register(shop, service)
    service.by_word["bomb"] = [(200, gzip.compress(b" " * 50_000_000, 9))]
    service.by_word["packed"] = [(200, gzip.compress(b'{"result": 7}'))]
    bomb = await shop.client.submit("price", "bomb", max_attempts=5)
    assert "larger than 1000000 bytes" in (await failure(bomb)).error["message"]
    assert len(service.calls(bomb.id)) == 1
    assert await (await shop.client.submit("price", "packed")).result(20) == 7


@pytest.mark.parametrize(
    "address", ["http://169.254.169.254", "http://[fd00:ec2::254]", "http://metadata.google.internal"]
)
async def test_no_call_goes_to_where_clouds_keep_credentials(shop: Workshop, address: str) -> None:
    nowhere = Service()
    nowhere.address = address
    await register(shop, nowhere)
    task = await failure(await shop.client.submit("price", "x", max_attempts=5))
    assert "no request goes there" in task.error["message"] and "http_workers_allow" in task.error["message"]


async def test_a_worker_on_this_machine_can_be_refused_and_no_proxy_is_asked(
    redis_7: servers.Server, key_prefix: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with workshop(redis_7.url, key_prefix) as shop:
        await register(shop, service)
        assert await (await shop.client.submit("price", "x")).result(20) == "done"
    async with workshop(redis_7.url, key_prefix + "2:", tasks={"http_workers_allow": []}) as shop:
        await register(shop, service)
        task = await failure(await shop.client.submit("price", "x"))
        assert "no request goes there" in task.error["message"]
        assert len(service.asked) == 1


async def test_a_spoilt_list_of_one_service_stops_neither_another_nor_the_leader(
    shop: Workshop, service: Service
) -> None:
    redis, keys = shop.redis, shop.keys
    await register(shop, service, "a-odd")
    await register_by_hand(shop, service, "tax")
    assert await (await shop.client.submit("price", "oil")).result(20) == "done"
    with structlog.testing.capture_logs() as logs:
        await redis.delete(keys.worker_inflight("a-odd"))
        await redis.set(keys.worker_inflight("a-odd"), "a string where a sorted set belongs")
        await eventually(lambda: any(_is_told(line) for line in logs), "it is told")
        assert await (await shop.client.submit("tax", "oil")).result(20) == "done"
        late = await shop.client.submit("price", "oil", deadline=int(time.time() * 1000) + 500, delay=60)
        await eventually(lambda: _ended(shop, late.id), "what the leader does after looking at each worker")
    assert shop.schedulers[0].leads


def _is_told(line: MutableMapping[str, Any]) -> bool:
    return line.get("worker") == "a-odd" and line["log_level"] == "error"


async def _ended(shop: Workshop, task_id: str) -> bool:
    return (await shop.task(task_id)).is_terminal
