"""Members and records that a hand in redis-cli has left among the flows: the other flows go on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

import tradewind.nodes
from tests.flows.flow_nodes import flow
from tests.servers import Server
from tests.tasks.room import Room, limited
from tradewind import codec
from tradewind.clock import FakeClock
from tradewind.errors import Unavailable
from tradewind.flows.alarm_watch import AlarmWatch
from tradewind.flows.broker import BrokerKeeper
from tradewind.flows.control import FlowControl
from tradewind.flows.known_types import KnownTypes
from tradewind.flows.node_registry import node_types
from tradewind.flows.overview import figures, overview
from tradewind.flows.plane import HOOK, FlowPlane
from tradewind.flows.scheduler import FlowScheduler
from tradewind.flows.status import readable_cycle
from tradewind.flows.store import FlowStore
from tradewind.flows.sweep import FlowSweep
from tradewind.flows.terminate_watch import TerminateWatch
from tradewind.flows.trigger_watch import TriggerWatch
from tradewind.points.plane import PointPlane
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
    for key in (keys.flows_due(), keys.flows_deadlines()):
        await redis.zadd(key, {"far:1": "+inf", "long-ago:1": "-inf"})
    await bench.register("good")
    await bench.control.start("good")
    leader = await bench.leader()
    await leader.settle()
    await leader.fire_due()
    await leader.expire()
    await figures(bench.store)
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


async def _running(bench: Bench, *names: str) -> FlowScheduler:
    for name in names:
        await bench.register(name)
        await bench.control.start(name)
    leader = await bench.leader()
    await leader.fire_due()
    return leader


async def _plan_key(bench: Bench, flow_id: str) -> str:
    version = await bench.redis.hget(bench.keys.flow(flow_id), "version")
    bench.store._plans.clear()  # as a leader that has just begun
    return bench.keys.flow_plan(flow_id, version.decode())


#: In place of a plan: none, no JSON, JSON of something else, a plan whose schedule is none.
PLANS = (None, b"\xff\xfe", b"{", b"[]", b'{"spec":{"id":"a-spoilt","nodes":[],"schedule":{"cron":"x"}},"nodes":{}}')


@pytest.mark.parametrize("plan", PLANS)
async def test_a_spoilt_plan_holds_up_no_other_flow(bench: Bench, plan: bytes | None) -> None:
    redis, keys = bench.redis, bench.keys
    leader = await _running(bench, "a-spoilt", "good")
    key = await _plan_key(bench, "a-spoilt")
    await (redis.delete(key) if plan is None else redis.hset(key, ":plan", plan))
    for name in ("a-spoilt", "good"):  # a foreign worker has ended them
        task = f"{name}_0_one"
        await redis.hset(keys.task(task), mapping={"status": "SUCCESS", "type": "constant"})
        kwargs = {"flow_id": name, "cycle": 0, "node_id": "one"}
        await redis.set(keys.body(task), codec.encode({"kwargs": kwargs}) + b'\n{"result":1}')
        await redis.rpush(keys.task_ended(HOOK), task)
    await redis.hset(keys.flow("a-spoilt"), mapping={"buffered_ms": 1})
    await redis.rpush(keys.flows_ended(), "a-spoilt")
    watch = TerminateWatch(bench.store)
    await redis.set(keys.node_terminate("good_0_one"), "x")
    await watch.look()
    await leader.settle()
    assert await redis.hget(keys.cycle("good", 0), "status") != b"running"
    assert await redis.llen(keys.task_ended(HOOK)) == 0
    await redis.zadd(keys.flows_due(), {"a-spoilt": 1, "good": 2})
    await leader.expire()
    assert await redis.llen(keys.flows_ended()) == 0
    await leader.fire_due()
    assert await redis.hget(keys.flow("good"), "last_cycle") == b"1"
    faults = await FlowSweep(bench.store).run("look")
    named = [fault.what for fault in faults if fault.flag == "n" and "a-spoilt" in fault.key]
    assert bool(named) == (plan is None or b"cron" not in plan), faults


async def test_odd_members_hold_up_no_terminate_flag(bench: Bench) -> None:
    redis, keys = bench.redis, bench.keys
    await _running(bench, "a-odd", "b-odd", "good")
    for odd in ODD:
        await redis.zadd(keys.flows_deadlines(), {odd: 1})
        await redis.sadd(keys.cycle_nodes("a-odd", 0), odd)
    await redis.set(keys.node_terminate("a-odd_0_odd"), "x")
    await redis.delete(keys.cycle_nodes("b-odd", 0))
    await redis.set(keys.cycle_nodes("b-odd", 0), "a string where a set belongs")
    for name in ("a-odd", "good"):
        await redis.set(keys.node_terminate(f"{name}_0_one"), "x")
    assert await TerminateWatch(bench.store).look() == 2


async def test_odd_triggers_hold_up_no_other(bench: Bench) -> None:
    redis, keys = bench.redis, bench.keys
    texts = (b"", b"{", b"\xff\xfe", b"1", b'{"a":1}', b"[1]", b'["x"]', b'[{"type":["point"]}]', b"[null]")
    for i, text in enumerate(texts):
        await redis.hset(keys.flow_triggers(), f"odd{i}", text)
        await redis.hset(keys.trigger_states(), f"odd{i} 0", text)
    await redis.hset(keys.flow_triggers(), b"\xff\xfe", b"[]")
    await redis.hset(keys.trigger_states(), b"\xff\xfe 0", b"{}")
    triggers = [{"type": "point", "address": "comsrv:1:m:1"}, {"type": "alarm", "rule_id": "hot"}]
    await redis.hset(keys.flow_triggers(), "good", codec.encode(triggers))
    await redis.hset(keys.trigger_states(), "good 0", b'{"last":1.5}')
    points = PointPlane(bench.room.plane.link, bench.room.plane.all_settings, bench.room.clock)
    watch, alarms = TriggerWatch(bench.control, points), AlarmWatch(bench.control, points)
    for _ in range(2):
        await watch._load()
        await watch._refresh()
        await alarms._refresh()
        assert [(name, i) for name, i, _ in watch._by_key["comsrv:1:m"]] == [("good", 0)]
        assert watch._states["good 0"].last == 1.5 and "odd1 0" not in watch._states
        assert [(name, i) for name, i, _ in alarms._triggers] == [("good", 1)]


async def test_a_cycle_that_cannot_be_stopped_is_asked_again(bench: Bench) -> None:
    redis, keys = bench.redis, bench.keys
    leader = await _running(bench, "a-spoilt", "good")
    await redis.set(keys.cycle_done("a-spoilt", 0), "a string where a hash belongs")
    bench.room.clock.advance(7200)
    with capture_logs() as logs:
        for _ in range(3):
            await leader.expire()
            bench.room.clock.advance(120)
    assert [line["flow"] for line in logs if line["event"] == "cycle_not_stopped"] == ["a-spoilt"]
    assert await redis.hget(keys.cycle("good", 0), "status") == b"timeout"
    assert await redis.zscore(keys.flows_deadlines(), "a-spoilt:0") > bench.room.clock.ms - 120_000
    assert await redis.zscore(keys.flows_deadlines(), "good:0") is None
    await redis.delete(keys.cycle_done("a-spoilt", 0))
    await leader.expire()
    assert await redis.hget(keys.cycle("a-spoilt", 0), "status") == b"timeout"


async def test_a_server_that_cannot_answer_has_not_said_that_a_node_did_not_end(bench: Bench) -> None:
    redis, keys, prefix = bench.redis, bench.keys, bench.keys.p
    await _running(bench, "good")
    await redis.hset(keys.task("good_0_one"), mapping={"status": "FAILED", "type": "constant"})
    await redis.rpush(keys.task_ended(HOOK), "good_0_one")
    async with limited(bench.room, [f"~{prefix}task:ended*", f"~{prefix}flow*"]) as room:
        with pytest.raises(Unavailable):
            await FlowScheduler(FlowStore(FlowPlane(room.plane)), "s", 1).settle()
    assert await redis.lrange(keys.task_ended(HOOK), 0, -1) == [b"good_0_one"]


async def test_odd_records_fail_no_view_of_flows(bench: Bench) -> None:
    redis, keys = bench.redis, bench.keys
    await _running(bench, "a-spoilt", "b-spoilt", "c-spoilt", "good")
    await redis.delete(keys.flow("b-spoilt"), keys.flow_running("c-spoilt"))
    await redis.set(keys.flow("b-spoilt"), "a string where a hash belongs")
    await redis.set(keys.flow_running("c-spoilt"), "a string where a set belongs")
    for odd in ("soon", b"\xff\xfe", "9" * 5000):
        await redis.hset(keys.flow("a-spoilt"), mapping={"last_cycle": odd, "next_execution": odd, "missed": odd})
        await redis.hset(keys.cycle("a-spoilt", 0), mapping={"open": odd, "start_time": odd})
        await redis.hset(keys.metric_cycles(), mapping={"odd": odd, b"\xff": 1})
        await redis.hset(keys.metric_signals(), "refused", odd)
        await redis.hset(keys.node_types(), b"\xff\xfe", odd)
        await redis.sadd(keys.worker_types(), b"\xff\xfe")
        await redis.hset(keys.types(), b"\xff\xfe", odd)
        flows, _ = await overview(bench.store, 100)
        assert {flow["id"]: flow["last_cycle"] for flow in flows}["good"] == 0
        await figures(bench.store)
        await bench.control.types.all(fresh=True)
        with capture_logs() as logs:
            assert [flow["id"] for flow in (await bench.control.page())[0]] == ["good"]
            assert readable_cycle(await redis.hgetall(keys.cycle("a-spoilt", 0))) is None
        assert [line["event"] for line in logs] == ["flow_unreadable", "flow_unreadable", "cycle_unreadable"]
