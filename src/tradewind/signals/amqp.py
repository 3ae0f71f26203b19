"""The exchange on RabbitMQ: `signals_exchange`, confirmed persistent messages, durable queues without arguments.

It reconnects by itself; consumers go on where they were. While the broker is away, calls wait a while and then raise
Unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import structlog
from aio_pika.exceptions import AuthenticationError, ProbableAuthenticationError

from tradewind.errors import Invalid, NotFound, Unavailable
from tradewind.ids import new_id
from tradewind.masking import masked_url, secrets_of, struck_out
from tradewind.signals.amqp_channels import TROUBLE
from tradewind.signals.amqp_link import AmqpLink
from tradewind.signals.exchange import Consumer, Delivery, Exchange, Handler, Message, Refused, Unroutable
from tradewind.signals.routing import check_length, fits
from tradewind.signals.subscription import Outcome, Redelivery, Settle, Subscription

if TYPE_CHECKING:
    from aiormq.abc import DeliveredMessage

log = structlog.get_logger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class AmqpExchange(Exchange):
    """`connect_s`: to connect; `answer_s`: to answer 25 declarations; `confirm_s`: to confirm 250 messages."""

    def __init__(
        self,
        url: str,
        *,
        connect_s: float = 5.0,
        answer_s: float = 10.0,
        confirm_s: float = 5.0,
        redelivery: Redelivery | None = None,
    ) -> None:
        self._url, self._connect_s, self._answer_s, self._confirm_s = url, connect_s, answer_s, confirm_s
        self._redelivery = redelivery or Redelivery()
        self._link: AmqpLink | None = None
        self._ready = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._consumers: set[Subscription] = set()
        self._tags: dict[Subscription, tuple[AmqpLink, str]] = {}

    async def open(self) -> None:
        if self._keeper is not None:
            return
        async with self._translated():
            self._link = await self._connect()
        self._ready.set()
        self._keeper = asyncio.create_task(self._keep(self._link), name="signals broker keeper")

    async def close(self) -> None:
        await asyncio.gather(*(consumer.cancel() for consumer in list(self._consumers)))
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def declare_many(self, queues: Mapping[str, Sequence[str]]) -> None:
        for name, patterns in queues.items():
            for text in (name, *patterns):
                check_length(text)
        async with self._translated():
            await (await self._live(self._answer_s)).declare(queues)

    async def delete_queues(self, names: Iterable[str]) -> None:
        gone = {name for name in names if fits(name)}
        async with self._translated():
            link = await self._live(self._answer_s)
            ended = [consumer for consumer in self._tags if consumer.queue in gone]
            for consumer in ended:
                consumer.end()
            places = [self._tags.pop(consumer) for consumer in ended]
            await link.drop([tag for place, tag in places if place is link])
            await link.delete(gone)

    async def publish(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        for message in messages:
            check_length(message.routing_key)
        async with self._translated():
            link = await self._live(self._confirm_s)
            try:
                lost, refused = await link.publish(messages, self._confirm_s)
            except (TypeError, ValueError) as error:
                hint = "headers are text, numbers, booleans, lists and dicts of them"
                raise Invalid(f"a message cannot be carried: {error}", code="bad_message", hint=hint) from error
        if refused:
            raise Refused([*lost, *refused])
        if lost:
            raise Unroutable(lost)

    async def consume(self, queue: str, handler: Handler, prefetch: int = 1) -> Consumer:
        if not 0 < prefetch <= 65_535:
            raise Invalid(f"prefetch is {prefetch}", code="bad_prefetch", hint="from 1 to 65535")
        check_length(queue)
        consumer = Subscription(queue, handler, prefetch, self._redelivery, self._unsubscribe, self._consumers)
        try:
            async with self._translated():
                await self._subscribe(consumer, await self._live(self._answer_s))
        except BaseException:
            consumer.end()
            raise
        return consumer

    async def consumers(self, queue: str) -> int:
        check_length(queue)
        async with self._translated():
            return await (await self._live(self._answer_s)).count_consumers(queue)

    async def _subscribe(self, consumer: Subscription, link: AmqpLink) -> None:
        tag = f"tradewind.{new_id()}"

        async def take(message: DeliveredMessage) -> None:
            settle = self._settle(message)
            if consumer.is_ended:
                await settle(Outcome.REQUEUE)
            else:
                consumer.start(_delivery(message, consumer.queue), settle)

        consumer.others = await link.count_consumers(consumer.queue)
        await link.consume(consumer.queue, take, consumer.prefetch, tag)
        self._tags[consumer] = link, tag
        if consumer.is_ended:  # cancelled meanwhile
            await self._unsubscribe(consumer)

    async def _unsubscribe(self, consumer: Subscription) -> None:
        if (place := self._tags.pop(consumer, None)) is not None:
            link, tag = place
            with suppress(*TROUBLE):  # a connection in trouble has no consumers
                await link.unsubscribe(tag)

    def _settle(self, message: DeliveredMessage) -> Settle:
        channel, number = message.channel, message.delivery_tag

        async def settle(outcome: Outcome) -> None:
            assert number is not None
            with suppress(*TROUBLE):  # the broker gives an unsettled message out again
                async with asyncio.timeout(self._answer_s):
                    if outcome is Outcome.ACK:
                        await channel.basic_ack(number, wait=False)
                    else:
                        await channel.basic_nack(number, requeue=outcome is Outcome.REQUEUE, wait=False)

        return settle

    async def _live(self, timeout_s: float) -> AmqpLink:
        """The connection, after waiting for a new one if it is lost."""
        async with asyncio.timeout(timeout_s):
            while True:
                if self._keeper is None or self._link is None:
                    raise Unavailable("the exchange is not open", code="exchange_closed", hint="open it first")
                if not self._link.lost.is_set():
                    return self._link
                self._ready.clear()
                await self._ready.wait()

    async def _keep(self, link: AmqpLink) -> None:
        while True:
            await link.lost.wait()
            self._ready.clear()
            log.warning("lost the broker", broker=masked_url(self._url), consumers=len(self._tags))
            await link.close()
            self._link = link = await self._reconnect()
            self._ready.set()
            log.info("the broker is back", broker=masked_url(self._url), consumers=len(self._tags))

    async def _reconnect(self) -> AmqpLink:
        pause_s, told = _FIRST_PAUSE_S, ""
        while True:
            link = None
            try:
                link = await self._connect()
                await self._resubscribe(link)
                return link
            except BaseException as error:
                if link is not None:
                    await link.close()
                if not isinstance(error, Exception):
                    raise
                if (text := self._say(error)) != told:  # whatever it is, the next attempt may succeed
                    told = text
                    log.warning("cannot reach the broker yet", broker=masked_url(self._url), error=text)
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    async def _resubscribe(self, link: AmqpLink) -> None:
        for consumer in list(self._tags):
            if consumer.is_ended:
                continue
            try:
                await self._subscribe(consumer, link)
            except NotFound:
                self._tags.pop(consumer, None)
                consumer.end()
                log.warning("queue was deleted while the broker was away", queue=consumer.queue)

    async def _connect(self) -> AmqpLink:
        return await AmqpLink.open(
            self._url, connect_s=self._connect_s, answer_s=self._answer_s, ended=self._queue_deleted
        )

    def _queue_deleted(self, tag: str) -> None:
        for consumer in [consumer for consumer, (_, its) in self._tags.items() if its == tag]:
            del self._tags[consumer]
            consumer.end()

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        where = f"RabbitMQ at {masked_url(self._url)}"
        try:
            yield
        except (AuthenticationError, ProbableAuthenticationError) as error:
            hint = "check user, password and virtual host in amqp.url, and the rights of that user"
            raise Unavailable(f"{where} refuses us: {self._say(error)}", code="amqp_auth", hint=hint) from None
        except TROUBLE as error:
            text = f"{where} does not answer: {self._say(error)}"
            raise Unavailable(text, code="amqp_unavailable", hint="check the broker and amqp.url") from None

    def _say(self, error: BaseException) -> str:
        """The error in words that do not have our password in them."""
        text = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return struck_out(text, secrets_of(self._url))


def _delivery(message: DeliveredMessage, queue: str) -> Delivery:
    properties = message.header.properties
    expiration = properties.expiration or ""
    return Delivery(
        routing_key=message.routing_key or "",
        body=message.body,
        headers=dict(properties.headers or {}),
        expiration_ms=int(expiration) if expiration.isascii() and expiration.isdigit() else None,
        message_id=properties.message_id or "",
        queue=queue,
        redelivered=bool(message.redelivered),
    )
