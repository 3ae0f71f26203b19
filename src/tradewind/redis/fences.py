"""Fences: a key that another program has spoilt, or a step that fails, holds up no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from tradewind.errors import TradewindError
from tradewind.redis.faults import WrongType, other_types


def sorted_out(commands: Sequence[Sequence[Any]], replies: Sequence[Any]) -> list[Any]:
    """Replies of commands whose second word is the key: a WrongType where that holds another type. Raises every other
    error, which may pass (the server loads, a slot moves): nothing is known then."""
    return [
        WrongType([str(command[1])]) if isinstance(reply, Exception) else reply
        for command, reply in zip(commands, other_types(replies), strict=True)
    ]


async def do_all(*steps: Callable[[], Awaitable[Any]]) -> None:
    """Take all steps in order: one that fails holds up none after it. Raises the first error then."""
    first: Exception | None = None
    for step in steps:
        try:
            await step()
        except (TradewindError, RedisError) as error:
            first = first or error
    if first is not None:
        raise first
