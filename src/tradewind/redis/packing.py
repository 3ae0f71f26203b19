"""Connections with a short way to the socket.

redis-py's asyncio connections pack commands in Python into a list of small buffers, send each in a task of its own
(for the timeout) and read before every use. For a script call that costs more than the call itself. Here hiredis packs
in one piece, the timeout guards only a full buffer, and a look at the stream tells whether it is fit for use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import hiredis
import redis


def pack(args: tuple[Any, ...]) -> bytes:
    """One command in the Redis protocol; a name of several words ("CONFIG GET") becomes several arguments."""
    name = args[0]
    if isinstance(name, str) and " " in name:
        args = (*name.split(), *args[1:])
    data: bytes = hiredis.pack_command(args)
    return data


def packed(kind: type[Any]) -> type[Any]:
    """The connection class with its packing replaced."""

    class Packed(kind):  # type: ignore[misc]
        def pack_command(self, *args: Any) -> list[bytes]:
            return [pack(args)]

        def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
            return [b"".join(pack(tuple(command)) for command in commands)]

        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            if not self.is_connected or not isinstance(command, list):
                await super().send_packed_command(command, check_health)
                return
            try:
                self._writer.write(command[0] if len(command) == 1 else b"".join(command))
                if self._writer.transport.is_closing() or self._writer.transport.get_write_buffer_size():
                    async with asyncio.timeout(self.socket_timeout):
                        await self._writer.drain()
            except TimeoutError:
                await self.disconnect(nowait=True)
                raise redis.TimeoutError("timeout while writing to the socket") from None
            except OSError as error:
                await self.disconnect(nowait=True)
                raise redis.ConnectionError(f"the connection broke while writing: {error}") from error
            except BaseException:  # half a command may be out
                await self.disconnect(nowait=True)
                raise

        def is_quiet(self) -> bool:
            """Connected to where it shall be, nothing unread, not closed by the other side as far as is known."""
            stream = self._reader
            if not self.is_connected or stream is None or getattr(self, "is_elsewhere", False):
                return False
            return not (stream._buffer or stream.at_eof() or stream.exception())

    Packed.__name__ = f"Packed{kind.__name__}"
    return Packed
