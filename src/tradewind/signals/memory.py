"""A topic exchange inside the process, with the semantics of the broker; what it holds is gone with the process."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tradewind.errors import Invalid, NotFound, Overloaded, Unavailable
from tradewind.signals.exchange import Consumer, Delivery, Exchange, Handler, Message, Unroutable
from tradewind.signals.routing import check_length
from tradewind.signals.subscription import Outcome, Redelivery, Settle, Subscription
from tradewind.signals.topic_tree import TopicTree


class _Kept(msgspec.Struct, order=True):
    """A message in one queue. Ordered by `number`, which no two share, so that it returns to its place."""

    number: int
    message: Message
    expires_at: float | None
    redelivered: bool = False


class _Queue:
    """Messages that wait, bindings, and consumers in turn; what a handler has is in `unsettled`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bindings: set[str] = set()
        self.consumers: list[Subscription] = []
        self.waiting: list[_Kept] = []
        self.unsettled = 0
        self.is_deleted = False

    def put(self, kept: _Kept) -> None:
        heapq.heappush(self.waiting, kept)

    def pump(self, now: float) -> None:
        """Give out what waits, oldest first, to the consumers that have room, in turn."""
        while self.waiting:
            if self.waiting[0].expires_at is not None and self.waiting[0].expires_at < now:
                heapq.heappop(self.waiting)
                continue
            consumer = next((one for one in self.consumers if one.room > 0), None)
            if consumer is None:
                return
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
            kept = heapq.heappop(self.waiting)
            self.unsettled += 1
            consumer.start(self._delivery(kept), self._settle(kept))

    def _delivery(self, kept: _Kept) -> Delivery:
        message = kept.message
        return Delivery(
            routing_key=message.routing_key,
            body=message.body,
            headers=dict(message.headers),
            expiration_ms=message.expiration_ms,
            message_id=message.message_id,
            queue=self.name,
            redelivered=kept.redelivered,
        )

    def _settle(self, kept: _Kept) -> Settle:
        async def settle(outcome: Outcome) -> None:
            self.unsettled -= 1
            if outcome is Outcome.REQUEUE and not self.is_deleted:
                kept.redelivered = True
                self.put(kept)
            self.pump(asyncio.get_running_loop().time())

        return settle


class MemoryExchange(Exchange):
    """At most `max_waiting` messages in a queue (waiting or being handled); a publish that would exceed it is refused
    as a whole with Overloaded."""

    def __init__(self, *, max_waiting: int = 10_000, redelivery: Redelivery | None = None) -> None:
        self._max_waiting = max_waiting
        self._redelivery = redelivery or Redelivery()
        self._queues: dict[str, _Queue] = {}
        self._tree: TopicTree[str] = TopicTree()
        self._numbers = itertools.count()
        self._consumers: set[Subscription] = set()
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        await asyncio.gather(*(consumer.cancel() for consumer in list(self._consumers)))

    def queue_names(self) -> list[str]:
        return sorted(self._queues)

    async def declare_many(self, queues: Mapping[str, Sequence[str]]) -> None:
        self._check_open()
        for name, patterns in queues.items():
            for text in (name, *patterns):
                check_length(text)
        for name, patterns in queues.items():
            queue = self._queues.setdefault(name, _Queue(name))
            for pattern in patterns:
                queue.bindings.add(pattern)
                self._tree.add(pattern, name)

    async def delete_queues(self, names: Iterable[str]) -> None:
        self._check_open()
        for name in names:
            queue = self._queues.pop(name, None)
            if queue is None:
                continue
            queue.is_deleted = True
            queue.waiting.clear()
            for pattern in queue.bindings:
                self._tree.discard(pattern, name)
            for consumer in queue.consumers:
                consumer.end()

    async def publish(self, messages: Sequence[Message]) -> None:
        self._check_open()
        for message in messages:
            check_length(message.routing_key)
        targets = [self._targets(message) for message in messages]
        for name, count in Counter(name for names in targets for name in names).items():
            queue = self._queues[name]
            if len(queue.waiting) + queue.unsettled + count > self._max_waiting:
                text = f"queue {name} has {len(queue.waiting)} messages waiting, and room for {self._max_waiting} only"
                raise Overloaded(text, code="queue_full", hint="consume faster, or delete the queue")
        now = asyncio.get_running_loop().time()
        for message, names in zip(messages, targets, strict=True):
            expires_at = None if message.expiration_ms is None else now + message.expiration_ms / 1000
            for name in names:
                self._queues[name].put(_Kept(next(self._numbers), message, expires_at))
        for name in dict.fromkeys(name for names in targets for name in names):
            self._queues[name].pump(now)
        lost = [message for message, names in zip(messages, targets, strict=True) if message.mandatory and not names]
        if lost:
            raise Unroutable(lost)

    async def consume(self, queue: str, handler: Handler, prefetch: int = 1) -> Consumer:
        self._check_open()
        if prefetch < 1:
            raise Invalid(f"prefetch is {prefetch}", code="bad_prefetch", hint="1 or more")
        check_length(queue)
        if queue not in self._queues:
            raise NotFound(f"no queue {queue}", code="no_queue", hint="declare it first")
        place = self._queues[queue]

        async def leave(consumer: Subscription) -> None:
            if consumer in place.consumers:
                place.consumers.remove(consumer)

        consumer = Subscription(queue, handler, prefetch, self._redelivery, leave, self._consumers)
        consumer.others = len(place.consumers)
        place.consumers.append(consumer)
        place.pump(asyncio.get_running_loop().time())
        return consumer

    async def consumers(self, queue: str) -> int:
        self._check_open()
        if queue not in self._queues:
            raise NotFound(f"no queue {queue}", code="no_queue", hint="declare it first")
        return len(self._queues[queue].consumers)

    def _targets(self, message: Message) -> Iterable[str]:
        key = message.routing_key
        if message.is_direct:
            return [key] if key in self._queues else []
        return self._tree.find(key)

    def _check_open(self) -> None:
        if not self._is_open:
            raise Unavailable("the exchange is not open", code="exchange_closed", hint="open it first")
