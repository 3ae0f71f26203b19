"""The seam between the rooms and whatever carries their signals: a topic exchange with queues, confirms and acks.

`memory.py` and `amqp.py` keep the same promises; tests/signals/test_contract.py holds both to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from tradewind.errors import Conflict, Unavailable


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is published. `expiration_ms`: not delivered after so long in a queue. `mandatory`: no queue is an error.
    `is_direct`: the routing key is the name of a queue, and no other queue gets it.

    `message_id` names the message, not the signal: one signal to two handles is two messages.
    """

    routing_key: str
    body: bytes
    headers: dict[str, Any] = {}
    expiration_ms: int | None = None
    mandatory: bool = True
    message_id: str = ""
    is_direct: bool = False


class Delivery(Message, frozen=True, kw_only=True):
    """A message as it comes out of `queue`. `redelivered`: it may have been handled before, wholly or in part."""

    queue: str = ""
    redelivered: bool = False


Handler: TypeAlias = Callable[[Delivery], Awaitable[None]]


class Unroutable(Conflict):
    """Mandatory messages found no queue. `messages` are these; all others of the call arrived."""

    code = "unroutable"

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = tuple(messages)
        keys = ", ".join(message.routing_key for message in self.messages[:5])
        more = f" and {len(self.messages) - 5} more" if len(self.messages) > 5 else ""
        hint = "declare the queue and its binding before publishing; the cycle may have ended"
        super().__init__(f"no queue is bound for {keys}{more}", hint=hint)


class Refused(Unavailable):
    """The broker did not take some messages: a queue is at its limit. `messages` are these; all others arrived."""

    code = "refused"

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = tuple(messages)
        text = f"the broker did not take {len(self.messages)} messages, such as {messages[0].routing_key}"
        super().__init__(text, hint="publish them again; see the policies of the broker")


class Consumer(ABC):
    """One subscription to a queue. It goes on after a lost connection, and ends when its queue is deleted."""

    queue: str
    #: How many others consumed the queue when this one came: they may hold messages that are older than what it gets.
    others: int = 0

    @property
    @abstractmethod
    def unsettled(self) -> set[str]:
        """The ids (without one, a hash) of messages that it holds, or gave back and has not settled since."""

    @property
    @abstractmethod
    def is_ended(self) -> bool:
        """True once no handler will be started any more."""

    @abstractmethod
    async def cancel(self, grace_s: float = 5.0) -> None:
        """Take no more messages; let running handlers end for `grace_s`, then cancel them.

        What was not acknowledged is back in the queue afterwards, marked as redelivered. May be called twice, and by a
        handler (which is then not waited for).
        """


class Exchange(ABC):
    """A topic exchange. Messages are kept in every queue with a matching binding until a handler has returned.

    Every call is bounded in time and raises Unavailable when the exchange is closed or the broker does not answer.
    """

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Make it ready; once. Raises Unavailable when the broker cannot be reached, Conflict when it has another
        exchange of that name."""

    @abstractmethod
    async def close(self) -> None:
        """Cancel all consumers and let go. Queues and messages stay where the exchange keeps them (a broker)."""

    @abstractmethod
    async def declare_many(self, queues: Mapping[str, Sequence[str]]) -> None:
        """Make sure that these queues exist, each bound with its patterns; when it returns, messages reach them.

        Declaring again adds bindings and keeps messages. Raises Invalid for names and patterns of more than 255 bytes,
        Conflict when the broker has such a queue with other properties.
        """

    async def declare_queue(self, name: str, bindings: Sequence[str]) -> None:
        await self.declare_many({name: bindings})

    @abstractmethod
    async def delete_queues(self, names: Iterable[str]) -> None:
        """Delete these queues with all their messages and bindings, and end their consumers; unknown ones are fine."""

    @abstractmethod
    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish in this order; returns when every message is safe in all its queues.

        Raises Unroutable for mandatory messages without a queue, after the others arrived; Refused when the broker did
        not take some (these, and those without a queue, are in it); Unavailable when it is not known whether all
        arrived (publish again: arriving twice is the receiver's to bear); Overloaded when a queue is full and nothing
        was published; Invalid for a message that cannot be carried.
        """

    @abstractmethod
    async def consume(self, queue: str, handler: Handler, prefetch: int = 1) -> Consumer:
        """Hand the queue's messages to `handler`, `prefetch` of them at a time, started in their order.

        A message is acknowledged after its handler returned. After an Unavailable or TimedOut it goes back to its
        place, for as long as that lasts; after any other error a few times, then it is dropped with an error in the
        log. A growing pause comes before each return. Raises NotFound when there is no such queue.
        """

    @abstractmethod
    async def consumers(self, queue: str) -> int:
        """How many consume the queue now. Raises NotFound."""
