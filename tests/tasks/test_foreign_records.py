"""Records and members that a hand in redis-cli has spoilt, or another program wrote: all others are served."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from tests.servers import Server
from tests.tasks.room import Room, ending, limited
from tradewind.cli.examine_indexes import definitions
from tradewind.clock import FakeClock
from tradewind.errors import Unavailable
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.tasks.http_worker import HttpDispatch
from tradewind.tasks.listing import TaskListing
from tradewind.tasks.offers import Offers
from tradewind.tasks.periodic import Periodic, Schedule, ScheduleStore
from tradewind.tasks.sweep import TaskSweep
from tradewind.tasks.waiting import Wanted, fill, reasons
from tradewind.tasks.worker_store import WorkerStore


@pytest.fixture
async def room(redis_7: Server, key_prefix: str) -> AsyncIterator[Room]:
    link: Link = await open_link(RedisSettings(url=redis_7.url))
    settings = Settings.model_validate({"key_prefix": key_prefix, "scheduler": {"lease_s": 9, "heartbeat_ttl_s": 20}})
    yield Room(link, settings, FakeClock())
    await link.close()


async def _spoilt(room: Room, state: str) -> str:
    """A task in that state."""
    if state in ("PENDING", "RETRYING"):
        task_id = await room.submit("a", delay_s=1)
        await room.redis.hset(room.keys.task(task_id), "status", state)
        return task_id
    task_id = await room.submit("a", timeout_s=2)
    if state != "QUEUED":
        worker = await room.join("lost", ["a"], capacity=1)
        await room.assign()
        if state == "PROCESSING":
            await worker.take(5)
    return task_id


async def _all_verbs(room: Room) -> None:
    """What the leader does in some seconds, until the lost worker is evicted."""
    leader = await room.leader()
    for _ in range(3):
        await leader.assign(100)
        await leader.expire()
        for worker in await leader.live_workers():
            await leader.reap(worker)
        for worker in await leader.expired_workers():
            await leader.evict(worker)
        await leader.write_metrics()
        room.clock.advance(10)
        await room.redis.delete(room.keys.worker("lost"))
    await leader.sweep()


async def _serves(room: Room, name: str = "w") -> None:
    """A worker gets and ends a task, whatever else is there."""
    worker: WorkerStore = await room.join(name, ["a", "b"], capacity=50)
    sent = {await room.submit("b"), await room.submit("b")}  # a worker with a spoilt record has room for one of them
    taken = {each.id: each for each in await room.start(worker)}
    mine = sent & set(taken)
    assert mine
    assert await worker.finish([ending(taken[each]) for each in mine]) == [1] * len(mine)


@pytest.mark.parametrize("state", ["QUEUED", "PENDING", "ASSIGNED", "PROCESSING"])
async def test_a_task_with_a_spoilt_field_holds_up_nobody(room: Room, state: str) -> None:
    names = ("type", "status", "pri", "at", "due", "ddl", "tmo", "worker", "start", "n", "tok", "stalls", "max", "lab")
    for field in names:
        for word in (None, "soon"):
            task_id = await _spoilt(room, state)
            key = room.keys.task(task_id)
            await room.redis.hset(key, "x", "1")
            await (room.redis.hdel(key, field) if word is None else room.redis.hset(key, field, word))
            await room.redis.zadd(room.keys.deadlines(), {task_id: 1})
            await _all_verbs(room)
            await _serves(room)
            await room.redis.delete(key)


@pytest.mark.parametrize("field", ["capacity", "window", "status", "gen", "labels", "supported_types"])
async def test_a_worker_with_a_spoilt_field_holds_up_nobody(room: Room, field: str) -> None:
    await room.join("odd", ["a", "b"], capacity=1)
    await room.redis.hset(room.keys.worker("odd"), field, "many")
    await _serves(room)
    await room.redis.hdel(room.keys.worker("odd"), field)
    await _serves(room)


@pytest.mark.parametrize("kind", ["task", "worker", "queue", "inflight"])
async def test_a_record_of_another_type_holds_up_nobody(room: Room, kind: str) -> None:
    task_id = await room.submit("a")
    await room.join("odd", ["a", "b"], capacity=1)
    keys = {"task": room.keys.task(task_id), "worker": room.keys.worker("odd")}
    keys |= {"queue": room.keys.worker_queue("odd"), "inflight": room.keys.worker_inflight("odd")}
    key = keys[kind]
    await room.redis.delete(key)
    await room.redis.set(key, "mine")
    await _serves(room)


async def test_members_that_are_none_hold_up_nobody(room: Room) -> None:
    redis, keys = room.redis, room.keys
    for odd in (b"odd", b"low:a", b"\xff\xfe", b""):
        await redis.sadd(keys.parked(), odd)
        await redis.sadd(keys.paused(), odd)
        await redis.sadd(keys.worker_types(), odd)
        await redis.sadd(keys.worker_type("b"), odd)
        await redis.lpush(keys.queue("normal"), odd)
        await redis.zadd(keys.delayed(), {odd: 1})
        await redis.zadd(keys.deadlines(), {odd: 1})
        await redis.zadd(keys.workers(), {odd: 1})
    for value in ("", "many", "5", "5:0", "x:y"):
        await redis.hset(keys.rate_config(), f"t{value}", value)
    await _all_verbs(room)
    await _serves(room)


async def test_odd_names_fail_no_view(room: Room) -> None:
    redis, keys = room.redis, room.keys
    await room.join("w", ["a"])
    task_id = await room.submit("b")
    await redis.zadd(keys.dead(), {b"\xff\xfe": 1})
    await redis.set(keys.leader(), b"\xff\xfe")
    digest = (await redis.hget(keys.worker("w"), "offer")).decode()
    for odd in (b"odd", b"low:a", b"\xff\xfe", b"normal:\xff", b""):
        await redis.sadd(keys.parked(), odd)
        await redis.sadd(keys.paused(), odd)
        await redis.sadd(keys.worker_types(), odd)
        await redis.sadd(keys.worker_type("b"), odd)
        await redis.zadd(keys.workers(), {odd: 1})
        await redis.hset(keys.types(), odd, odd)
        await redis.hset(keys.offer(digest), odd, odd)
    await redis.set(keys.worker_queue("w"), "a string where a list belongs")
    views = [task.view() for task in await room.store.read([task_id]) if task is not None]
    await fill(room.plane, views)
    assert views[0]["waiting_for"] == "no live worker supports type 'b'"
    assert "a" in await room.control.types()
    assert {queue.name: queue.length for queue in await room.control.queues()}["normal"] == 1
    assert [(worker.id, worker.queued) for worker in await room.control.workers()] == [("w", 0)]
    assert [offer.worker_id for offer in await Offers(room.plane).read()] == ["w"]
    assert await HttpDispatch(room.plane)._addresses() == {}
    assert (await TaskListing(room.store).dead()).items == []
    await room.control.leader()


#: What asks for the records of workers, and takes one that is not there for one that is gone.
ASKS: dict[str, Callable[[Room], Awaitable[object]]] = {
    "waiting": lambda room: reasons(room.plane, [Wanted("a")]),
    "offers": lambda room: Offers(room.plane).read(),
    "workers": lambda room: room.control.workers(),
    "http": lambda room: HttpDispatch(room.plane)._addresses(),
}


@pytest.mark.parametrize("ask", ASKS)
async def test_a_server_that_cannot_answer_has_not_said_that_no_worker_lives(room: Room, ask: str) -> None:
    await room.join("w", ["a"])
    prefix = room.keys.p
    names = ("scheduler:leader", "queue:*", "workers", "worker:type*")
    async with limited(room, [f"~{prefix}{name}" for name in names]) as other:
        with pytest.raises(Unavailable):
            await ASKS[ask](other)


#: Definitions that decode, or do not, and no slot follows from.
SCHEDULES = (
    b"", b"[]", b"\xff\xfe", b'{"name":"odd","type":"t"}', b'{"name":"odd","type":"t","cron":"x"}',
    b'{"name":"odd","type":"t","cron":"0 0 30 2 *"}', b'{"name":"odd","type":"t","every_ms":-5}',
    b'{"name":"odd","type":"t","every_ms":1}', b'{"name":"other","type":"t","every_ms":1000}',
)  # fmt: skip


@pytest.mark.parametrize("text", SCHEDULES)
async def test_a_schedule_without_a_slot_is_named_and_holds_up_no_other(room: Room, text: bytes) -> None:
    redis, keys, store = room.redis, room.keys, ScheduleStore(room.plane)
    await store.set(Schedule("good", "a", every_ms=1000))
    await redis.hset(keys.schedules(), "odd", text)
    await redis.zadd(keys.schedules_due(), {"odd": 1, b"\xff\xfe": 2, "far": "+inf", "long-ago": "-inf"})
    periodic = Periodic(room.plane, room.store)
    with capture_logs() as logs:
        for _ in range(2):
            room.clock.advance(1)
            now = room.clock.ms
            assert await periodic.fire_due(now) == now // 1000 * 1000 + 1000
    assert [line["schedule"] for line in logs if line["event"] == "schedule_not_fired"] == ["odd"]
    assert await redis.llen(keys.queue("normal")) == 2
    assert [schedule.name for schedule in await store.list()] == ["good"]
    assert "odd" in " ".join(check.detail for check in await definitions(room.plane))
    await TaskSweep(room.plane).run()
