"""What a command owes to its device: the write that must follow the first one (the 0 of a pulse). Pure.

It is stored in `cmd:owed` before the first write, with the target as it was then: the device stays on whatever becomes
of the channel's definition.
"""

from __future__ import annotations

import msgspec

from tradewind.points.address import Address
from tradewind.points.command_check import find_point
from tradewind.points.spec import ChannelSpec, PointSpec

_encoder = msgspec.json.Encoder()


class Owed(msgspec.Struct, frozen=True):
    """`raw` is to be written to the only point of `channel`, which is the connection as it was when it began; the
    point stands at `value` then. `due_ms`: when it should have been done. `is_told`: an alarm says that it was not."""

    address: Address
    command_id: str
    raw: float
    value: float
    channel: ChannelSpec
    since_ms: int
    due_ms: int = 0
    is_told: bool = False

    @property
    def point(self) -> PointSpec:
        return self.channel.points[0]

    def is_target_of(self, channel: ChannelSpec) -> bool:
        """Whether a driver of that channel writes to the same place."""
        now, then = find_point(channel, self.address), self.point
        return (
            now is not None
            and (channel.protocol, channel.parameters) == (self.channel.protocol, self.channel.parameters)
            and (now.mapping, now.data_type) == (then.mapping, then.data_type)
        )


class _Stored(msgspec.Struct, frozen=True):
    raw: float
    value: float
    since_ms: int
    channel: ChannelSpec


_decoder = msgspec.json.Decoder(_Stored)


def owed_text(channel: ChannelSpec, point: PointSpec, raw: float, value: float, since_ms: int) -> bytes:
    """As command_owe.lua stores it."""
    target = msgspec.structs.replace(channel, points=(point,), enabled=True)
    return _encoder.encode(_Stored(raw, value, since_ms, target))


def read_owed(address: str, text: bytes) -> Owed:
    """Of a field of `cmd:owed`. Raises ValueError for what no script of ours has written."""
    due, is_told, command_id, data = text.split(b" ", 3)
    stored = _decoder.decode(data)
    where = Address.parse(address)
    if find_point(stored.channel, where) is None:
        raise ValueError(f"the target has no point {where.kind}:{where.field}")
    return Owed(
        where, command_id.decode(), stored.raw, stored.value, stored.channel, stored.since_ms, int(due), is_told == b"1"
    )
