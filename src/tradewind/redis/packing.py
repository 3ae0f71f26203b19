"""Commands packed by hiredis in one piece.

redis-py's asyncio connections pack in Python and hand the transport a list of small buffers; for a script call with a
thousand arguments that costs more than the call itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hiredis


def pack(args: tuple[Any, ...]) -> bytes:
    """One command in the Redis protocol; a name of several words ("CONFIG GET") becomes several arguments."""
    name = args[0]
    if isinstance(name, str) and " " in name:
        args = (*name.split(), *args[1:])
    return hiredis.pack_command(args)


def packed(kind: type[Any]) -> type[Any]:
    """The connection class with its packing replaced."""

    class Packed(kind):  # type: ignore[misc]
        def pack_command(self, *args: Any) -> list[bytes]:
            return [pack(args)]

        def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
            return [b"".join(pack(tuple(command)) for command in commands)]

    Packed.__name__ = f"Packed{kind.__name__}"
    return Packed
