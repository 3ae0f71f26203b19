"""Lua scripts: read once from the package, run by SHA, loaded again when a server forgot them.

Every script of the product is safe to repeat after a lost reply, so `run` retries on connection trouble.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import redis.asyncio
import redis.exceptions as rex

from tradewind.errors import Unavailable
from tradewind.redis.connection import RETRYABLE, Link, translated
from tradewind.redis.faults import WrongType, is_wrong_type
from tradewind.redis.key_types import expected_type
from tradewind.redis.packing import pack

_INCLUDE = re.compile(r"^-- include: (?:(\w+)/)?(\w+)$", re.M)

#: How long to wait here when the server refuses to.
FULL_PAUSE_S = 0.1
#: How many keys are looked at when one of them holds a wrong type.
MAX_LOOKED = 100

Arg = str | bytes | int | float
Call = tuple[str, Sequence[str], Sequence[Arg]]


@cache
def source(package: str, name: str) -> str:
    """The text of `{package}/lua/{name}.lua` with its includes in place; `tasks/shared` is one of another room."""

    def read(room: str, file: str) -> str:
        return (resources.files(room) / "lua" / f"{file}.lua").read_text(encoding="utf-8")

    return _INCLUDE.sub(lambda m: read(f"tradewind.{m[1]}" if m[1] else package, m[2]), read(package, name))


@cache
def sha(package: str, name: str) -> str:
    return hashlib.sha1(source(package, name).encode()).hexdigest()


async def _reply(connection: Any) -> Any:
    """One reply; an error that the server answers is returned, so that the replies after it are read, too."""
    try:
        return await connection.read_response()
    except (rex.ConnectionError, rex.TimeoutError):
        raise
    except rex.ResponseError as error:
        return error


class Scripts:
    """The scripts of one room on one link. After connection trouble a call is tried `retries` times more."""

    def __init__(self, link: Link, package: str, retries: int = 3) -> None:
        self.link = link
        self._package = package
        self._attempts = retries + 1

    def command(self, call: Call) -> tuple[Arg, ...]:
        name, keys, args = call
        return ("EVALSHA", sha(self._package, name), len(keys), *keys, *args)

    async def run(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        return (await self.run_all([(name, keys, args)]))[0]

    async def run_all(
        self, calls: Sequence[Call], *, first: Sequence[Arg] | None = None, client: redis.asyncio.Redis | None = None
    ) -> list[Any]:
        """Run the scripts in order in one round trip; the replies in order.

        `first` is a command sent before them in the same round trip (a blocking one delays the scripts on the
        server, not on the wire); its reply is dropped. Raises Unavailable when the server stays away.
        """
        failed = forgotten = 0
        while forgotten < 3:
            try:
                if forgotten:
                    await self.load(calls)
                return await self._once(calls, first, client or self.link.client)
            except rex.NoScriptError:
                forgotten += 1
            except RETRYABLE as error:
                failed += 1
                if failed == self._attempts:
                    with translated():
                        raise error
                await asyncio.sleep(random.uniform(0.5, 1.0) * 0.1 * 4 ** (failed - 1))
                await self._refresh()
            except rex.RedisError as error:
                if is_wrong_type(error):
                    raise WrongType(await self._wrong_keys(calls, client or self.link.client)) from error
                with translated():
                    raise error
            first = None  # it may have been carried out: what it waited for has come, and will not come again
        raise Unavailable("a script was loaded but the server keeps forgetting it", hint="is SCRIPT FLUSH being run?")

    async def _once(self, calls: Sequence[Call], first: Sequence[Arg] | None, client: redis.asyncio.Redis) -> list[Any]:
        """Straight to a connection: redis-py's pipeline costs more than these calls take."""
        commands = [self.command(call) for call in calls]
        if first is not None:
            commands.insert(0, tuple(first))
        pool: Any = client.connection_pool  # a WaitingPool
        connection = await pool.borrow()
        try:
            await connection.send_packed_command([b"".join(map(pack, commands))])
            replies = [await _reply(connection) for _ in commands]
        except BaseException:  # also a cancellation: unread replies must not meet the next caller
            await connection.disconnect(nowait=True)
            await pool.release(connection)
            raise
        await pool.give_back(connection)
        if first is not None and isinstance(replies.pop(0), rex.OutOfMemoryError):
            await asyncio.sleep(FULL_PAUSE_S)  # a full server refuses to wait on a list, but runs the scripts
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def _wrong_keys(self, calls: Sequence[Call], client: redis.asyncio.Redis) -> list[str]:
        """The keys of the calls that hold another type than redis/keys.py says: a script does not tell which it was."""
        names = list(dict.fromkeys(key for _, keys, _ in calls for key in keys))[:MAX_LOOKED]
        with translated():
            pipe: Any = client.pipeline(transaction=False)
            for name in names:
                pipe.type(name)
            types = await pipe.execute()
        found = [
            f"{name} (a {kind.decode()})"
            for name, kind in zip(names, types, strict=True)
            if (expected := expected_type(name)) is not None and kind.decode() not in ("none", expected)
        ]
        return found or names

    async def load(self, calls: Sequence[Call]) -> None:
        for name in {call[0] for call in calls}:
            await self.link.client.script_load(source(self._package, name))

    async def _refresh(self) -> None:
        with contextlib.suppress(Unavailable, *RETRYABLE):  # the next attempt says so
            await self.link.refresh()
