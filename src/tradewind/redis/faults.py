"""Which Redis errors may pass by themselves, our words for trouble with the server, and the door for faults of the
station itself: `report`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MaxConnectionsError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from tradewind.clock import now_ms
from tradewind.errors import Conflict, Invalid, Overloaded, TradewindError, Unavailable

if TYPE_CHECKING:
    from tradewind.redis.connection import Link
    from tradewind.redis.keys import Keys

#: Reports that wait for alarmsrv; beyond that the oldest go.
MAX_REPORTS = 10_000

#: How many keys a message names.
MAX_NAMED = 3
# redis-py names the command of a pipeline that failed; the key is its second word.
_PIPELINE = re.compile(r"^Command # \d+ \(\S+ (\S+?)[ )]")

#: Errors after which the same command may succeed, once `Link.refresh()` was called. Whether it has already been
#: carried out is not known: repeat only what may happen twice.
RETRYABLE: tuple[type[RedisError], ...] = (
    redis.ConnectionError,
    redis.TimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    ClusterDownError,
    MovedError,
    AskError,
    TryAgainError,
)
# Errors that redis-py has no class for: too few replicas, a script of somebody else runs for long, a
# server that became a replica let go who waited in a blocking read.
_SERVER_TROUBLE = ("NOREPLICAS", "BUSY ", "UNKILLABLE", "MASTERDOWN", "UNBLOCKED")


class WrongType(Conflict):
    """A key that is ours holds a value of another type: another program, or somebody by hand, has written it."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        named = ", ".join(keys[:MAX_NAMED]) or "a key"
        what = (
            "hold values of another type than they should"
            if len(keys) > 1
            else "holds a value of another type than it should"
        )
        hint = "look at it with redis-cli TYPE, then rename or remove it"
        super().__init__(
            f"{named} {what}", code="wrong_type", hint=hint if keys else f"`tradewind doctor` names it; {hint}"
        )
        self.keys = tuple(keys)


class SpoiltRecord(Conflict):
    """A record that another program, or somebody by hand, has written so that nobody can read it."""

    def __init__(self, what: str, error: object) -> None:
        hint = "`tradewind doctor` names it; write it again, or remove it"
        super().__init__(f"{what} cannot be read: {str(error)[:200]}", code="spoilt_record", hint=hint)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """`with reading("the task 't'"): ...` around what makes an object of stored text. Raises SpoiltRecord."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, msgspec.MsgspecError, Invalid) as error:
        raise SpoiltRecord(what, error) from error


def is_wrong_type(error: object) -> bool:
    """Redis-py has no class for it; a script tells it with its own words around."""
    return isinstance(error, WrongType) or (isinstance(error, ResponseError) and "WRONGTYPE" in str(error))


def other_types(replies: Sequence[Any]) -> Sequence[Any]:
    """Replies of a pipeline that ran with `raise_on_error=False`, so that a key of another type fails by itself: those
    stay errors. Raises any other error: a server that could not answer has not said that nothing is there."""
    for reply in replies:
        if isinstance(reply, Exception) and not is_wrong_type(reply):
            raise reply
    return replies


def translate(error: RedisError, where: object = "Redis") -> TradewindError | None:
    """Our word for trouble with the server; None for errors that are the fault of a command."""
    name = where if where == "Redis" else f"Redis at {where}"
    text = str(error).rpartition("of pipeline caused error: ")[2]  # without the command that redis-py puts before it
    if is_wrong_type(error):
        named = _PIPELINE.search(str(error))
        return WrongType([named[1]] if named else ())
    if isinstance(error, OutOfMemoryError):
        return Overloaded(f"{name} is out of memory", code="redis_full", hint="raise maxmemory or remove data")
    if isinstance(error, MaxConnectionsError):
        return Overloaded("all Redis connections are in use", code="redis_pool", hint="raise redis.pool_size")
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        hint = "check redis.password or the user and password in redis.url, and the rights of that user"
        return Unavailable(f"{name} refuses us: {text}", code="redis_auth", hint=hint)
    if isinstance(error, BusyLoadingError):
        return Unavailable(f"{name} is still loading its data", code="redis_loading", hint="try again in a moment")
    if isinstance(error, ResponseError) and text.startswith("MISCONF"):
        hint = "is its disk full? free some space: it goes on by itself, and keeps what it holds"
        return Unavailable(f"{name} refuses writes: {text}", code="redis_disk", hint=hint)
    if isinstance(error, RETRYABLE) or (isinstance(error, ResponseError) and text.startswith(_SERVER_TROUBLE)):
        return Unavailable(f"{name} does not answer: {text}", code="redis_unavailable", hint="check the Redis server")
    return None


class translated:
    """`with translated(link): ...` turns trouble with the server into Unavailable or Overloaded."""

    __slots__ = ("where",)

    def __init__(self, where: object = "Redis") -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, RedisError):
            ours = translate(error, self.where)
            if ours is not None:
                raise ours from error


async def report(
    link: Link,
    keys: Keys,
    code: str,
    source: str,
    message: str,
    level: str = "High",
    state: Literal["raise", "clear"] = "raise",
) -> None:
    """Tell of a fault of the station, or that it is over: alarmsrv raises or clears the alarm of rule `station` and
    that source. One alarm is open per source; `code` is for machines. With `clear` the message says why it is over.
    Raises Unavailable."""
    fields = fault_fields(code, source, message, level, state)
    client: Any = link.client
    with translated(link):
        await client.xadd(keys.faults(), fields, maxlen=MAX_REPORTS, approximate=True)


def fault_fields(
    code: str, source: str, message: str, level: str = "High", state: Literal["raise", "clear"] = "raise"
) -> dict[str, str]:
    """The entry of `report`, for threads that have a client of their own."""
    return {"code": code, "source": source, "level": level, "message": message, "state": state, "at": str(now_ms())}
