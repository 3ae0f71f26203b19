"""What both transports do with a delivery: run the handler, then settle; bounded redelivery, a clean end."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import structlog

from tradewind.errors import TimedOut, Unavailable
from tradewind.signals.exchange import Consumer, Delivery, Handler

log = structlog.get_logger(__name__)

_REMEMBERED = 1000


class Outcome(Enum):
    ACK = auto()
    REQUEUE = auto()
    DROP = auto()


Settle: TypeAlias = Callable[[Outcome], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Redelivery:
    """How often a message whose handler failed comes back, and after which pauses (doubling from first to longest)."""

    most: int = 5
    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0

    def pause_s(self, times: int) -> float:
        return min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(times - 1, 30))


@dataclass(slots=True)
class _Returns:
    """How often one message went back, and how often that was its handler's failure."""

    count: int = 0
    failures: int = 0


class Subscription(Consumer):
    """Failures are counted here, not in the message, so a consumer that starts anew counts anew.

    It stands in `members` until it has ended and its last handler, too.
    """

    def __init__(
        self,
        queue: str,
        handler: Handler,
        prefetch: int,
        redelivery: Redelivery,
        unsubscribe: Callable[[Subscription], Awaitable[None]],
        members: set[Subscription],
    ) -> None:
        self.queue, self.prefetch = queue, prefetch
        self._handler, self._redelivery = handler, redelivery
        self._unsubscribe, self._members = unsubscribe, members
        self._running: set[asyncio.Task[None]] = set()
        self._held = 0
        self._in_hand: dict[object, str] = {}
        self._returns: OrderedDict[str, _Returns] = OrderedDict()
        self._is_ended = False
        members.add(self)

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    @property
    def unsettled(self) -> set[str]:
        return {*self._in_hand.values(), *self._returns}

    @property
    def room(self) -> int:
        """How many more messages it may be given now."""
        return 0 if self._is_ended else self.prefetch - self._held

    def end(self) -> None:
        """Start no more handlers."""
        self._is_ended = True
        if not self._running:
            self._members.discard(self)

    def start(self, delivery: Delivery, settle: Settle) -> None:
        """Run the handler; `settle` is called once, when there is room again."""
        self._held += 1
        task = asyncio.create_task(self._handle(delivery, settle), name=f"signal handler of {self.queue}")
        self._running.add(task)
        self._in_hand[task] = _name(delivery)
        task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._in_hand.pop(task, None)
        if self._is_ended:
            self.end()

    async def cancel(self, grace_s: float = 5.0) -> None:
        self._is_ended = True
        try:
            await self._unsubscribe(self)
        finally:
            others = self._running - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=grace_s)  # even with 0 they have begun, and so can settle
            for task in (left := [task for task in others if not task.done()]):
                task.cancel()
            if left:
                await asyncio.wait(left)
            self.end()

    async def _handle(self, delivery: Delivery, settle: Settle) -> None:
        outcome = Outcome.REQUEUE  # also when we are cancelled
        try:
            outcome = await self._run(delivery)
        finally:
            self._held -= 1
            await settle(outcome)

    async def _run(self, delivery: Delivery) -> Outcome:
        name = _name(delivery)
        try:
            await self._handler(delivery)
        except (Unavailable, TimedOut) as error:  # not the message's fault: it waits as long as that lasts
            returns = self._count(name, is_failure=False)
            log.warning("signal waits", queue=self.queue, key=delivery.routing_key, error=error.message)
        except Exception as error:
            returns = self._count(name, is_failure=True)
            about = {"queue": self.queue, "key": delivery.routing_key, "message": name, "failures": returns.failures}
            if returns.failures > self._redelivery.most:
                del self._returns[name]
                log.error("signal dropped, its handler failed every time", **about, exc_info=error)
                return Outcome.DROP
            log.warning("signal handler failed", **about, error=repr(error))
        else:
            self._returns.pop(name, None)
            return Outcome.ACK
        await asyncio.sleep(self._redelivery.pause_s(returns.count))
        return Outcome.REQUEUE

    def _count(self, name: str, *, is_failure: bool) -> _Returns:
        returns = self._returns.setdefault(name, _Returns())
        self._returns.move_to_end(name)
        returns.count += 1
        returns.failures += is_failure
        if len(self._returns) > _REMEMBERED:
            self._returns.popitem(last=False)
        return returns


def _name(delivery: Delivery) -> str:
    if delivery.message_id:
        return delivery.message_id
    return hashlib.blake2b(delivery.routing_key.encode() + b"\n" + delivery.body, digest_size=12).hexdigest()
