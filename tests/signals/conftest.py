"""The exchanges that the contract is held against, and a handler that keeps what it gets."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aio_pika
import pytest

from tests import servers
from tradewind.signals.amqp import AmqpExchange
from tradewind.signals.exchange import Delivery, Exchange, Message
from tradewind.signals.memory import MemoryExchange
from tradewind.signals.subscription import Redelivery

QUICK = Redelivery(most=3, first_pause_s=0.001, longest_pause_s=0.002)


class Inbox:
    """A handler that keeps what it gets. `hold` makes it wait before it returns."""

    def __init__(self, *, hold: bool = False) -> None:
        self._got: asyncio.Queue[Delivery] = asyncio.Queue()
        self._let_go = asyncio.Event()
        self.running = self.most_at_once = self.finished = 0
        if not hold:
            self._let_go.set()

    async def __call__(self, delivery: Delivery) -> None:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        self._got.put_nowait(delivery)
        try:
            await self._let_go.wait()
            self.finished += 1
        finally:
            self.running -= 1

    def let_go(self) -> None:
        self._let_go.set()

    @property
    def is_empty(self) -> bool:
        return self._got.empty()

    async def next(self, timeout_s: float = 20.0) -> Delivery:
        return await asyncio.wait_for(self._got.get(), timeout_s)

    async def bodies(self, count: int) -> list[bytes]:
        return [(await self.next()).body for _ in range(count)]


def note(key: str, body: bytes = b"{}", **more: Any) -> Message:
    return Message(routing_key=key, body=body, **more)


async def until(is_true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_true():  # noqa: ASYNC110 - a condition without an event
            await asyncio.sleep(0.005)


@pytest.fixture
def name() -> str:
    """A word that no other test uses, for keys and queues."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture(params=["memory", "amqp"])
async def exchange(request: pytest.FixtureRequest) -> AsyncIterator[Exchange]:
    exchange: Exchange
    if request.param == "memory":
        exchange = MemoryExchange(redelivery=QUICK)
    else:
        broker: servers.Server = request.getfixturevalue("rabbitmq")
        exchange = AmqpExchange(broker.url, redelivery=QUICK)
    async with exchange:
        declared: list[str] = []
        declare_many = exchange.declare_many

        async def remember(queues: Any) -> None:
            await declare_many(queues)
            declared.extend(queues)

        exchange.declare_many = remember  # type: ignore[method-assign]
        yield exchange
        await exchange.delete_queues(declared)


@pytest.fixture
async def bare(rabbitmq: servers.Server) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    """A channel of a plain client that knows nothing of Tradewind."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await aio_pika.connect(rabbitmq.url, timeout=10))
        yield await connection.channel(on_return_raises=True)
