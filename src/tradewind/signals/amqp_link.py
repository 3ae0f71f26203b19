"""Our standing with RabbitMQ, from open to lost; `amqp.py` opens the next one.

aio-pika's own robust connection is not used: after a reconnect it declares again every queue it knew, so queues that
were deleted meanwhile would come back, and it never gets ready when one that is consumed is gone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import aio_pika
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, DeliveryError, PublishError

from tradewind.errors import Conflict, NotFound
from tradewind.ids import new_id
from tradewind.signals.amqp_channels import Desk, Work, answered, close, connect, open_channel
from tradewind.signals.exchange import Message
from tradewind.signals.routing import EXCHANGE

if TYPE_CHECKING:
    from aiormq.abc import DeliveredMessage
    from aiormq.channel import Channel

_AT_ONCE = 250
_DESKS, _PART = 4, 25


class AmqpLink:
    """Two connections, because a broker that is short of memory stops reading from those that publish, and would read
    no acknowledgements either. Channels: one to publish, a few for declarations, one per prefetch to consume.

    `lost` is set when a connection, or a channel that somebody depends on, is gone; then only `close` is left to do.
    """

    def __init__(
        self,
        speaking: AbstractConnection,
        listening: AbstractConnection,
        publisher: Channel,
        answer_s: float,
        ended: Callable[[str], None],
    ) -> None:
        self.lost = asyncio.Event()
        self._speaking, self._listening, self._publisher = speaking, listening, publisher
        self._answer_s, self._ended = answer_s, ended
        self._consuming: dict[int, Channel] = {}
        self._channel_of: dict[str, Channel] = {}
        self._consume_lock = asyncio.Lock()
        self._desks = [Desk(listening, answer_s) for _ in range(_DESKS)]
        self._turns = itertools.cycle(self._desks)
        self._in_flight: set[str] = set()
        self._numbers = itertools.count()
        self._watch(publisher)
        listening.close_callbacks.add(self._on_lost)

    @classmethod
    async def open(cls, url: str, *, connect_s: float, answer_s: float, ended: Callable[[str], None]) -> AmqpLink:
        """Connect and declare the exchange. `ended` is told the tag of a consumer whose queue somebody deleted.

        Raises one of TROUBLE, or Conflict.
        """
        opened: list[AbstractConnection] = []
        try:
            async with asyncio.timeout(connect_s):
                for purpose in ("publisher", "consumer"):
                    opened.append(await connect(url, purpose))
                publisher = await open_channel(opened[0], confirms=True)
                await answered(publisher.exchange_declare(EXCHANGE, exchange_type="topic", durable=True))
            return cls(opened[0], opened[1], publisher, answer_s, ended)
        except BaseException as error:
            for connection in opened:
                await close(connection, answer_s)
            if isinstance(error, ChannelPreconditionFailed):
                hint = f"delete {EXCHANGE} on the broker; it is declared again as a durable topic exchange"
                text = f"the broker has another kind of exchange named {EXCHANGE}: {error}"
                raise Conflict(text, code="other_exchange", hint=hint) from error
            raise

    def _watch(self, channel: Channel) -> None:
        channel.closing.add_done_callback(self._on_lost)

    def _on_lost(self, *_: object) -> None:
        self.lost.set()

    async def close(self) -> None:
        self.lost.set()
        await asyncio.gather(close(self._speaking, self._answer_s), close(self._listening, self._answer_s))

    async def publish(self, messages: Sequence[Message], confirm_s: float) -> tuple[list[Message], list[Message]]:
        """Publish and wait for all confirms, `confirm_s` for each 250; which found no queue, and which were refused.

        Raises one of TROUBLE; TypeError, ValueError for a message that cannot be put into frames.
        """
        if len(messages) == 1:
            async with asyncio.timeout(confirm_s):
                try:
                    return ([] if await answered(self._publish_one(messages[0])) else [messages[0]]), []
                except DeliveryError:
                    return [], [messages[0]]
        lost, refused = [], []
        for part in (messages[start : start + _AT_ONCE] for start in range(0, len(messages), _AT_ONCE)):
            async with asyncio.timeout(confirm_s):
                calls = (answered(self._publish_one(message)) for message in part)
                results = await asyncio.gather(*calls, return_exceptions=True)
            for message, result in zip(part, results, strict=True):
                if isinstance(result, DeliveryError):
                    refused.append(message)
                elif isinstance(result, BaseException):
                    raise result
                elif not result:
                    lost.append(message)
        return lost, refused

    async def _publish_one(self, message: Message) -> bool:
        # The client finds a returned message by its id: no two on their way may share one.
        name = message.message_id or new_id()
        if name in self._in_flight:
            name = f"{name[:200]}~{next(self._numbers)}"
        self._in_flight.add(name)
        try:
            properties = aio_pika.Message(
                b"",
                headers=message.headers,
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                message_id=name,
            ).properties
            if message.expiration_ms is not None:
                properties.expiration = str(message.expiration_ms)
            await self._publisher.basic_publish(
                message.body,
                exchange="" if message.is_direct else EXCHANGE,
                routing_key=message.routing_key,
                properties=properties,
                mandatory=message.mandatory,
                wait=False,
            )
        except PublishError:
            return False
        finally:
            self._in_flight.discard(name)
        return True

    async def declare(self, queues: Mapping[str, Sequence[str]]) -> None:
        """Declare and bind without waiting for each answer. Raises one of TROUBLE, or Conflict."""

        async def declare(channel: Channel, names: Sequence[str]) -> None:
            await channel.exchange_declare(EXCHANGE, exchange_type="topic", durable=True, nowait=True)
            for name in names:
                await channel.queue_declare(name, durable=True, nowait=True)
                for pattern in queues[name]:
                    await channel.queue_bind(name, EXCHANGE, pattern, nowait=True)
            await channel.basic_qos(prefetch_count=1)  # for its answer only

        try:
            await self._administer(list(queues), declare)
        except ChannelPreconditionFailed as error:
            text = f"the broker has one of these queues with other properties: {error}"
            raise Conflict(text, code="other_queue", hint="delete that queue on the broker") from error

    async def delete(self, names: Iterable[str]) -> None:
        async def delete(channel: Channel, names: Sequence[str]) -> None:
            for name in names:
                await channel.queue_delete(name, nowait=True)
            await channel.basic_qos(prefetch_count=1)  # for its answer only

        await self._administer(list(names), delete)

    async def count_consumers(self, queue: str) -> int:
        """Raises one of TROUBLE, or NotFound."""
        found = 0

        async def look(channel: Channel, names: Sequence[str]) -> None:
            nonlocal found
            found = (await channel.queue_declare(queue, passive=True)).consumer_count or 0

        try:
            await self._administer([queue], look)
        except ChannelNotFoundEntity as error:
            raise NotFound(f"no queue {queue}", code="no_queue", hint="declare it first") from error
        return found

    async def consume(
        self, queue: str, callback: Callable[[DeliveredMessage], Coroutine[Any, Any, None]], prefetch: int, tag: str
    ) -> None:
        """`count_consumers` has found the queue: a refusal here would close a channel that others use.

        Raises one of TROUBLE.
        """
        async with asyncio.timeout(self._answer_s):
            async with self._consume_lock:
                channel = self._consuming.get(prefetch)
                if channel is None:
                    channel = await open_channel(self._listening, confirms=False)
                    await answered(channel.basic_qos(prefetch_count=prefetch))  # counts for each consumer by itself
                    channel.on_consumer_cancel_callbacks.add(self._on_cancelled)
                    self._watch(channel)
                    self._consuming[prefetch] = channel
            await answered(channel.basic_consume(queue, callback, consumer_tag=tag))
        self._channel_of[tag] = channel

    async def unsubscribe(self, tag: str) -> None:
        channel = self._channel_of.pop(tag, None)
        if channel is not None and not channel.is_closed:
            async with asyncio.timeout(self._answer_s):
                await answered(channel.basic_cancel(tag))

    async def drop(self, tags: Iterable[str]) -> None:
        """Unsubscribe consumers whose queues are about to be deleted: what is on its way to them is lost."""
        channels = set()
        for tag in tags:
            channel = self._channel_of.pop(tag, None)
            if channel is not None:
                await answered(channel.basic_cancel(tag, nowait=True))
                channels.add(channel)
        async with asyncio.timeout(self._answer_s):
            for prefetch, channel in list(self._consuming.items()):
                if channel in channels:
                    await answered(channel.basic_qos(prefetch_count=prefetch))  # its answer comes after the cancels

    async def _on_cancelled(self, frame: Any) -> None:
        tag = frame.consumer_tag
        if self._channel_of.pop(tag, None) is not None:
            self._ended(tag)

    async def _administer(self, names: Sequence[str], work: Work) -> None:
        """Spread the work over the desks: the broker takes milliseconds for a queue, and serves several at a time."""
        size = max(1, min(_PART, -(-len(names) // len(self._desks))))
        parts = [names[start : start + size] for start in range(0, len(names), size)]
        results = await asyncio.gather(*(next(self._turns).do(part, work) for part in parts), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
