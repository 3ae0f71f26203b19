from __future__ import annotations

import asyncio

import pytest

from tests.signals.conftest import Inbox, note, until
from tradewind.errors import Overloaded
from tradewind.signals.memory import MemoryExchange


async def test_a_full_queue_refuses_the_whole_publish() -> None:
    async with MemoryExchange(max_waiting=3) as exchange:
        await exchange.declare_many({"full": ["a", "both"], "other": ["both"]})
        await exchange.publish([note("a", b"1"), note("a", b"2")])
        with pytest.raises(Overloaded, match="full"):
            await exchange.publish([note("both", b"no"), note("a", b"no")])
        await exchange.publish([note("both", b"3")])
        inboxes = Inbox(hold=True), Inbox()
        await exchange.consume("full", inboxes[0])
        await exchange.consume("other", inboxes[1])
        assert await inboxes[1].bodies(1) == [b"3"]
        assert await inboxes[0].bodies(1) == [b"1"]
        with pytest.raises(Overloaded):  # one is in a handler, and counts until it is settled
            await exchange.publish([note("a", b"no")])
        inboxes[0].let_go()
        assert await inboxes[0].bodies(2) == [b"2", b"3"]
        await exchange.publish([note("both", b"4")])
        assert await inboxes[0].bodies(1) == await inboxes[1].bodies(1) == [b"4"]


async def test_nothing_of_a_deleted_queue_is_kept() -> None:
    async with MemoryExchange() as exchange:
        inbox = Inbox(hold=True)
        for number in range(20):
            names = [f"q{number}.{n}" for n in range(10)]
            await exchange.declare_many({name: [f"{name}.*.#", "stop"] for name in names})
            for name in names:
                await exchange.consume(name, inbox)
            await exchange.publish([note("stop")])
            assert exchange.queue_names() == sorted(names)
            await exchange.delete_queues(names)
            assert exchange.queue_names() == []
        await inbox.bodies(200)
        assert len(exchange._consumers) == 200  # their handlers still run
        inbox.let_go()
        await until(lambda: not exchange._consumers)
        assert not exchange._tree


async def test_a_message_without_time_to_live_reaches_only_who_waits() -> None:
    async with MemoryExchange() as exchange:
        await exchange.declare_queue("q", ["k"])
        inbox = Inbox()
        consumer = await exchange.consume("q", inbox)
        await exchange.publish([note("k", b"now", expiration_ms=0)])
        assert await inbox.bodies(1) == [b"now"]
        await consumer.cancel()
        await exchange.publish([note("k", b"too early", expiration_ms=0)])
        await asyncio.sleep(0.001)
        await exchange.publish([note("k", b"kept")])
        await exchange.consume("q", inbox)
        assert await inbox.bodies(1) == [b"kept"]
