"""A program and its station: by Redis URL, by data folder, through the API; awaiting and blocking; one contract."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

import tradewind
from tests import servers
from tests.cli.conftest import StationProcess, station_process
from tests.tasks.worker_tasks import wt_add
from tests.tasks.workshop import eventually, workshop
from tradewind.errors import Conflict, Invalid, NotFound, TimedOut, TradewindError, Unavailable
from tradewind.tasks.builtin import echo
from tradewind.tasks.client import BlockingHandle, Client, Connection, Handle, TaskFailed
from tradewind.tasks.gate import RedisGate
from tradewind.tasks.record import Status

QUICK = {"redis.dial_timeout_s": 1}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRADEWIND_REDIS_URL", "TRADEWIND_DATA_DIR", "TRADEWIND_URL", "TRADEWIND_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StationProcess]:
    with station_process(tmp_path_factory.mktemp("station")) as station:
        yield station


@pytest.fixture(params=["redis", "folder", "http"])
async def tw(request: pytest.FixtureRequest, key_prefix: str) -> AsyncIterator[Client]:
    """A client of a running station, connected in each of the ways."""
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "redis":
            url = request.getfixturevalue("redis_7").url
            shop = await stack.enter_async_context(workshop(url, key_prefix))
            await shop.start_worker(types=["echo", "sleep", "fail"])
            connection = tradewind.connect(url, key_prefix=key_prefix)
        else:
            station: StationProcess = request.getfixturevalue("station")
            connection = tradewind.connect(station.data if request.param == "folder" else station.url)
        client = await connection.open()
        stack.push_async_callback(client.close)
        yield client


async def test_a_result_comes_back(tw: Client) -> None:
    handle = await tw.submit("echo", {"a": [1, None, "ü"]}, priority="high", tags=["one"])
    assert await handle.result(timeout=10) == {"a": [1, None, "ü"]}
    assert await handle.status() is Status.SUCCESS
    view = await handle.view()
    assert (view["id"], view["type"], view["priority"], view["tags"]) == (handle.id, "echo", "high", ["one"])
    assert await tw.task(handle.id).result(timeout=10) == {"a": [1, None, "ü"]}
    assert await (await tw.submit("echo", value="named")).result(timeout=10) == "named"


async def test_a_failure_says_how_and_why(tw: Client) -> None:
    handle = await tw.submit("fail", "on purpose")
    with pytest.raises(TaskFailed, match="RuntimeError: on purpose") as caught:
        await handle.result(timeout=10)
    assert (caught.value.task_id, caught.value.status) == (handle.id, Status.FAILED)
    assert caught.value.error["message"] == "on purpose"
    with pytest.raises(Conflict) as ended:
        await handle.cancel()
    assert ended.value.code == "already_ended"
    assert (await handle.retry())["status"] in ("QUEUED", "ASSIGNED", "PROCESSING", "FAILED")
    with pytest.raises(TaskFailed):
        await handle.result(timeout=10)


async def test_waiting_has_an_end_and_the_task_goes_on(tw: Client) -> None:
    handle = await tw.submit("sleep", 60)
    began = time.monotonic()
    with pytest.raises(TimedOut, match=handle.id):
        await handle.result(timeout=0.2)
    assert 0.15 < time.monotonic() - began < 5
    await eventually(lambda: _is(handle, "PROCESSING"), "start")
    await handle.cancel()
    with pytest.raises(TaskFailed) as caught:
        await handle.result(timeout=10)
    assert caught.value.status is Status.CANCELLED


async def _is(handle: Handle, status: str) -> bool:
    return await handle.status() == status


@pytest.mark.parametrize(
    ("call", "code", "path"),
    [
        ((("ecko",), {}), "unknown_type", "type"),
        ((("echo", 1, 2), {}), "too_many_args", "args[1]"),
        ((("sleep", "long"), {}), "wrong_type", "args[0]"),
        ((("echo", 1), {"delay": -1}), "out_of_range", "delay_s"),
    ],
)
async def test_bad_input_is_refused_with_its_problem(tw: Client, call: Any, code: str, path: str) -> None:
    args, options = call
    with pytest.raises(Invalid) as caught:
        await tw.submit(*args, **options)
    assert [(p.code, p.path) for p in caught.value.problems] == [(code, path)]
    assert caught.value.problems[0].hint
    if code == "unknown_type":
        assert "echo" in caught.value.problems[0].hint


@pytest.mark.parametrize(
    ("value", "code"),
    [(float("nan"), "not_finite"), ({1.5, float("inf")}, "not_finite"), (object(), "not_json"), ("\ud800", "not_json")],
)
async def test_what_is_not_json_is_refused_on_every_way(tw: Client, value: Any, code: str) -> None:
    for submit in (tw.submit("echo", value), tw.submit_many([("echo", (1,)), ("echo", (value,))])):
        with pytest.raises(Invalid) as caught:
            await submit
        assert caught.value.code == code


async def test_an_idempotency_key_brings_the_same_task(tw: Client) -> None:
    key = f"key-{time.monotonic_ns()}"
    first = await tw.submit("echo", 1, idempotency_key=key)
    assert (await tw.submit("echo", 1, idempotency_key=key)).id == first.id
    with pytest.raises(Conflict) as caught:
        await tw.submit("echo", 2, idempotency_key=key)
    assert (caught.value.code, key in caught.value.message) == ("idempotency_mismatch", True)


async def test_an_id_may_be_chosen_once(tw: Client) -> None:
    name = f"mine-{time.monotonic_ns()}"
    assert (await tw.submit("echo", 1, task_id=name)).id == name
    with pytest.raises(Conflict) as caught:
        await tw.submit("echo", 2, task_id=name)
    assert caught.value.code == "id_taken"


async def test_many_plain_calls_keep_their_order(tw: Client) -> None:
    handles = await tw.submit_many([("echo", (n,)) for n in range(1500)])
    assert len({handle.id for handle in handles}) == 1500
    assert [await handles[n].result(timeout=20) for n in (0, 999, 1000, 1499)] == [0, 999, 1000, 1499]
    assert await tw.submit_many([]) == []


async def test_many_calls_may_differ(tw: Client) -> None:
    handles = await tw.submit_many([("echo",), ("echo", ("a",)), ("echo", (), {"value": 2, "tags": ["x"]}), ("fail",)])
    assert [await handle.result(timeout=10) for handle in handles[:3]] == [None, "a", 2]
    assert (await handles[2].view())["tags"] == ["x"]
    with pytest.raises(TaskFailed):
        await handles[3].result(timeout=10)


@pytest.mark.parametrize("args", ["hi", 5, {"value": 1}])
async def test_arguments_of_many_calls_are_lists(tw: Client, args: Any) -> None:
    with pytest.raises(Invalid) as caught:
        await tw.submit_many([("echo", args), ("echo", range(1))])
    assert [(p.code, p.path) for p in caught.value.problems] == [("not_a_list", "tasks[0].args")]


async def test_one_bad_call_keeps_its_whole_batch_out(tw: Client) -> None:
    name = f"batch-{time.monotonic_ns()}"
    with pytest.raises(Invalid) as caught:
        await tw.submit_many([("echo", (1,), {"task_id": name}), ("echo", (1, 2))])
    assert [p.path for p in caught.value.problems] == ["tasks[1].args[1]"]
    with pytest.raises(NotFound) as missing:
        await tw.task(name).view()
    assert missing.value.code == "task_not_found"


@pytest.mark.parametrize("way", ["folder", "http"])
def test_the_blocking_twin_does_the_same(station: StationProcess, way: str) -> None:
    with tradewind.connect(station.data if way == "folder" else station.url) as tw:
        handle = tw.submit("echo", "hi")
        assert isinstance(handle, BlockingHandle)
        assert handle.result(timeout=10) == "hi"
        assert (handle.status(), handle.view()["id"]) == (Status.SUCCESS, handle.id)
        assert tw.task(handle.id).result(timeout=10) == "hi"
        assert [h.result(timeout=10) for h in tw.submit_many([("echo", (n,)) for n in range(3)])] == [0, 1, 2]
        failed = tw.submit("fail")
        with pytest.raises(TaskFailed):
            failed.result(timeout=10)
        failed.retry()
        slow = tw.submit("sleep", 60)
        with pytest.raises(TimedOut):
            slow.result(timeout=0.1)
        slow.cancel()
        with pytest.raises(TaskFailed):
            slow.result(timeout=10)
        with pytest.raises(Invalid):
            tw.submit("ecko")
        assert repr(handle) == f"<task {handle.id}>"
    assert _client_threads() == 0


def _client_threads() -> int:
    return sum(thread.name == "tradewind-client" for thread in threading.enumerate())


def test_many_threads_may_share_a_blocking_connection(station: StationProcess) -> None:
    found: list[int] = []
    with tradewind.connect(station.data) as tw:
        threads = [
            threading.Thread(target=lambda n=n: found.append(tw.submit("echo", n).result(timeout=20)))  # type: ignore[misc]
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(found) == list(range(8))


async def test_functions_submit_themselves_through_the_open_connection(station: StationProcess) -> None:
    async with tradewind.connect(station.data):
        handle = await echo.submit("from async")
        assert isinstance(handle, Handle)
        assert await handle.result(timeout=10) == "from async"
    with pytest.raises(Invalid, match="no connection"):
        echo.submit("too late")


def test_functions_submit_themselves_through_a_blocking_connection(station: StationProcess) -> None:
    with tradewind.connect(station.url):
        assert echo.submit("blocking", priority="high").result(timeout=10) == "blocking"
    with pytest.raises(Invalid, match="no connection"):
        echo.submit("too late")


def test_without_an_address_the_settings_decide(station: StationProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_DATA_DIR", str(station.data))
    with tradewind.connect() as tw:
        assert tw.submit("echo", 1).result(timeout=10) == 1


@pytest.mark.parametrize("scheme", ["redis", "http"])
async def test_nothing_there_is_said_within_seconds(scheme: str) -> None:
    connection = tradewind.connect(f"{scheme}://127.0.0.1:{servers.free_port()}", **QUICK)
    began = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        async with connection:
            pass
    assert caught.value.hint and "127.0.0.1" in caught.value.message
    assert time.monotonic() - began < 5
    with pytest.raises(Unavailable):
        await asyncio.to_thread(Connection.__enter__, tradewind.connect(connection._url, **QUICK))
    assert _client_threads() == 0


def test_a_folder_without_a_station_is_said(tmp_path: Any) -> None:
    with pytest.raises(NotFound) as caught:
        tradewind.connect(tmp_path)
    assert (caught.value.code, "tradewind up" in caught.value.hint) == ("no_station", True)


async def test_a_hundred_thousand_tasks_get_ids_of_their_own_and_a_dead_server_is_noticed() -> None:
    with servers.redis_server() as server:
        async with tradewind.connect(server.url, **QUICK) as tw:
            handles = await tw.submit_many([("wt_add", (n,)) for n in range(100_000)])
            assert len({handle.id for handle in handles}) == 100_000
            view = await handles[77_777].view()
            assert (view["args"], view["status"]) == ([77_777], "QUEUED")
            server.kill()
            began = time.monotonic()
            with pytest.raises(Unavailable):
                await wt_add.submit(1)
            with pytest.raises(TradewindError):
                await handles[0].result(timeout=1)
            assert time.monotonic() - began < 20


async def test_with_results_off_a_success_leaves_nothing_and_a_failure_its_letter(
    redis_7: servers.Server, key_prefix: str
) -> None:
    async with workshop(redis_7.url, key_prefix, tasks={"result_ttl_s": 0}) as shop:
        await shop.start_worker(types=["echo", "fail", "sleep"])
        handle = await shop.client.submit("sleep", 0.05)
        with pytest.raises(NotFound) as caught:
            await handle.result(timeout=10)
        assert "result_ttl_s" in caught.value.hint
        assert await shop.redis.exists(shop.keys.task(handle.id), shop.keys.body(handle.id)) == 0
        failed = await shop.client.submit("fail")
        with pytest.raises(TaskFailed):
            await failed.result(timeout=10)
        assert await shop.redis.ttl(shop.keys.task(failed.id)) > 6 * 86_400


async def test_a_user_that_may_not_subscribe_still_gets_results(key_prefix: str) -> None:
    with servers.redis_server() as server:
        with redis.Redis(port=server.port) as admin:
            admin.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "resetchannels")
        async with workshop(server.url, key_prefix) as shop:
            await shop.start_worker(types=["sleep"])
            url = f"redis://limited:pw@127.0.0.1:{server.port}"
            async with tradewind.connect(url, key_prefix=key_prefix) as tw, asyncio.timeout(20):
                assert await (await tw.submit("sleep", 0.1)).result(timeout=15) == 0.1


async def test_nobody_asks_to_be_told_before_the_ear_is_open(
    redis_7: servers.Server, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        gate = shop.client._gate
        assert isinstance(gate, RedisGate)
        ask, was_open = gate._store.wait, []

        async def noted(*args: Any) -> Any:
            was_open.append(await shop.redis.pubsub_numsub(shop.keys.reply(gate._client_id)))
            return await ask(*args)

        monkeypatch.setattr(gate._store, "wait", noted)
        await shop.start_worker()
        handles = [await shop.client.submit("wt_add", n) for n in range(5)]
        assert await asyncio.gather(*(handle.result(10) for handle in handles)) == list(range(5))
        assert was_open and all(found[0][1] == 1 for found in was_open)


async def test_two_may_wait_for_one_task(redis_7: servers.Server, key_prefix: str) -> None:
    async with workshop(redis_7.url, key_prefix) as shop:
        await shop.start_worker(types=["sleep"])
        async with tradewind.connect(redis_7.url, key_prefix=key_prefix) as other:
            handle = await shop.client.submit("sleep", 0.3)
            waits = [handle.result(10), handle.result(10), other.task(handle.id).result(10)]
            assert await asyncio.gather(*waits) == [0.3] * 3
