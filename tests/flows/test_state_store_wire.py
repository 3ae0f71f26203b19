"""The seed's keys, byte for byte: what a stranger with a bare Redis client finds, and may write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

from tests import servers
from tradewind import codec
from tradewind.clock import FakeClock
from tradewind.errors import Invalid, Unavailable
from tradewind.flows.node_record import NodeStatus, NodeTask
from tradewind.flows.redis_state_store import RedisStateStore
from tradewind.redis.connection import open_link
from tradewind.redis.keys import Keys
from tradewind.settings import RedisSettings

NOW_S = 1_700_000_000
TASK = NodeTask("f_0_a", "f", 0, "a", "constant", "w1", config={"empty": [], "none": {}, "big": 9007199254740993})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_S * 1000)


@pytest.fixture(params=["", "plant[7]*:"])
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def redis_store(redis_7: servers.Server, prefix: str, clock: FakeClock) -> AsyncIterator[RedisStateStore]:
    """In a database of its own, so that all keys in it are of this test."""
    link = await open_link(RedisSettings(url=redis_7.url.removesuffix("/0") + "/5"))
    await link.client.flushdb()
    yield RedisStateStore(link, Keys(prefix), clock)
    await link.close()


@pytest.fixture
def bare(redis_7: servers.Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=redis_7.port, db=5, decode_responses=True) as client:
        yield client


def check_ttl(bare: redis.Redis, key: str, seconds: int) -> None:
    left: Any = bare.pttl(key)
    assert (seconds - 5) * 1000 < left <= seconds * 1000, f"{key}: {left} ms"


async def test_a_stranger_finds_the_keys_of_the_seed(
    redis_store: RedisStateStore, prefix: str, bare: redis.Redis, clock: FakeClock
) -> None:
    await redis_store.register_node_task(TASK)
    clock.advance(5)
    await redis_store.update_node_task("f_0_a", NodeStatus.RUNNING, info={"message": "Executing node", "progress": 50})
    await redis_store.set_termination_flag("f_0_a", "User requested stop")
    await redis_store.set_component_stop_flag("f", 0, 2)
    await redis_store.set_value("custom", {"x": 1}, 60)
    kinds = {
        "node_tasks:f_0_a": ("string", 86_400),
        "node_tasks_list": ("set", -1),
        "worker_tasks:w1": ("set", -1),
        "trading_flow:node:f_0_a": ("hash", 86_400),
        "trading_flow:node:f_0_a:terminate": ("string", 3600),
        "flow:f:cycle:0:component:2:stop": ("string", 3600),
        "custom": ("string", 60),
    }
    assert set(bare.keys("*")) == {prefix + name for name in kinds}
    for name, (kind, ttl) in kinds.items():
        assert bare.type(prefix + name) == kind, name
        if ttl > 0:
            check_ttl(bare, prefix + name, ttl)
        else:
            assert bare.ttl(prefix + name) == -1
    assert bare.get(f"{prefix}node_tasks:f_0_a") == (
        '{"node_task_id":"f_0_a","flow_id":"f","cycle":0,"node_id":"a","node_type":"constant","worker_id":"w1",'
        '"status":"running","registered_at":"2023-11-14T22:13:20.000Z","updated_at":"2023-11-14T22:13:25.000Z",'
        '"message":"Executing node","progress":50,"config":{"empty":[],"none":{},"big":9007199254740993}}'
    )
    assert bare.hgetall(f"{prefix}trading_flow:node:f_0_a") == {
        "status": "running",
        "updated_at": "1700000005.0",
        "error_message": "",
    }
    flag: Any = bare.get(f"{prefix}trading_flow:node:f_0_a:terminate")
    assert codec.decode(flag) == {"reason": "User requested stop", "timestamp": "2023-11-14T22:13:25.000Z"}
    assert bare.get(f"{prefix}flow:f:cycle:0:component:2:stop") == "1"
    assert bare.get(f"{prefix}custom") == '{"x":1}'
    assert bare.smembers(f"{prefix}node_tasks_list") == bare.smembers(f"{prefix}worker_tasks:w1") == {"f_0_a"}


async def test_every_update_renews_both_records_for_a_day(
    redis_store: RedisStateStore, prefix: str, bare: redis.Redis
) -> None:
    await redis_store.register_node_task(TASK)
    names = [f"{prefix}node_tasks:f_0_a", f"{prefix}trading_flow:node:f_0_a"]
    for status in ("running", "running", "pending", "completed"):
        for name in names:
            bare.pexpire(name, 7000)
        assert await redis_store.set_node_task_status("f_0_a", status)
        for name in names:
            check_ttl(bare, name, 86_400)
    for name in names:
        bare.pexpire(name, 7000)
    assert not await redis_store.set_node_task_status("f_0_a", "running")
    assert all(0 < int(bare.pttl(name)) <= 7000 for name in names), "a refused update keeps nothing alive"


async def test_records_and_flags_of_a_stranger_are_understood(
    redis_store: RedisStateStore, prefix: str, bare: redis.Redis
) -> None:
    """As the seed's own code writes them: another order, spaces, few fields, naive times, more fields."""
    bare.set(
        f"{prefix}node_tasks:f_0_a",
        '{ "status": "running" , "cycle": "0", "flow_id": "f",\n "node_id": "a", "node_task_id": "f_0_a", '
        '"x": [ "}", {"status": ["]"]} ], "updated_at": "2025-10-06T10:00:00", "worker_id": "w7"}',
    )
    bare.set(f"{prefix}trading_flow:node:f_0_a:terminate", '{"reason": "by hand"}')
    assert await redis_store.get_termination_flag("f_0_a") == {"reason": "by hand", "timestamp": ""}
    assert not await redis_store.set_node_task_status("f_0_a", "registered")
    task = await redis_store.register_node_task(TASK)
    assert (task.worker_id, task.status, task.config, task.cycle) == ("w1", "pending", TASK.config, 0)
    assert await redis_store.set_node_task_status("f_0_a", "completed")
    assert bare.get(f"{prefix}node_tasks:f_0_a") == (
        '{"status":"completed","cycle":"0","flow_id":"f","node_id":"a","node_task_id":"f_0_a",'
        '"x":[ "}", {"status": ["]"]} ],"updated_at":"2023-11-14T22:13:20.000Z","worker_id":"w1",'
        '"node_type":"constant","config":{"empty":[],"none":{},"big":9007199254740993}}'
    )
    bare.hset(f"{prefix}trading_flow:node:f_1_a", mapping={"status": "running", "updated_at": "today"})
    found = await redis_store.get_node_task_status("f_1_a")
    assert found == {"status": "running", "updated_at": 0.0, "error_message": ""}
    bare.set(f"{prefix}custom", "not json")
    with pytest.raises(Invalid, match="custom"):
        await redis_store.get_value("custom")


async def test_expired_ids_are_swept_everywhere(redis_store: RedisStateStore, prefix: str, bare: redis.Redis) -> None:
    for n in range(1200):
        bare.sadd(f"{prefix}node_tasks_list", f"old_{n}_a")
        bare.sadd(f"{prefix}worker_tasks:w{n % 3}", f"old_{n}_a")
    bare.sadd("elsewhere:worker_tasks:w1", "theirs")
    await redis_store.register_node_task(TASK)
    assert await redis_store.forget_expired_node_tasks() == 1200
    assert bare.smembers(f"{prefix}node_tasks_list") == bare.smembers(f"{prefix}worker_tasks:w1") == {"f_0_a"}
    assert not bare.exists(f"{prefix}worker_tasks:w0", f"{prefix}worker_tasks:w2")
    assert bare.smembers("elsewhere:worker_tasks:w1") == {"theirs"}


async def test_a_server_that_is_gone_is_unavailable(clock: FakeClock) -> None:
    with servers.redis_server() as server:
        link = await open_link(RedisSettings(url=server.url))
    store = RedisStateStore(link, Keys(), clock, retries=0)
    for call in (
        store.initialize(),
        store.get_value("k"),
        store.set_node_task_status("f_0_a", "running"),
        store.get_set_members("s"),
    ):
        with pytest.raises(Unavailable):
            await call
    await link.close()
