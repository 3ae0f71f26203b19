"""The seed's messages as they come: for programs that want to see changes at once and can bear to miss some.

Rooms of this product read the feed instead.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from tradewind import codec
from tradewind.errors import Invalid
from tradewind.points.address import Address, is_number
from tradewind.points.board_read import BoardReader
from tradewind.points.spec import Kind
from tradewind.redis.connection import translated

_REREAD = re.compile(r"updated:[0-9]+")


class Change(msgspec.Struct, frozen=True):
    address: str
    value: float


@asynccontextmanager
async def watch(
    board: BoardReader,
    *,
    addresses: Sequence[Address | str] = (),
    channels: Sequence[str] = (),
    patterns: Sequence[str] = (),
) -> AsyncIterator[AsyncIterator[Change]]:
    """`async with watch(board, channels=["1001"]) as changes: async for change in changes: …`; once inside, nothing
    that is written is missed while the connection holds. Raises Unavailable when it breaks.

    Names may overlap: a change comes once per subscription that matches it, as Redis sends it. `channels` are ids or
    keys (`comsrv:1001:m`); `patterns` are globs over keys (`modsrv:*`).
    """
    plane = board.plane
    prefix = plane.keys.channel_prefix
    wanted: dict[str, set[str]] = {}
    for address in Address.parse_all(map(str, addresses)):
        wanted.setdefault(address.key, set()).add(address.field)
    whole = {key for channel in channels for key in _keys_of(channel)}
    if not (wanted or whole or patterns):
        raise Invalid("nothing to watch", code="nothing_to_watch", hint="name addresses, channels or patterns")
    client: Any = plane.link.new_client()
    pubsub = client.pubsub(ignore_subscribe_messages=False)
    try:
        with translated(plane.link):
            names = sorted(prefix + key for key in {*wanted, *whole})
            if names:
                await pubsub.subscribe(*names)
            if patterns:
                await pubsub.psubscribe(*(prefix + pattern for pattern in patterns))
            for _ in range(len(names) + len(patterns)):  # until the server has confirmed each
                await pubsub.parse_response(block=True)
        async with aclosing(_changes(board, pubsub, {key: wanted[key] for key in wanted if key not in whole})) as found:
            yield found
    finally:
        await pubsub.aclose()
        await client.aclose(close_connection_pool=True)


async def _changes(board: BoardReader, pubsub: Any, only: dict[str, set[str]]) -> AsyncGenerator[Change, None]:
    prefix = board.plane.keys.channel_prefix
    while True:
        with translated(board.plane.link):
            reply = await pubsub.parse_response(block=True)
        if reply is None or reply[0] not in (b"message", b"pmessage"):
            continue
        key = reply[-2].decode("utf-8", "replace").removeprefix(prefix)
        fields = only.get(key) if reply[0] == b"message" else None
        for field, value in await _parsed(board, key, reply[-1].decode("utf-8", "replace")):
            if fields is None or field in fields:
                yield Change(f"{key}:{field}", value)


async def _parsed(board: BoardReader, key: str, text: str) -> list[tuple[str, float]]:
    """`id:value`, several joined by commas, the seed's `updated:N` (read the hash again) and JSON objects."""
    if key.count(":") == 3:  # a channel per point
        key = key.rpartition(":")[0]
    if key.count(":") != 2:
        return []
    if _REREAD.fullmatch(text):
        points = await (board.read_model(key.split(":")[1]) if key[0] == "m" else _read_hash(board, key))
        return [(point.address.rpartition(":")[2], point.value) for point in points if point.value is not None]
    try:
        if text.startswith("{"):
            return [(str(field), float(value)) for field, value in codec.decode(text).items()]
        pairs = [pair.rpartition(":") for pair in text.split(",")]
        return [(field, float(value)) for field, _, value in pairs if field]
    except (ValueError, TypeError, Invalid):
        return []  # a message of somebody else


async def _read_hash(board: BoardReader, key: str) -> Sequence[Any]:
    _, channel, kind = key.split(":")
    return await board.read_channel(channel, [kind])


def _keys_of(channel: str) -> list[str]:
    if is_number(channel):
        return [f"comsrv:{channel}:{kind}" for kind in Kind]
    parts = channel.split(":")
    if len(parts) != 3:
        raise Invalid(
            f"{channel!r} is neither a channel nor a key", code="bad_channel", hint="write 1001 or comsrv:1001:m"
        )
    Address(parts[0], parts[1], parts[2], "0").checked()
    return [channel]
