"""What only a broker can show: the bytes on the wire, foreign programs, a broker that dies, hangs or refuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError

from tests import servers
from tests.signals.conftest import QUICK, Inbox, note, until
from tradewind.errors import Conflict, Invalid, Unavailable
from tradewind.signals import (
    Signal,
    SignalKey,
    StopKey,
    encode,
    node_binding,
    queue_name,
    read_delivery,
    signal_message,
    stop_key,
)
from tradewind.signals.amqp import AmqpExchange


@pytest.fixture
async def exchange(rabbitmq: servers.Server) -> AsyncIterator[AmqpExchange]:
    async with AmqpExchange(rabbitmq.url, redelivery=QUICK) as exchange:
        yield exchange


def stands_still(pid: int) -> bool:
    """True once the signal has reached every thread."""
    return all(
        path.read_text().rpartition(")")[2].split()[0] == "T" for path in Path(f"/proc/{pid}/task").glob("*/stat")
    )


async def one(queue: AbstractQueue) -> AbstractIncomingMessage:
    async with asyncio.timeout(20):
        while (message := await queue.get(fail=False)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await message.ack()
    return message


async def test_a_bare_client_sees_the_bytes_of_the_seed(
    exchange: AmqpExchange, bare: AbstractChannel, name: str
) -> None:
    spy = await bare.declare_queue(exclusive=True)
    await spy.bind("signals_exchange", f"flow.{name}.#")
    key = SignalKey(name, 0, 0, "binance_price", "kline_data", "ai_model", "price_input")
    payload = {"symbol": "BTCUSDT", "close_price": 50000}
    signal = Signal("s1", "PRICE_DATA", payload, 1759744800.0, "binance_price", "kline_data", name, 0)
    queue = queue_name(name, 0, "ai_model")
    await exchange.declare_queue(queue, [node_binding(name, 0, 0, "ai_model"), stop_key(name, 0)])
    await exchange.publish([signal_message(signal, key, expiration_ms=1500), signal_message(signal, StopKey(name, 0))])

    # Declared as the seed says: any other property would be refused here.
    await bare.declare_exchange("signals_exchange", "topic", durable=True)
    own = await bare.declare_queue(f"queue.flow.{name}.cycle.0.node.ai_model", durable=True)
    assert own.declaration_result.message_count == 2
    seen, stop = await one(spy), await one(spy)
    assert seen.exchange == "signals_exchange"
    assert (
        seen.routing_key
        == f"flow.{name}.component.0.cycle.0.from.binance_price.handle.kline_data.to.ai_model.handle.price_input"
    )
    assert seen.body == (
        b'{"id":"s1","type":"PRICE_DATA","payload":{"symbol":"BTCUSDT","close_price":50000},"timestamp":1759744800.0,'
        b'"source_node":"binance_price","source_handle":"kline_data","flow_id":"%s","cycle":0}' % name.encode()
    )
    assert seen.delivery_mode is aio_pika.DeliveryMode.PERSISTENT
    assert seen.properties.expiration == "1500"
    assert seen.content_type == "application/json"
    assert seen.headers == {
        "flow_id": name,
        "component_id": 0,
        "cycle": 0,
        "source_node": "binance_price",
        "source_handle": "kline_data",
        "target_node": "ai_model",
        "target_handle": "price_input",
    }
    assert stop.routing_key == f"flow.{name}.signal.STOP_EXECUTION.cycle.0"

    await exchange.delete_queues([queue])
    with pytest.raises(ChannelNotFoundEntity):
        await bare.declare_queue(queue, passive=True)


async def test_a_foreign_program_sends_a_signal(exchange: AmqpExchange, bare: AbstractChannel, name: str) -> None:
    queue, inbox = queue_name(name, 3, "buy_node"), Inbox()
    await exchange.declare_queue(queue, [node_binding(name, 0, 3, "buy_node"), stop_key(name, 3)])
    await exchange.consume(queue, inbox)
    there = await bare.get_exchange("signals_exchange")
    body = b'{"signal_type": "ai_response", "payload": {"action": "buy"}, "timestamp": "2025-10-06T10:00:05Z"}'
    key = f"flow.{name}.component.0.cycle.3.from.ai_model.handle.ai_response.to.buy_node.handle.decision_input"
    await there.publish(aio_pika.Message(body), key)
    where, signal = read_delivery(await inbox.next())
    assert where == SignalKey(name, 0, 3, "ai_model", "ai_response", "buy_node", "decision_input")
    assert (signal.type, signal.payload, signal.timestamp) == ("AI_RESPONSE", {"action": "buy"}, 1759744805.0)
    await there.publish(aio_pika.Message(b"{}"), f"flow.{name}.signal.STOP_EXECUTION.cycle.3")
    where, signal = read_delivery(await inbox.next())
    assert (where, signal.type) == (StopKey(name, 3), "STOP_EXECUTION")
    with pytest.raises(DeliveryError):  # not to another cycle
        await there.publish(aio_pika.Message(body), key.replace("cycle.3", "cycle.4"))
    await exchange.delete_queues([queue])


async def test_a_killed_consumer_gives_its_message_back(
    exchange: AmqpExchange, rabbitmq: servers.Server, name: str
) -> None:
    await exchange.declare_queue(name, [name])
    await exchange.publish([note(name, b"precious")])
    program = (
        "import asyncio, sys\n"
        "from tradewind.signals.amqp import AmqpExchange\n"
        "async def hang(delivery):\n"
        "    print('got', delivery.body.decode(), flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "async def main():\n"
        "    async with AmqpExchange(sys.argv[1]) as exchange:\n"
        "        await exchange.consume(sys.argv[2], hang)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, rabbitmq.url, name], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(child.stdout.readline), 30)
        assert line == b"got precious\n"
    finally:
        child.kill()
        child.communicate()
    inbox = Inbox()
    await exchange.consume(name, inbox)
    delivery = await inbox.next()
    assert (delivery.body, delivery.redelivered) == (b"precious", True)
    await exchange.delete_queues([name])


async def test_a_consumer_ends_when_somebody_else_deletes_its_queue(
    exchange: AmqpExchange, bare: AbstractChannel, name: str
) -> None:
    await exchange.declare_many({name: [name], f"{name}.2": [f"{name}.2"]})
    inbox = Inbox()
    ended = await exchange.consume(name, inbox)
    other = await exchange.consume(f"{name}.2", inbox)
    await bare.queue_delete(name)
    await until(lambda: ended.is_ended)
    assert not other.is_ended
    await exchange.publish([note(f"{name}.2", b"still here")])
    assert await inbox.bodies(1) == [b"still here"]
    await exchange.delete_queues([f"{name}.2"])


@pytest.mark.parametrize("which", ["_speaking", "_listening"])
async def test_a_lost_connection_is_replaced(exchange: AmqpExchange, name: str, which: str) -> None:
    await exchange.declare_queue(name, [name])
    inbox = Inbox(hold=True)
    consumer = await exchange.consume(name, inbox)
    cancelled = await exchange.consume(name, inbox)
    await exchange.publish([note(name, b"1"), note(name, b"2")])
    await inbox.bodies(2)
    link = exchange._link
    assert link is not None
    await getattr(link, which).transport.connection.close()
    await cancelled.cancel(grace_s=0)
    await until(lambda: exchange._link is not link)
    inbox.let_go()
    await exchange.publish([note(name, b"3")])
    while (delivery := await inbox.next()).body != b"3":
        assert delivery.redelivered
    assert not consumer.is_ended and cancelled.is_ended
    await exchange.delete_queues([name])


async def test_a_queue_of_another_kind_is_a_conflict(exchange: AmqpExchange, bare: AbstractChannel, name: str) -> None:
    await bare.declare_queue(name, durable=True, arguments={"x-message-ttl": 1000})
    with pytest.raises(Conflict, match=name):
        await exchange.declare_many({f"{name}.1": [], name: [], f"{name}.2": []})
    await exchange.declare_queue(f"{name}.3", [name])  # the refusal cost nothing but a channel
    await exchange.publish([note(name)])
    await exchange.delete_queues([name, *(f"{name}.{n}" for n in (1, 2, 3))])


async def test_a_message_that_cannot_be_put_into_frames_is_refused(exchange: AmqpExchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    inbox = Inbox()
    await exchange.consume(name, inbox)
    for _ in range(2):
        with pytest.raises(Invalid, match="cannot be carried"):
            await exchange.publish([note(name, headers={"x": object()})])
    await exchange.publish([note(name, b"fine")])
    assert await inbox.bodies(1) == [b"fine"]
    await exchange.delete_queues([name])


async def test_an_exchange_that_cannot_be_opened_says_why(rabbitmq: servers.Server) -> None:
    wrong = rabbitmq.url.replace("guest:guest", "guest:hush-hush")
    with pytest.raises(Unavailable) as caught:
        await AmqpExchange(wrong).open()
    assert caught.value.code == "amqp_auth"
    nobody = f"amqp://guest:hush-hush@127.0.0.1:{servers.free_port()}/"
    with pytest.raises(Unavailable) as away:
        await AmqpExchange(nobody).open()
    assert away.value.code == "amqp_unavailable"
    for error in (caught.value, away.value):
        assert "hush-hush" not in error.message and "127.0.0.1" in error.message
        assert error.__cause__ is None  # the client's own error might show the URL


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_killed_broker_keeps_messages_and_its_consumers_go_on(
    rabbitmq: servers.Server, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    live, kept, slow, gone = (f"{name}.{word}" for word in ("live", "kept", "slow", "gone"))
    live_inbox, kept_inbox, slow_inbox = Inbox(), Inbox(), Inbox(hold=True)
    async with AmqpExchange(rabbitmq.url, confirm_s=1.0, redelivery=QUICK) as exchange:
        await exchange.declare_many({queue: [queue] for queue in (live, kept, slow, gone)})
        consumer = await exchange.consume(live, live_inbox)
        await exchange.consume(slow, slow_inbox)
        other = await exchange.consume(gone, live_inbox)
        await exchange.publish([note(kept, b"%d" % n) for n in range(50)] + [note(live, b"before")])
        assert await live_inbox.bodies(1) == [b"before"]
        await exchange.publish([note(slow, b"in a handler")])
        assert (await slow_inbox.next()).redelivered is False

        rabbitmq.kill()
        for _ in range(2):  # the connection that breaks, and none at all
            start = time.monotonic()
            with pytest.raises(Unavailable) as caught:
                await exchange.publish([note(live, b"lost")])
            assert time.monotonic() - start < 5
            assert "guest:guest" not in caught.value.message
        rabbitmq.start()
        plain = await aio_pika.connect(rabbitmq.url, timeout=20)
        async with plain:
            await (await plain.channel()).queue_delete(gone)

        async with asyncio.timeout(60):
            while True:
                try:
                    await exchange.publish([note(live, b"after")])
                    break
                except Unavailable:
                    continue
        while (delivery := await live_inbox.next()).body != b"after":
            assert (delivery.body, delivery.redelivered) == (b"before", True)  # its ack died with the broker
        assert (await slow_inbox.next()).redelivered is True
        slow_inbox.let_go()
        await until(lambda: slow_inbox.finished == 2)
        await exchange.consume(kept, kept_inbox, prefetch=10)
        assert await kept_inbox.bodies(50) == [b"%d" % n for n in range(50)]
        assert not consumer.is_ended
        await until(lambda: other.is_ended)
        await exchange.delete_queues([live, kept, slow])
    text = capsys.readouterr().out
    assert "lost the broker" in text and "the broker is back" in text and "guest:guest" not in text


@pytest.mark.slow
async def test_a_broker_that_hangs_is_unavailable_and_comes_back(rabbitmq: servers.Server, name: str) -> None:
    inbox = Inbox()
    async with AmqpExchange(rabbitmq.url, confirm_s=0.5, answer_s=1.0) as exchange:
        await exchange.declare_queue(name, [name])
        await exchange.consume(name, inbox)
        rabbitmq.pause()
        try:
            await until(lambda: stands_still(rabbitmq.pid))
            for messages in ([note(name, b"1")], [note(name, b"2"), note(name, b"3")]):
                start = time.monotonic()
                with pytest.raises(Unavailable, match="no answer in time"):
                    await exchange.publish(messages)
                assert time.monotonic() - start < 3
            with pytest.raises(Unavailable):
                await exchange.declare_queue(f"{name}.2", [])
        finally:
            rabbitmq.resume()
        async with asyncio.timeout(30):
            while True:
                try:
                    await exchange.publish([note(name, b"4")])
                    break
                except Unavailable:
                    continue
        got: list[bytes] = []
        while not got or got[-1] != b"4":
            got += await inbox.bodies(1)
        assert set(got) <= {b"1", b"2", b"3", b"4"}  # what was not confirmed may have arrived all the same
        await exchange.delete_queues([name, f"{name}.2"])


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_it_closes_while_the_broker_is_away(rabbitmq: servers.Server, name: str) -> None:
    exchange = AmqpExchange(rabbitmq.url, confirm_s=0.5, answer_s=1.0)
    await exchange.open()
    await exchange.declare_queue(name, [name])
    consumer = await exchange.consume(name, Inbox())
    rabbitmq.kill()
    try:
        start = time.monotonic()
        await exchange.close()
        assert time.monotonic() - start < 5 and consumer.is_ended
        with pytest.raises(Unavailable):
            await exchange.publish([note(name, encode(Signal("s", "ANY", 1, 0.0)))])
    finally:
        rabbitmq.start()


@pytest.mark.slow
async def test_an_exchange_that_is_gone_is_declared_again_and_one_of_another_kind_refused(
    rabbitmq: servers.Server, name: str
) -> None:
    async with AmqpExchange(rabbitmq.url) as exchange, await aio_pika.connect(rabbitmq.url, timeout=10) as plain:
        bare = await plain.channel()
        await bare.exchange_delete("signals_exchange")
        async with asyncio.timeout(20):
            while True:
                try:
                    await exchange.declare_queue(name, [name])
                    await exchange.publish([note(name)])
                    break
                except Unavailable:
                    continue
        await exchange.delete_queues([name])
        await bare.exchange_delete("signals_exchange")
        await bare.declare_exchange("signals_exchange", "fanout")
        try:
            with pytest.raises(Conflict, match="signals_exchange"):
                await AmqpExchange(rabbitmq.url).open()
        finally:
            await bare.exchange_delete("signals_exchange")
