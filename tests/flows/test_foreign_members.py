"""Members and records that a hand in redis-cli has left among the flows: the other flows go on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import tradewind.nodes
from tests.flows.flow_nodes import flow
from tests.servers import Server
from tests.tasks.room import Room
from tradewind.clock import FakeClock
from tradewind.flows.broker import BrokerKeeper
from tradewind.flows.control import FlowControl
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.node_registry import node_types
from tradewind.flows.plane import HOOK, FlowPlane
from tradewind.flows.scheduler import FlowScheduler
from tradewind.flows.store import FlowStore
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.signals.memory import MemoryExchange

assert tradewind.nodes
ODD = (b"odd", b"a:b", b":", b"", b"\xff\xfe:7", b"odd:7")


class Bench:
    def __init__(self, room: Room) -> None:
        self.room, self.keys, self.redis = room, room.keys, room.redis
        self.store = FlowStore(FlowPlane(room.plane))
        self.control = FlowControl(self.store, KnownTypes(self.store.plane, node_types), None)

    async def leader(self) -> FlowScheduler:
        leader = await self.room.lead()
        return FlowScheduler(self.store, leader.id, leader.epoch)

    async def register(self, flow_id: str) -> None:
        made = flow({"one": ("constant", {"value": 1})}, id=flow_id)
        made.pop("interval")
        await self.control.register({**made, "schedule": {"interval": "1h"}})


@pytest.fixture
async def bench(redis_7: Server, key_prefix: str) -> AsyncIterator[Bench]:
    link = await open_link(RedisSettings(url=redis_7.url))
    yield Bench(Room(link, Settings(key_prefix=key_prefix), FakeClock()))
    await link.close()


async def test_odd_members_hold_up_no_other_flow(bench: Bench) -> None:
    redis, keys = bench.redis, bench.keys
    for odd in ODD:
        for key in (keys.flows_due(), keys.flows_deadlines()):
            await redis.zadd(key, {odd: 1})
        for key in (keys.flows_ended(), keys.task_ended(HOOK)):
            await redis.rpush(key, odd)
    await bench.register("good")
    await bench.control.start("good")
    leader = await bench.leader()
    await leader.settle()
    await leader.expire()
    await leader.fire_due()
    assert await redis.smembers(keys.flow_running("good")) == {b"0"}
    bench.room.clock.advance(7200)
    await leader.expire()
    assert await redis.hget(keys.cycle("good", 0), "status") == b"timeout"


@pytest.mark.parametrize("field", ["last_cycle", "version", "status", "anchor_ms", "structure"])
async def test_a_spoilt_flow_holds_up_no_other(bench: Bench, field: str) -> None:
    for name in ("a-spoilt", "good"):
        await bench.register(name)
        await bench.control.start(name)
    await bench.redis.hset(bench.keys.flow("a-spoilt"), field, "soon")
    leader = await bench.leader()
    await leader.fire_due()
    assert await bench.redis.smembers(bench.keys.flow_running("good")) == {b"0"}


@pytest.mark.parametrize("field", ["status", "version", "open", "completed", "start_ms", "total", "trigger", "slot_ms"])
@pytest.mark.parametrize("word", [None, "soon"])
async def test_a_spoilt_cycle_holds_up_no_other(bench: Bench, field: str, word: str | None) -> None:
    redis, keys = bench.redis, bench.keys
    for name in ("a-spoilt", "good"):
        await bench.register(name)
        await bench.control.start(name)
    leader = await bench.leader()
    await leader.fire_due()
    key = keys.cycle("a-spoilt", 0)
    await (redis.hdel(key, field) if word is None else redis.hset(key, field, word))
    for name in ("a-spoilt", "good"):  # ended elsewhere: the leader is to settle them
        task = f"{name}_0_one"
        await redis.hset(keys.task(task), "status", "FAILED")
        await redis.rpush(keys.task_ended(HOOK), task)
    await leader.settle()
    await leader.fire_due()
    assert await redis.hget(keys.cycle("good", 0), "status") == b"failed"
    bench.room.clock.advance(7200)
    await leader.expire()
    assert await redis.llen(keys.task_ended(HOOK)) == 0


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"kwargs":[]}', b'{"kwargs":{"flow_id":1,"cycle":"x","node_id":[]}}']
)
async def test_an_end_that_cannot_be_read_holds_up_no_other(bench: Bench, body: bytes) -> None:
    redis, keys = bench.redis, bench.keys
    await redis.hset(keys.task("odd"), mapping={"status": "SUCCESS", "type": "constant"})
    await redis.set(keys.body("odd"), body)
    await redis.hset(keys.task("odder"), mapping={"status": "DONE", "type": "constant"})
    await redis.set(keys.body("odder"), b"{}")
    await redis.rpush(keys.task_ended(HOOK), "odd", "odder")
    assert await (await bench.leader()).settle() == 2
    assert await redis.llen(keys.task_ended(HOOK)) == 0


async def test_odd_members_hold_up_no_other_cycle_at_the_broker(bench: Bench) -> None:
    redis, keys = bench.redis, bench.keys
    for odd in ODD:
        await redis.zadd(keys.flows_held(), {odd: 1})
        await redis.zadd(keys.flows_unsent(), {odd: 1})
        await redis.hset(keys.flows_queues(), odd, "one")
        await redis.hset(keys.flows_hosts(), odd, "w")
    exchange = MemoryExchange()
    await exchange.open()
    keeper = BrokerKeeper(bench.store, exchange)
    await keeper.prepare()
    await keeper.clean()
    await keeper.rehost()
    await keeper.resend()
    assert await redis.zcard(keys.flows_held()) == 0
