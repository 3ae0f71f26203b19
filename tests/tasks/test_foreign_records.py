"""Records and members that a hand in redis-cli has spoilt, or another program wrote: all others are served."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers import Server
from tests.tasks.room import Room, ending
from tradewind.clock import FakeClock
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings, Settings
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


@pytest.mark.parametrize("kind", ["task", "worker"])
async def test_a_record_of_another_type_holds_up_nobody(room: Room, kind: str) -> None:
    task_id = await room.submit("a")
    await room.join("odd", ["a", "b"], capacity=1)
    key = room.keys.task(task_id) if kind == "task" else room.keys.worker("odd")
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
