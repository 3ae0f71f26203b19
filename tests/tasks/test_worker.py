"""The worker as a whole: shares, routes, locks, leases, drain, and what it does when replies are lost."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
import structlog

from tests import servers
from tests.lifetimes import lives
from tests.tasks.worker_tasks import let_go, notes
from tests.tasks.workshop import Workshop, eventually, workshop
from tradewind.errors import Unavailable
from tradewind.tasks.plane import LOCK_MS
from tradewind.tasks.record import Status
from tradewind.tasks.worker_store import Ending, Taken, WorkerStore


@pytest.fixture
async def shop(any_redis: servers.Server | servers.Cluster, key_prefix: str) -> AsyncIterator[Workshop]:
    async with workshop(any_redis.url, key_prefix) as shop:
        yield shop


@pytest.fixture
async def shop_7(redis_7: servers.Server, key_prefix: str) -> AsyncIterator[Workshop]:
    """For what does not depend on the server."""
    async with workshop(redis_7.url, key_prefix) as shop:
        yield shop


@pytest.fixture
def key() -> str:
    return secrets.token_hex(4)


async def test_two_workers_share_the_load(shop: Workshop, key: str) -> None:
    await shop.start_worker("w1", capacity=5)
    await shop.start_worker("w2", capacity=5)
    handles = await shop.client.submit_many([("wt_hold", (key,))] * 10)
    await eventually(lambda: len(notes[key]) == 10, "all ten run")
    tasks = [await shop.task(handle.id) for handle in handles]
    assert Counter(task.worker_id for task in tasks) == {"w1": 5, "w2": 5}
    let_go[key].set()
    assert [await handle.result(10) for handle in handles] == ["held"] * 10


async def test_a_worker_never_runs_more_than_its_capacity(shop_7: Workshop, key: str) -> None:
    worker = await shop_7.start_worker(capacity=3)
    handles = await shop_7.client.submit_many([("wt_hold", (key,))] * 8)
    await eventually(lambda: len(notes[key]) == 3, "three run")
    sample = await shop_7.client.submit("wt_hold", key)
    assert (worker.running, len(notes[key])) == (3, 3)
    let_go[key].set()
    for handle in (*handles, sample):
        await handle.result(10)
    assert len(notes[key]) == 9


async def test_labels_lead_to_the_workers_that_have_them_all(shop: Workshop) -> None:
    await shop.start_worker("plain")
    await shop.start_worker("gpu", labels=["gpu"])
    await shop.start_worker("both", labels=["gpu", "north"])
    submit = shop.client.submit
    for labels, allowed in ((["gpu"], {"gpu", "both"}), (["gpu", "north"], {"both"}), ([], {"plain", "gpu", "both"})):
        handle = await submit("wt_add", 1, labels=labels)
        await handle.result(10)
        assert (await shop.task(handle.id)).worker_id in allowed
    waits = await submit("wt_add", 1, labels=["moon"])
    await eventually(lambda: shop.redis.exists(shop.keys.parking("normal", "wt_add@moon")), "parked")
    assert await shop.status(waits.id) == "QUEUED"
    await shop.start_worker("luna", labels=["moon"])
    assert await waits.result(10) == 1


async def test_tasks_of_one_lock_never_overlap_across_workers(shop: Workshop, key: str) -> None:
    await shop.start_worker("w1")
    await shop.start_worker("w2")
    calls = [("wt_one_at_a_time", (key, 0.01), {"exclusive": f"lock-{key}"})] * 4
    handles = await shop.client.submit_many(calls)
    for handle in handles:
        await handle.result(20)
    assert notes[f"{key} overlaps"] == []
    assert sorted(notes[key]) == sorted(handle.id for handle in handles)
    assert not await shop.redis.exists(shop.keys.lock(f"lock-{key}"))
    assert await shop.redis.scard(shop.keys.marked()) == 0


async def test_an_exclusive_task_holds_the_lock_of_the_seed_while_it_runs(shop: Workshop, key: str) -> None:
    await shop.start_worker("w1")
    handle = await shop.client.submit("wt_hold", key, exclusive=True)
    await eventually(lambda: notes[key], "start")
    name = shop.keys.lock(handle.id)
    assert await shop.redis.get(name) == b"w1"
    await lives(shop.redis, name, LOCK_MS / 1000)
    await shop.redis.pexpire(name, 20_000)
    await eventually(lambda: _more_than(shop, name, 100_000), "the lock is renewed with the lease")
    let_go[key].set()
    await handle.result(10)
    assert not await shop.redis.exists(name)


async def _more_than(shop: Workshop, name: str, ms: int) -> bool:
    return bool(await shop.redis.pttl(name) > ms)


async def test_a_cancelled_exclusive_task_leaves_no_lock(shop_7: Workshop, key: str) -> None:
    await shop_7.start_worker("w1")
    handle = await shop_7.client.submit("wt_hold", key, exclusive="gate")
    await eventually(lambda: notes[key], "start")
    await handle.cancel()
    await shop_7.until(handle.id, "CANCELLED")
    assert not await shop_7.redis.exists(shop_7.keys.lock("gate"))


async def test_a_worker_that_stops_finishes_what_runs_and_leaves_nothing(shop: Workshop, key: str) -> None:
    worker = await shop.start_worker("w1", capacity=2)
    handles = await shop.client.submit_many([("wt_hold", (key,))] * 2)
    await eventually(lambda: len(notes[key]) == 2, "both run")
    stopping = asyncio.create_task(shop.stop(worker))
    await eventually(lambda: _field(shop, "w1", "status", b"draining"), "draining")
    late = await shop.client.submit("wt_add", 1)
    let_go[key].set()
    await stopping
    assert [await handle.result(10) for handle in handles] == ["held"] * 2
    assert await shop.status(late.id) == "QUEUED", "a draining worker gets nothing new"
    names = [shop.keys.worker("w1"), shop.keys.worker_queue("w1"), shop.keys.worker_inflight("w1")]
    assert await shop.redis.exists(*names, shop.keys.worker_type("wt_hold"), shop.keys.workers()) == 0
    await shop.start_worker("w2")
    assert await late.result(10) == 1


async def _field(shop: Workshop, worker_id: str, field: str, value: bytes) -> bool:
    return bool(await shop.redis.hget(shop.keys.worker(worker_id), field) == value)


@pytest.mark.parametrize("kind", ["wt_hold", "wt_thread_hold"])
async def test_what_the_grace_time_interrupts_goes_back_without_counting_an_attempt(
    any_redis: servers.Server | servers.Cluster, key_prefix: str, key: str, kind: str
) -> None:
    async with workshop(any_redis.url, key_prefix, worker={"grace_s": 0.1}) as shop:
        worker = await shop.start_worker("w1")
        handle = await shop.client.submit(kind, key, max_attempts=1)
        await eventually(lambda: notes[key], "start")
        await shop.stop(worker)
        task = await shop.task(handle.id)
        assert (task.status, task.attempt, task.stalls, task.worker_id) == (Status.QUEUED, 0, 0, "")
        let_go[key].set()
        await shop.start_worker("w2")
        assert await handle.result(10) == "held"
        task = await shop.task(handle.id)
        assert (task.attempt, task.worker_id) == (1, "w2")


async def test_a_take_whose_reply_was_lost_is_given_back(shop: Workshop, key: str) -> None:
    """Somebody takes with the worker's own generation and forgets: as if the reply had never arrived."""
    worker = await shop.start_worker("w1", capacity=1)
    blocker = await shop.client.submit("wt_hold", key)
    await eventually(lambda: notes[key], "start")
    await shop.redis.hset(shop.keys.worker("w1"), "window", 5)
    lost = await shop.client.submit("wt_add", 20, 1)
    await shop.until(lost.id, "ASSIGNED")
    (taken,) = await worker.store.take(5)
    assert taken.id == lost.id
    let_go[key].set()
    assert await lost.result(15) == 21
    task = await shop.task(lost.id)
    assert (task.attempt, task.stalls) == (2, 1), "nobody knows how the lost one ended: a stall"
    assert await blocker.result(10) == "held"


async def test_a_lost_worker_drops_its_tasks_joins_again_and_works_on(shop: Workshop, key: str) -> None:
    worker = await shop.start_worker("w1")
    first = worker.store.generation
    handle = await shop.client.submit("wt_hold", key)
    await eventually(lambda: notes[key], "start")
    await shop.redis.delete(shop.keys.worker("w1"))
    await eventually(lambda: worker.store.generation != first and worker.is_registered, "second registration")
    await eventually(lambda: notes[key].count(handle.id) == 2, "the task runs again")
    assert notes[key][:2] == [handle.id, "stopped"]
    let_go[key].set()
    assert await handle.result(10) == "held"
    task = await shop.task(handle.id)
    assert (task.stalls, task.attempt) == (1, 2)
    assert await (await shop.client.submit("wt_add", 3)).result(10) == 3


async def test_a_worker_that_crashes_is_evicted_and_another_finishes(
    redis_7: servers.Server, key_prefix: str, key: str
) -> None:
    async with workshop(redis_7.url, key_prefix, scheduler_={"lease_s": 1.0}) as shop:
        crashed = await shop.start_worker("w1", ["wt_hold"])
        handle = await shop.client.submit("wt_hold", key, exclusive="gate")
        await eventually(lambda: notes[key], "start")
        await shop.crash(crashed)
        let_go[key].set()
        await shop.start_worker("w2", ["wt_hold"])
        assert await handle.result(15) == "held"
        task = await shop.task(handle.id)
        assert (task.worker_id, task.stalls, task.attempt) == ("w2", 1, 2)
        assert await shop.redis.zrange(shop.keys.workers(), 0, -1) == [b"w2"]


async def test_short_tasks_widen_the_window_and_long_ones_close_it(shop_7: Workshop, key: str) -> None:
    await shop_7.start_worker("w1", capacity=4)
    handles = await shop_7.client.submit_many([("wt_add", (n,)) for n in range(400)])
    await handles[-1].result(20)
    await eventually(lambda: _has_window(shop_7, True), "a window for short tasks")
    holds = [await shop_7.client.submit("wt_one_at_a_time", f"{key}{n}", 0.3) for n in range(8)]
    for handle in holds:
        await handle.result(20)
    await eventually(lambda: _has_window(shop_7, False), "no window for long tasks")


async def _has_window(shop: Workshop, is_open: bool) -> bool:
    return (int(await shop.redis.hget(shop.keys.worker("w1"), "window") or 0) > 0) == is_open


async def test_many_tasks_of_every_kind_end_once_each(shop: Workshop) -> None:
    await shop.start_worker("w1")
    await shop.start_worker("w2")
    calls = [("wt_add", (n,)) for n in range(300)] + [("wt_thread_add", (n,)) for n in range(100)]
    handles = await shop.client.submit_many([*calls, ("wt_never",), ("wt_abort",)])
    for number, handle in enumerate(handles[:300]):
        assert await handle.result(30) == number
    await shop.until(handles[-1].id, "FAILED")
    await shop.until(handles[-2].id, "DEAD")
    for number, handle in enumerate(handles[300:400]):
        assert (await handle.result(30))["sum"] == number
    names = ["success", "failed", "dead"]
    counts = await shop.redis.mget([shop.keys.metric_task_count(name) for name in names])
    assert [int(count) for count in counts] == [400, 1, 1]


async def test_a_worker_waits_for_a_server_that_is_not_there_yet(key_prefix: str) -> None:
    with servers.redis_server(appendonly=True) as server:
        async with workshop(server.url, key_prefix, scheduler=False) as shop:
            server.stop()
            worker = shop.new_worker()
            shop._start(worker, worker.run)
            shop.start_scheduler()
            await asyncio.sleep(0)
            assert not worker.is_registered
            server.start()
            await eventually(lambda: worker.is_registered, "registration", 30)
            assert await (await shop.client.submit("wt_add", 7)).result(20) == 7


async def test_results_wait_for_a_redis_that_is_away(key_prefix: str, key: str) -> None:
    """They are known here only: what has ended is not run again."""
    with servers.redis_server(appendonly=True) as server:
        async with workshop(server.url, key_prefix, redis={"max_retries": 0}) as shop:
            worker = await shop.start_worker()
            handles = [await shop.client.submit("wt_hold", key) for _ in range(3)]
            await eventually(lambda: len(notes[key]) == 3, "start")
            server.kill()
            with structlog.testing.capture_logs() as told:
                let_go[key].set()
                await eventually(lambda: any(line["event"] == "results wait for Redis" for line in told), "a commit")
            assert worker.running == 0
            server.start()
            assert [await handle.result(20) for handle in handles] == ["held"] * 3
            tasks = [await shop.task(handle.id) for handle in handles]
            assert [(task.attempt, task.stalls) for task in tasks] == [(1, 0)] * 3
            assert len(notes[key]) == 3


class HookedRoom:
    """Commits as the task room does; the first call fails."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def finish(
        self, store: WorkerStore, endings: Sequence[Ending], capacity: int
    ) -> tuple[list[int], list[Taken]]:
        self.calls.append([ending.id for ending in endings])
        if len(self.calls) == 1:
            raise Unavailable("gone")
        return await store.finish(endings), []


async def test_a_batch_of_plain_and_hooked_endings_is_committed_by_each_room_and_counts_once(
    shop_7: Workshop, key: str
) -> None:
    handles = [await shop_7.client.submit("wt_hold", key) for _ in range(6)]
    ids = [handle.id for handle in handles]
    for task_id in ids[1::2]:
        await shop_7.redis.hset(shop_7.keys.task(task_id), mapping={"hook": "test", "x": "1"})
    room = HookedRoom()
    worker = await shop_7.start_worker(rooms={"test": room})
    await eventually(lambda: len(notes[key]) == 6, "start")
    held = {task_id: token for task_id, token, _ in await worker.store.sync()}
    with structlog.testing.capture_logs() as told:
        async with worker._commit_turn:
            let_go[key].set()
            await eventually(lambda: len(worker._slots.endings) == 6, "six endings in one batch")
            worker._slots.endings.sort(key=lambda ending: ids.index(ending.id))
            for task_id in ids[2:4]:  # others have these two by now
                assert await worker.store.release([(task_id, held[task_id])], queue_too=False)
        await eventually(lambda: notes[key].count(ids[2]) == notes[key].count(ids[3]) == 2, "the two run again")
        assert [await handle.result(10) for handle in handles] == ["held"] * 6
    assert [line["task"] for line in told if line["event"].startswith("result refused")] == ids[2:4]
    assert room.calls[0][:3] == room.calls[1][:3] == ids[1::2] and {*itertools.chain(*room.calls)} == {*ids[1::2]}
    assert int(await shop_7.redis.get(shop_7.keys.metric_task_count("success"))) == 6


@pytest.mark.parametrize("spoilt", ["inflight", "control"])
async def test_a_spoilt_record_of_a_worker_does_not_end_it(shop_7: Workshop, key: str, spoilt: str) -> None:
    redis, keys = shop_7.redis, shop_7.keys
    await shop_7.start_worker("w1")
    if spoilt == "control":
        for word in (b"\xff\xfe", b"", b":", b"cancel:\xff"):
            await redis.publish(keys.control("w1"), word)
    else:
        name = keys.worker_inflight("w1")
        with structlog.testing.capture_logs() as logs:
            await redis.delete(name)
            await redis.set(name, "mine")
            await eventually(lambda: any(line["event"] == "unexpected_error" for line in logs), "it is logged")
        await redis.delete(name)
    handle = await shop_7.client.submit("wt_hold", key)
    let_go[key].set()
    assert await handle.result(15) == "held"
