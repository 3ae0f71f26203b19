"""On a real RabbitMQ: what a bare client sees, and what a foreign program written from the seed alone can do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aio_pika
import pytest

from tests.flows.engine import Engine, until
from tests.flows.engine_nodes import stage

pytestmark = pytest.mark.parametrize("transport", ["amqp"], indirect=True)


class Foreign:
    """A program that knows seed 003: the exchange, the keys, the body. Nothing of ours."""

    def __init__(self, channel: aio_pika.abc.AbstractChannel, exchange: aio_pika.abc.AbstractExchange) -> None:
        self.channel = channel
        self.exchange = exchange

    async def send(self, key: str, payload: Any, kind: str = "AI_RESPONSE") -> None:
        body = {"signal_type": kind, "payload": payload, "timestamp": datetime.now(UTC).isoformat()}
        message = aio_pika.Message(json.dumps(body).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self.exchange.publish(message, key, mandatory=True)

    async def watch(self, binding: str) -> aio_pika.abc.AbstractQueue:
        queue = await self.channel.declare_queue(exclusive=True)
        await queue.bind(self.exchange, binding)
        return queue


@asynccontextmanager
async def foreign(station: Engine) -> AsyncIterator[Foreign]:
    async with await aio_pika.connect(station.broker_url, timeout=10) as connection:
        channel = await connection.channel(on_return_raises=True)
        yield Foreign(channel, await channel.declare_exchange("signals_exchange", "topic", durable=True))


async def _get(queue: aio_pika.abc.AbstractQueue, many: int = 1) -> list[aio_pika.abc.AbstractIncomingMessage]:
    found = []

    async def look() -> bool:
        message = await queue.get(no_ack=True, fail=False)
        if message is not None:
            found.append(message)
        return len(found) >= many

    await until(look, f"{many} messages")
    return found


async def test_queues_have_the_seed_s_names_and_go_with_the_cycle(station: Engine) -> None:
    nodes = {"s": "e_send", "slow": "e_block", "d": "e_note"}
    flow_id = await station.register(nodes, "s.a>slow.value", "slow.a>d.x", interval=3600)
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    names = [f"queue.flow.{flow_id}.cycle.{cycle}.node.{node}" for node in nodes]
    assert await station.queues(flow_id, cycle, list(nodes)) == names
    stage.gate(flow_id).set()
    await station.end(flow_id, cycle)
    await station.no_queues(flow_id, cycle, list(nodes))
    assert not await station.redis.hkeys(station.keys.flows_queues())


async def test_a_message_is_persistent_and_says_where_it_goes(station: Engine) -> None:
    flow_id = await station.register({"s": "e_send", "d": "e_note"}, "s.a>d.x", signal_ttl=30)
    async with foreign(station) as bare:
        queue = await bare.watch(f"flow.{flow_id}.#")
        cycle = await station.run(flow_id)
        (message,) = await _get(queue)
    assert message.routing_key == f"flow.{flow_id}.component.0.cycle.{cycle}.from.s.handle.a.to.d.handle.x"
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert message.expiration == 30
    assert message.headers["target_node"] == "d"
    assert json.loads(message.body)["payload"] == 1


async def test_a_foreign_program_hears_a_node_and_answers_it(station: Engine) -> None:
    """price → (foreign program) → buy, where our own model takes too long."""
    nodes = {"price": ("e_send", {"values": {"a": 50_000}}), "model": ("delay", {"seconds": 60}), "buy": "e_note"}
    flow_id = await station.register(nodes, "price.a>model.value", "model.value>buy.x")
    async with foreign(station) as bare:
        queue = await bare.watch(f"flow.{flow_id}.component.*.cycle.*.from.price.handle.a.to.*.handle.*")
        cycle = await station.run(flow_id)
        (heard,) = await _get(queue)
        price = json.loads(heard.body)["payload"]
        key = f"flow.{flow_id}.component.0.cycle.{cycle}.from.model.handle.value.to.buy.handle.x"
        await bare.send(key, {"action": "buy", "at": price})
        await station.node_is(flow_id, cycle, "buy", "completed")
    assert stage.got(flow_id, "buy") == [{"action": "buy", "at": 50_000}]
    await station.flows.terminate(flow_id, cycle, "model")
    ended = await station.end(flow_id, cycle)
    assert ended.states == {"price": "completed", "model": "terminated", "buy": "completed"}


async def test_a_foreign_program_feeds_a_handle_that_waits_for_the_outside(station: Engine) -> None:
    nodes = {"ask": "e_ask", "plain": ("e_note", {}, {"external": ["x"]})}
    flow_id = await station.register(nodes)
    cycle = await station.run(flow_id)
    await station.node_is(flow_id, cycle, "plain", "awaiting_input")
    async with foreign(station) as bare:
        for component, node, handle in ((0, "ask", "word"), (1, "plain", "x")):
            key = f"flow.{flow_id}.component.{component}.cycle.{cycle}.from.robot.handle.out.to.{node}.handle.{handle}"
            await until(partial(_sent, bare, key), "a queue")
    ended = await station.end(flow_id, cycle)
    assert (ended.got("ask"), ended.got("plain")) == ("hi", "hi")

    async def recorded() -> bool:
        assert station.flows.records is not None
        items = (await station.flows.records.signals(flow_id, cycle)).items
        return {(e.source_node, e.target_node) for e in items} >= {("robot", "ask"), ("robot", "plain")}

    await until(recorded, "the record of foreign signals")


async def _sent(bare: Foreign, key: str) -> bool:
    try:
        await bare.send(key, "hi")
        return True
    except aio_pika.exceptions.DeliveryError:  # its queue is not there yet
        return False


async def test_a_literal_star_is_unpacked_by_key(station: Engine) -> None:
    nodes = {"slow": "e_block", "slow2": "e_block", "t": "e_two"}
    flow_id = await station.register(nodes, "slow.a>t.x", "slow2.a>t.y")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    async with foreign(station) as bare:
        key = f"flow.{flow_id}.component.0.cycle.{cycle}.from.robot.handle.out.to.t.handle.*"
        await bare.send(key, {"x": 1, "y": 2, "other": 3})
        await station.node_is(flow_id, cycle, "t", "completed")
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.got("t") == (1, 2)


@pytest.mark.parametrize("scoped", [False, True])
async def test_a_foreign_stop_ends_the_cycle_well(station: Engine, scoped: bool) -> None:
    nodes = {"s": "e_send", "slow": "e_block", "d": "e_note", "slow2": "e_block"}
    flow_id = await station.register(nodes, "s.a>slow.value", "slow.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    payload: dict[str, Any] = {"reason": "market closed", "source_node": "robot"}
    if scoped:
        payload |= {"component_id": 0, "scope": "component"}
    async with foreign(station) as bare:
        await bare.send(f"flow.{flow_id}.signal.STOP_EXECUTION.cycle.{cycle}", payload, "STOP_EXECUTION")
    await station.node_is(flow_id, cycle, "slow", "terminated")
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert (ended.status, ended.view["stopped_by"], ended.view["reason"]) == ("completed", "robot", "market closed")
    other = "completed" if scoped else "terminated"
    assert ended.states == {"s": "completed", "slow": "terminated", "d": "terminated", "slow2": other}


async def test_a_signal_that_comes_twice_counts_once(station: Engine) -> None:
    nodes = {"slow": "e_block", "slow2": "e_block", "t": "e_two", "g": "e_gather"}
    flow_id = await station.register(nodes, "slow.a>t.x", "slow2.a>t.y", "slow.a>g.data", "slow2.a>g.data")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow", "slow2")
    head = f"flow.{flow_id}.component.0.cycle.{cycle}.from.slow.handle.a.to"
    async with foreign(station) as bare:
        for n in range(3):
            await bare.send(f"{head}.t.handle.x", n)
            await bare.send(f"{head}.g.handle.data", n)

    async def arrived() -> bool:
        found = [await station.hash(station.keys.cycle_inputs(flow_id, cycle, n)) for n in ("t", "g")]
        return all(f.get("n") == "1" for f in found)

    await until(arrived, "the first of each")
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert ended.status == "completed"
    assert ended.got("t") == (0, None)
    assert ended.got("g") == {"slow:a": 0, "slow2:a": None}
    assert stage.ran(flow_id).count("t") == 1


async def test_rubbish_disturbs_nothing(station: Engine) -> None:
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    head = f"flow.{flow_id}.component.0.cycle.{cycle}.from.slow.handle.a.to.d.handle"
    async with foreign(station) as bare:
        for body in (b"", b"not json", b"[]", b'{"payload": NaN}', b"\xff\xfe"):
            await bare.exchange.publish(aio_pika.Message(body), f"{head}.x", mandatory=True)
        await bare.send(f"{head}.nothing", 1)
        await bare.send(f"flow.{flow_id}.component.0.cycle.{cycle}.from.slow.handle.a.to.d.handle.*", "no object")
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await bare.send(head.replace(f"cycle.{cycle}", f"cycle.{cycle + 9}") + ".x", 1)
    await asyncio.sleep(0.2)
    assert (await station.states(flow_id, cycle))["d"] == "pending"
    stage.gate(flow_id).set()
    ended = await station.end(flow_id, cycle)
    assert (ended.status, ended.got("d")) == ("completed", None)


async def test_many_cycles_leave_no_queue(station: Engine) -> None:
    nodes = {"s": "e_send", "d": "e_note", "bad": "e_fail", "lost": "e_note"}
    flow_id = await station.register(nodes, "s.a>d.x", "bad.a>lost.x", interval=3600)
    cycles = [await station.run(flow_id) for _ in range(20)]
    for cycle in cycles:
        await station.end(flow_id, cycle)
    for cycle in cycles:
        await station.no_queues(flow_id, cycle, list(nodes))

    async def is_clean() -> bool:
        keys = station.keys
        left = [await station.redis.hlen(keys.flows_queues()), await station.redis.hlen(keys.flows_hosts())]
        left += [await station.redis.zcard(keys.flows_unsent()), await station.redis.zcard(keys.flows_held())]
        return not any(left) and not await station.all_keys(":unsent")

    await until(is_clean, "nothing left to do")


async def test_names_of_full_length_pass(station: Engine) -> None:
    flow_id = station.new_id("f").ljust(64, "x")
    source, target = "s" * 64, "t" * 64
    await station.register({source: "e_send", target: "e_note"}, f"{source}.a>{target}.x", id=flow_id)
    ended = await station.end(flow_id, await station.run(flow_id))
    assert ended.states == {source: "completed", target: "completed"}


async def test_what_cannot_be_let_in_is_refused_one_by_one(make_station: Callable[..., Awaitable[Engine]]) -> None:
    station = await make_station(signals__max_bytes=20_000)
    flow_id = await station.register({"slow": "e_block", "d": "e_note"}, "slow.a>d.x")
    cycle = await station.run(flow_id)
    await station.running(flow_id, "slow")
    head = f"flow.{flow_id}.component.0.cycle.{cycle}.from.slow.handle.a.to.d.handle"
    bodies = [b"x" * 20_001, b'{"payload": "' + b"y" * 20_000 + b'"}', b"[" * 5000, b"not json", b"\xff" * 100]
    async with foreign(station) as bare:
        for body in bodies:
            await bare.exchange.publish(aio_pika.Message(body), f"{head}.x", mandatory=True)
        for _ in range(30):
            await bare.send(f"{head}.nothing", 1)
        await bare.send(f"{head}.x", "good")
        await station.node_is(flow_id, cycle, "d", "completed")
    assert stage.got(flow_id, "d") == ["good"]
    assert await station.text(station.keys.metric_signals(), "refused") == "35"
    stage.gate(flow_id).set()
    await station.end(flow_id, cycle)

    async def told() -> bool:
        assert station.flows.records is not None
        logs = (await station.flows.records.logs(flow_id, cycle=cycle)).items
        lines = [entry.message for entry in logs if "is refused" in entry.message]
        return len(lines) == 20 and sum("20001 bytes, at most 20000" in line for line in lines) == 1

    await until(told, "the log")
