"""What every exchange promises, in memory and on a real RabbitMQ."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.signals.conftest import QUICK, Inbox, note, until
from tests.signals.test_routing import reference
from tradewind.errors import Conflict, Invalid, NotFound, Unavailable
from tradewind.signals.exchange import Delivery, Exchange, Unroutable

WORDS = st.sampled_from(["a", "b", "c", "*", "#", ""])
TEXTS = st.lists(WORDS, max_size=5).map(".".join)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(patterns=st.lists(TEXTS, min_size=1, max_size=8, unique=True), keys=st.lists(TEXTS, min_size=1, max_size=15))
async def test_a_message_reaches_the_queues_whose_binding_matches(
    exchange: Exchange, name: str, patterns: list[str], keys: list[str]
) -> None:
    queues = {f"{name}.{number}": pattern for number, pattern in enumerate(patterns)}
    end = f"{name}.the.very.end.of.it.all"
    await exchange.declare_many({queue: [pattern, end] for queue, pattern in queues.items()})
    await exchange.publish([note(key, mandatory=False) for key in keys] + [note(end)])
    for queue, pattern in queues.items():
        inbox = Inbox()
        await exchange.consume(queue, inbox)
        got = []
        while (delivery := await inbox.next()).routing_key != end:
            got.append(delivery.routing_key)
        assert got == [key for key in keys if reference(pattern, key)], pattern
    await exchange.delete_queues(queues)


async def test_a_message_keeps_all_it_says(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [f"{name}.#"])
    inbox = Inbox()
    await exchange.consume(name, inbox)
    body = bytes(range(256)) * 2000
    headers = {"flow_id": "f", "cycle": 3, "ü": "ä"}
    await exchange.publish([note(f"{name}.x", body, headers=headers, expiration_ms=60_000, message_id="m1")])
    assert await inbox.next() == Delivery(
        routing_key=f"{name}.x",
        body=body,
        headers=headers,
        expiration_ms=60_000,
        message_id="m1",
        queue=name,
        redelivered=False,
    )


async def test_what_is_published_before_anybody_consumes_is_kept(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    await exchange.publish([note(name, b"1"), note(name, b"2")])
    inbox = Inbox()
    await exchange.consume(name, inbox)
    assert await inbox.bodies(2) == [b"1", b"2"]


async def test_queues_have_nothing_to_do_with_each_other(exchange: Exchange, name: str) -> None:
    one, two, inboxes = f"{name}.1", f"{name}.2", (Inbox(hold=True), Inbox())
    await exchange.declare_many({one: [f"{name}.*.x"], two: [f"{name}.*.x", f"{name}.b.#"]})
    for queue, inbox in zip((one, two), inboxes, strict=True):
        await exchange.consume(queue, inbox)
    await exchange.publish([note(f"{name}.a.x", b"both"), note(f"{name}.b.x", b"both too"), note(f"{name}.b", b"two")])
    assert await inboxes[1].bodies(3) == [b"both", b"both too", b"two"]  # each once, though two bindings match
    assert await inboxes[0].bodies(1) == [b"both"]
    inboxes[0].let_go()
    assert await inboxes[0].bodies(1) == [b"both too"]


async def test_a_queue_keeps_its_order(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [f"{name}.#"])
    inbox = Inbox()
    await exchange.consume(name, inbox, prefetch=10)
    for start in (0, 300):
        await exchange.publish([note(f"{name}.{n}", b"%d" % n) for n in range(start, start + 300)])
    assert await inbox.bodies(600) == [b"%d" % n for n in range(600)]


async def test_a_star_in_a_routing_key_is_just_a_word(exchange: Exchange, name: str) -> None:
    await exchange.declare_many({f"{name}.exact": [f"{name}.to.B.handle.in"], f"{name}.any": [f"{name}.to.B.handle.*"]})
    exact, anything = Inbox(), Inbox()
    await exchange.consume(f"{name}.exact", exact)
    await exchange.consume(f"{name}.any", anything)
    await exchange.publish([note(f"{name}.to.B.handle.*", b"star"), note(f"{name}.to.B.handle.in", b"in")])
    assert await anything.bodies(2) == [b"star", b"in"]
    assert await exact.bodies(1) == [b"in"]
    with pytest.raises(Unroutable):
        await exchange.publish([note(f"{name}.to.*.handle.in")])


async def test_prefetch_is_how_many_handlers_run_at_once(exchange: Exchange, name: str) -> None:
    await exchange.declare_many({f"{name}.{n}": [f"{name}.{n}"] for n in (1, 3)})
    inboxes = {n: Inbox(hold=True) for n in (1, 3)}
    for n, inbox in inboxes.items():
        await exchange.consume(f"{name}.{n}", inbox, prefetch=n)
    await exchange.publish([note(f"{name}.{n}", b"%d" % i) for i in range(9) for n in (1, 3)])
    await inboxes[1].bodies(1)
    await inboxes[3].bodies(3)
    for inbox in inboxes.values():
        inbox.let_go()
    await inboxes[1].bodies(8)
    await inboxes[3].bodies(6)
    assert {n: inbox.most_at_once for n, inbox in inboxes.items()} == {1: 1, 3: 3}


async def test_two_consumers_share_a_queue(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    inboxes = [Inbox(hold=True), Inbox(hold=True)]
    for inbox in inboxes:
        await exchange.consume(name, inbox)
    await exchange.publish([note(name, b"%d" % n) for n in range(2)])
    assert {(await inbox.next()).body for inbox in inboxes} == {b"0", b"1"}
    for inbox in inboxes:
        inbox.let_go()


async def test_a_message_is_settled_only_after_its_handler(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    held, after = Inbox(hold=True), Inbox()
    consumer = await exchange.consume(name, held)
    await exchange.publish([note(name, b"1"), note(name, b"2")])
    assert (await held.next()).redelivered is False
    await consumer.cancel(grace_s=0)
    assert consumer.is_ended and held.finished == 0 and held.running == 0
    await exchange.consume(name, after)
    again, fresh = await after.next(), await after.next()
    assert (again.body, again.redelivered) == (b"1", True)
    assert (fresh.body, fresh.redelivered) == (b"2", False)


async def test_a_cancelled_consumer_finishes_what_it_has(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    held, after = Inbox(hold=True), Inbox()
    consumer = await exchange.consume(name, held)
    await exchange.publish([note(name, b"1"), note(name, b"2")])
    await held.next()
    leaving = asyncio.create_task(consumer.cancel(grace_s=20))
    await until(lambda: consumer.is_ended)
    held.let_go()
    await leaving
    await consumer.cancel()
    assert held.finished == 1
    await exchange.consume(name, after)
    assert await after.bodies(1) == [b"2"]


async def test_a_handler_may_cancel_its_own_consumer(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    done = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        await consumer.cancel()
        done.set()

    consumer = await exchange.consume(name, handler)
    await exchange.publish([note(name, b"1"), note(name, b"2")])
    await asyncio.wait_for(done.wait(), 20)
    after = Inbox()
    await exchange.consume(name, after)
    assert await after.bodies(1) == [b"2"]


async def test_a_failed_handler_gets_the_message_again_before_the_next_one(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    seen: list[tuple[bytes, bool]] = []

    async def handler(delivery: Delivery) -> None:
        seen.append((delivery.body, delivery.redelivered))
        if len(seen) < 3:
            raise RuntimeError("not yet")

    await exchange.consume(name, handler)
    await exchange.publish([note(name, b"1"), note(name, b"2")])
    await until(lambda: len(seen) == 4)
    assert seen == [(b"1", False), (b"1", True), (b"1", True), (b"2", False)]


@pytest.mark.parametrize("message_id", ["", "m1"])
async def test_a_message_that_always_fails_is_dropped(
    exchange: Exchange, name: str, message_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await exchange.declare_queue(name, [name])
    seen: list[bytes] = []

    async def handler(delivery: Delivery) -> None:
        seen.append(delivery.body)
        if delivery.body == b"bad":
            raise RuntimeError("never")

    await exchange.consume(name, handler)
    await exchange.publish([note(name, b"bad", message_id=message_id), note(name, b"good")])
    await until(lambda: b"good" in seen)
    assert seen == [b"bad"] * (1 + QUICK.most) + [b"good"]
    assert "signal dropped" in capsys.readouterr().out


async def test_a_message_waits_as_long_as_something_is_away(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    tries = 0

    async def handler(delivery: Delivery) -> None:
        nonlocal tries
        tries += 1
        if tries < 4 * QUICK.most:
            raise Unavailable("Redis is away")
        if tries == 4 * QUICK.most:
            raise RuntimeError("one failure, not the last allowed")

    await exchange.consume(name, handler)
    await exchange.publish([note(name)])
    await until(lambda: tries > 4 * QUICK.most)


async def test_unroutable_messages_are_named_and_the_others_arrive(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [f"{name}.yes.*"])
    inbox = Inbox()
    await exchange.consume(name, inbox)
    same = {"message_id": "one signal, several handles"}
    messages = [note(f"{name}.no.{n}" if n % 2 else f"{name}.yes.{n}", b"%d" % n, **same) for n in range(6)]
    with pytest.raises(Unroutable) as caught:
        await exchange.publish(messages)
    assert list(caught.value.messages) == messages[1::2]
    assert isinstance(caught.value, Conflict)
    assert f"{name}.no.3" in caught.value.message
    assert await inbox.bodies(3) == [b"0", b"2", b"4"]
    await exchange.publish([note(f"{name}.no.1", mandatory=False)])
    await exchange.publish([])


async def test_an_expired_message_is_not_delivered(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    await exchange.publish([note(name, b"soon gone", expiration_ms=1), note(name, b"stays", expiration_ms=60_000)])
    await asyncio.sleep(0.05)  # its life, not a race
    await exchange.publish([note(name, b"last")])
    inbox = Inbox()
    await exchange.consume(name, inbox)
    assert await inbox.bodies(2) == [b"stays", b"last"]


async def test_a_deleted_queue_leaves_nothing(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    inbox = Inbox(hold=True)
    consumer = await exchange.consume(name, inbox)
    await exchange.publish([note(name, b"1"), note(name, b"2")])
    await inbox.next()
    await exchange.delete_queues([name, f"{name}.never-there"])
    assert consumer.is_ended
    inbox.let_go()
    with pytest.raises(Unroutable):
        await exchange.publish([note(name)])
    with pytest.raises(NotFound):
        await exchange.consume(name, inbox)
    await exchange.declare_queue(name, [name])
    await exchange.publish([note(name, b"new")])
    after = Inbox()
    await exchange.consume(name, after)
    assert await after.bodies(1) == [b"new"]


async def test_declaring_again_adds_bindings_and_keeps_messages(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [f"{name}.1"])
    await exchange.publish([note(f"{name}.1", b"1")])
    await exchange.declare_queue(name, [f"{name}.2"])
    await exchange.publish([note(f"{name}.2", b"2"), note(f"{name}.1", b"3")])
    inbox = Inbox()
    await exchange.consume(name, inbox)
    assert await inbox.bodies(3) == [b"1", b"2", b"3"]


async def test_many_queues_at_once(exchange: Exchange, name: str) -> None:
    names = [f"{name}.{n}" for n in range(120)]
    inbox = Inbox()
    await exchange.declare_many({one: [one, f"{name}.stop"] for one in names})
    await asyncio.gather(*(exchange.consume(one, inbox) for one in names))
    await exchange.publish([note(one, one.encode()) for one in names])
    assert sorted(await inbox.bodies(120)) == sorted(one.encode() for one in names)
    await exchange.publish([note(f"{name}.stop", b"stop")])
    assert await inbox.bodies(120) == [b"stop"] * 120
    await exchange.delete_queues(names)
    with pytest.raises(Unroutable) as caught:
        await exchange.publish([note(one) for one in names])
    assert len(caught.value.messages) == 120


async def test_what_is_too_long_or_senseless_is_refused(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, ["x" * 255])
    for wrong in (
        exchange.declare_queue("q" * 256, []),
        exchange.declare_queue(name, ["ü" * 128]),
        exchange.publish([note("k" * 256)]),
        exchange.publish([note("\ud800")]),
        exchange.consume(name, Inbox(), prefetch=0),
        exchange.consume("q" * 256, Inbox()),
    ):
        with pytest.raises(Invalid):
            await wrong
    await exchange.delete_queues(["q" * 256])
    await exchange.publish([note("x" * 255)])


async def test_a_closed_exchange_refuses(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    inbox = Inbox()
    consumer = await exchange.consume(name, inbox)
    await exchange.close()
    await exchange.close()
    assert consumer.is_ended
    for call in (
        exchange.publish([note(name)]),
        exchange.declare_queue(name, []),
        exchange.delete_queues([name]),
        exchange.consume(name, inbox),
    ):
        with pytest.raises(Unavailable):
            await call
    await exchange.open()  # for the end of the test


async def test_a_direct_message_reaches_one_queue_behind_what_was_published_before(
    exchange: Exchange, name: str
) -> None:
    first, second = f"{name}.1", f"{name}.2"
    await exchange.declare_many({first: [name, first], second: [name, first]})
    inboxes = [Inbox(), Inbox()]
    await exchange.publish([note(name, b"to both"), note(first, b"only the first", is_direct=True)])
    for queue, inbox in zip((first, second), inboxes, strict=True):
        await exchange.consume(queue, inbox)
    assert [d.body for d in [await inboxes[0].next(), await inboxes[0].next()]] == [b"to both", b"only the first"]
    await exchange.publish([note(name, b"more")])
    assert [d.body for d in [await inboxes[1].next(), await inboxes[1].next()]] == [b"to both", b"more"]
    with pytest.raises(Unroutable):
        await exchange.publish([note(f"{name}.3", is_direct=True)])


async def test_a_consumer_knows_what_it_has_not_settled(exchange: Exchange, name: str) -> None:
    """What it handles, and what it gave back, until that has come again and is done."""
    await exchange.declare_queue(name, [name])
    calls: list[str] = []
    gate = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        calls.append(delivery.message_id)
        if delivery.message_id == "bad" and calls.count("bad") == 1:
            raise ValueError("once")
        if delivery.message_id == "held":
            await gate.wait()

    consumer = await exchange.consume(name, handler, prefetch=3)
    await exchange.publish([note(name, message_id=word) for word in ("bad", "held", "good")])
    await until(lambda: "good" in calls)
    assert {"bad", "held"} <= consumer.unsettled or calls.count("bad") == 2
    await until(lambda: calls.count("bad") == 2 and consumer.unsettled == {"held"})
    gate.set()
    await until(lambda: not consumer.unsettled)


async def test_consumers_of_a_queue_are_counted(exchange: Exchange, name: str) -> None:
    await exchange.declare_queue(name, [name])
    assert await exchange.consumers(name) == 0
    first = await exchange.consume(name, Inbox())
    second = await exchange.consume(name, Inbox())
    assert (first.others, second.others, await exchange.consumers(name)) == (0, 1, 2)
    await first.cancel()
    assert await exchange.consumers(name) == 1
    with pytest.raises(NotFound):
        await exchange.consumers(f"{name}.none")
