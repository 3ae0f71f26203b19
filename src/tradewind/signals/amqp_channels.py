"""Connections and channels of the AMQP client, with its habits kept away from the rest: see `answered`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import aio_pika
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import CONNECTION_EXCEPTIONS, ChannelInvalidStateError

if TYPE_CHECKING:
    from aiormq.channel import Channel

#: What may come out of a connection that is in trouble (a timeout is an OSError).
TROUBLE: tuple[type[BaseException], ...] = CONNECTION_EXCEPTIONS
HEARTBEAT_S = 10
# They log each failed attempt with its traceback; we say it once, in our words.
for _name in ("aiormq", "aio_pika"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)
T = TypeVar("T")
Work: TypeAlias = "Callable[[Channel, Sequence[str]], Awaitable[None]]"


class Lost(ConnectionError):
    """The connection went away while somebody waited for an answer."""


async def connect(url: str, purpose: str) -> AbstractConnection:
    options: dict[str, Any] = {} if "heartbeat=" in url else {"heartbeat": HEARTBEAT_S}
    properties: dict[str, Any] = {"connection_name": f"tradewind {purpose}"}
    return await answered(aio_pika.connect(url, client_properties=properties, **options))


async def open_channel(connection: AbstractConnection, *, confirms: bool) -> Channel:
    channel = connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
    await answered(channel.initialize())
    return cast("Channel", await channel.get_underlay_channel())


def _reason(channel: Channel) -> BaseException:
    """Why the broker closed the channel."""
    closing = channel.closing
    error = closing.exception() if closing.done() and not closing.cancelled() else None
    return error or Lost("the channel was closed")


async def close(connection: AbstractConnection, timeout_s: float) -> None:
    with suppress(*TROUBLE):
        async with asyncio.timeout(timeout_s):
            await answered(connection.close())


async def answered(call: Awaitable[T]) -> T:
    """The client cancels whoever waits on a connection that closes, or throws a bare Exception at them.

    Only our own cancellation may look like one: everything else becomes Lost.
    """
    try:
        return await call
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Lost("the connection was closed") from error
    except Exception as error:
        if type(error) is Exception:
            raise Lost("the connection was closed") from error
        raise


class Desk:
    """A channel for declarations, opened when needed and anew after a refusal, which closes it."""

    def __init__(self, connection: AbstractConnection, answer_s: float) -> None:
        self._connection, self._answer_s = connection, answer_s
        self._channel: Channel | None = None
        self._lock = asyncio.Lock()

    async def do(self, names: Sequence[str], work: Work) -> None:
        """Do it. Work that does not wait for answers asks for one at its end, so that all of it is done or refused."""
        async with self._lock, asyncio.timeout(self._answer_s):
            channel = self._channel
            if channel is None or channel.is_closed:
                channel = await open_channel(self._connection, confirms=False)
            self._channel = None  # until it has answered: it may be closed, or still at work for somebody who left
            try:
                await answered(work(channel, names))
            except ChannelInvalidStateError:
                raise _reason(channel) from None
            self._channel = channel
