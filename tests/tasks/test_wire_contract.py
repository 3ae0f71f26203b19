"""The seed's Redis contract, byte for byte: what redis-cli, or a program written against the seed, finds and may do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests import servers
from tests.lifetimes import lives
from tests.tasks.room import Room, ending
from tradewind import codec
from tradewind.clock import FakeClock
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.tasks.periodic import Schedule, ScheduleStore

NOW_S = 1_700_000_000


@pytest.fixture(scope="module")
def own_server() -> Iterator[servers.Server]:
    with servers.redis_server() as server:
        yield server


@pytest.fixture(params=["", "plant7:"])
async def bare(request: pytest.FixtureRequest, own_server: servers.Server) -> AsyncIterator[Room]:
    """Every key on the server is of this test; without and with a prefix."""
    link = await open_link(RedisSettings(url=own_server.url))
    await link.client.flushall()
    yield Room(link, Settings(key_prefix=request.param), FakeClock())
    await link.close()


def text(value: Any) -> Any:
    if isinstance(value, dict):
        return {k.decode(): v.decode() for k, v in value.items()}
    return sorted(v.decode() for v in value) if isinstance(value, set) else [v.decode() for v in value]


async def ttl_is(room: Room, key: str, seconds: float) -> None:
    await lives(room.redis, key, seconds, spent_s=2)


async def test_queues_are_lists_pushed_on_the_left_and_taken_from_the_right(bare: Room) -> None:
    p, ids = bare.keys.p, {}
    for priority in ("high", "normal"):
        ids[priority] = [await bare.submit(priority=priority) for _ in range(3)]
        assert await bare.redis.type(f"{p}queue:{priority}") == b"list"
        assert text(await bare.redis.lrange(f"{p}queue:{priority}", 0, -1)) == ids[priority][::-1]
    await bare.join("worker-001", capacity=1)
    await bare.assign()
    assert text(await bare.redis.lrange(f"{p}queue:high", 0, -1)) == ids["high"][:0:-1]
    assert text(await bare.redis.lrange(f"{p}worker:worker-001:queue", 0, -1)) == ids["high"][:1]


async def test_worker_record_and_its_type_index(bare: Room) -> None:
    p = bare.keys.p
    fields = {
        "id": "worker-001", "name": "one", "address": "http://h:1", "capacity": 10, "current_load": 0,
        "supported_types": codec.encode(["send_email", "generate_report"]),
    }  # fmt: skip
    worker = await bare.join("worker-001", ["send_email", "generate_report"], **fields)
    found = text(await bare.redis.hgetall(f"{p}worker:worker-001"))
    assert found["supported_types"] == '["send_email","generate_report"]'
    assert found["last_heartbeat"] == str(NOW_S) and found["capacity"] == "10" and found["current_load"] == "0"
    assert {"id", "name", "address"} <= found.keys() and found["status"] == "active"
    await ttl_is(bare, f"{p}worker:worker-001", 30)
    assert text(await bare.redis.smembers(f"{p}worker:type:send_email")) == ["worker-001"]
    for _ in range(3):
        await bare.submit("send_email")
    await worker.take(1)
    bare.clock.advance(7)
    await bare.redis.expire(f"{p}worker:worker-001", 3)
    await worker.beat()
    found = text(await bare.redis.hgetall(f"{p}worker:worker-001"))
    assert found["last_heartbeat"] == str(NOW_S + 7) and found["current_load"] == "3"
    await ttl_is(bare, f"{p}worker:worker-001", 30)


async def test_leader_lock(bare: Room) -> None:
    p = bare.keys.p
    fence = [f"{p}scheduler:leader", f"{p}scheduler:epoch"]
    assert await bare.plane.scripts.run("leader_acquire", fence, ["scheduler-1", 10_000]) == 1
    assert await bare.redis.get(f"{p}scheduler:leader") == b"scheduler-1"
    await ttl_is(bare, f"{p}scheduler:leader", 10)
    await bare.redis.delete(f"{p}scheduler:leader")
    assert await bare.redis.set(f"{p}scheduler:leader", "by-hand", nx=True, ex=10)  # as in the seed
    assert await bare.plane.scripts.run("leader_acquire", fence, ["scheduler-1", 10_000]) == 0


async def test_delayed_queue_scores_are_seconds(bare: Room) -> None:
    p = bare.keys.p
    first, second = await bare.submit(delay_s=1.25), await bare.submit(delay_s=90)
    found = await bare.redis.zrange(f"{p}queue:delayed", 0, -1, withscores=True)
    assert found == [(first.encode(), NOW_S + 1.25), (second.encode(), NOW_S + 90.0)]


async def test_cancel_flag_caches_and_lock(bare: Room) -> None:
    p = bare.keys.p
    worker = await bare.join()
    task_id = await bare.submit(exclusive="door", timeout_s=60)
    await bare.start(worker)
    assert await bare.redis.get(f"{p}lock:task:door") == b"w1"
    await ttl_is(bare, f"{p}lock:task:door", 300)
    view = await bare.store.view(task_id)
    assert await bare.redis.get(f"{p}task:cache:{task_id}") == view and codec.decode(view)["id"] == task_id
    assert await bare.redis.get(f"{p}task:status:{task_id}") == b"PROCESSING"
    await ttl_is(bare, f"{p}task:cache:{task_id}", 300)
    await ttl_is(bare, f"{p}task:status:{task_id}", 300)
    await bare.store.cancel([task_id])
    assert await bare.redis.get(f"{p}task:cancel:{task_id}") == b"1"
    await ttl_is(bare, f"{p}task:cancel:{task_id}", 60 + 3600)


async def test_exclusive_task_locks_its_own_id_by_default(bare: Room) -> None:
    worker = await bare.join()
    task_id = await bare.submit(exclusive=True)
    await bare.start(worker)
    assert await bare.redis.get(f"{bare.keys.p}lock:task:{task_id}") == b"w1"


async def test_rate_limit_counters(bare: Room) -> None:
    p = bare.keys.p
    await bare.control.set_rate_limit("a", 5, 60)
    await bare.join()
    for _ in range(3):
        await bare.submit()
    await bare.assign()
    window = NOW_S // 60 * 60
    assert await bare.redis.get(f"{p}ratelimit:task:a") == b"3"
    assert await bare.redis.get(f"{p}ratelimit:task:a:{window}") == b"3"
    await ttl_is(bare, f"{p}ratelimit:task:a", 1)
    await ttl_is(bare, f"{p}ratelimit:task:a:{window}", 120)
    await ttl_is(bare, f"{p}ratelimit:slots:a", 120)
    await bare.control.set_rate_limit("b", 5, 1)
    await bare.join("w2", ["b"])
    await bare.submit("b")
    await bare.assign()
    await ttl_is(bare, f"{p}ratelimit:task:b:{NOW_S}", 60)
    await ttl_is(bare, f"{p}ratelimit:slots:b", 60)


async def test_metrics(bare: Room) -> None:
    p = bare.keys.p
    worker = await bare.join(capacity=1)
    for priority in ("high", "high", "normal", "normal", "normal"):
        await bare.submit(priority=priority)
    (taken,) = await bare.start(worker)
    await worker.finish([ending(taken)])
    await (await bare.leader()).write_metrics()
    lengths = text(await bare.redis.hgetall(f"{p}metrics:queue:length"))
    assert (lengths["high"], lengths["normal"]) == ("1", "3")
    assert await bare.redis.get(f"{p}metrics:worker:count") == b"1"
    assert await bare.redis.get(f"{p}metrics:task:count:success") == b"1"


async def test_events_are_exactly_the_four_fields(bare: Room) -> None:
    client = bare.plane.link.new_client()
    pubsub = client.pubsub()
    await pubsub.subscribe(f"{bare.keys.p}task:events")
    async with asyncio.timeout(5):
        async for message in pubsub.listen():
            if message["type"] == "subscribe":
                task_id = await bare.submit("send_email")
            else:
                break
    wanted = f'{{"event":"task_created","task_id":"{task_id}","task_type":"send_email","timestamp":{NOW_S}}}'
    assert message["data"] == wanted.encode()
    await pubsub.aclose()
    await client.aclose()


async def test_worker_registered_by_hand_gets_tasks_in_its_queue(bare: Room) -> None:
    p, fields = bare.keys.p, {
        "id": "x", "name": "by hand", "address": "", "capacity": 2, "current_load": 0,
        "supported_types": '["t"]', "last_heartbeat": NOW_S,
    }  # fmt: skip
    ids = [await bare.submit("t") for _ in range(3)]
    await bare.redis.hset(f"{p}worker:x", mapping=fields)
    await bare.redis.expire(f"{p}worker:x", 30)
    await bare.redis.sadd(f"{p}worker:type:t", "x")
    assert await bare.assign() == 2
    assert text(await bare.redis.lrange(f"{p}worker:x:queue", 0, -1)) == ids[1::-1]
    assert await bare.redis.rpop(f"{p}worker:x:queue") == ids[0].encode()
    leader = await bare.leader()
    assert await leader.expired_workers() == []
    await bare.redis.delete(f"{p}worker:x")  # its 30 s are over
    assert await leader.expired_workers() == ["x"]
    assert await leader.evict("x") == 1
    assert await bare.status(ids[1]) == "QUEUED" and not await bare.redis.exists(f"{p}worker:type:t")


async def test_task_pushed_to_the_seeds_queue_by_hand_is_assigned(bare: Room) -> None:
    """The seed's producer: a task whose record exists, pushed again on the left."""
    worker = await bare.join()
    task_id = await bare.submit(delay_s=1)
    await bare.redis.zrem(f"{bare.keys.p}queue:delayed", task_id)
    await bare.redis.hset(f"{bare.keys.p}task:{task_id}", "status", "QUEUED")
    await bare.redis.lpush(f"{bare.keys.p}queue:high", task_id)
    assert [t.id for t in await bare.start(worker)] == [task_id]


async def test_every_key_of_a_full_life_has_the_prefix_and_a_documented_name(bare: Room) -> None:
    one, other = await bare.join("w1", ["a", "b"]), await bare.join("w2", ["c"])
    await bare.control.set_rate_limit("a", 50, 1)
    await bare.control.pause("type:b")
    await ScheduleStore(bare.plane).set(Schedule("s", "a", every_ms=1000))
    running = await bare.submit(exclusive="door", idempotency_key="k", tags=["t"], max_attempts=2)
    failed = await bare.submit(deadline=bare.clock.ms + 60_000)
    await bare.submit("b")
    await bare.submit(delay_s=100)
    await bare.store.cancel([await bare.submit("nobody", labels=["gpu"])])
    await bare.submit("nobody", labels=["gpu"], priority="high")
    taken = {t.id: t for t in await bare.start(one)}
    await bare.store.wait("client", [running])
    await one.progress(running, taken[running].token, b"0.5")
    await bare.store.view(running)
    await bare.store.cancel([running])
    await one.finish([ending(taken[failed], "FAILED")])
    await (await bare.leader()).write_metrics()
    await other.sync()
    names = {name.decode() async for name in bare.redis.scan_iter(count=1000)}
    assert len(names) > 35 and {name for name in names if not name.startswith(bare.keys.p)} == set()
    families = [
        r"queue:(high|normal|delayed|parked|paused|dead)", r"queue:parked:(high|normal):[^:]+",
        r"worker:[^:]+(:queue|:inflight)?", r"worker:type:[^:]+", "worker:types", "workers",
        r"task:[^:]+(:body)?", r"task:(cancel|cache|status|idem|types):[^:]+", "task:outbox:count", r"lock:task:[^:]+",
        r"scheduler:(leader|epoch|wake)", r"schedule:(config|due)", r"ratelimit:task:[^:]+(:\d+)?",
        r"ratelimit:(config|slots:[^:]+)", r"metrics:(queue:length|worker:count|task:count:[a-z]+)",
    ]  # fmt: skip
    unknown = {n for n in names if not any(re.fullmatch(f, n.removeprefix(bare.keys.p)) for f in families)}
    assert unknown == set()
