"""What the API needs of the point room of a station, and how it shows a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tradewind.models.store import ModelStore
from tradewind.points.address import Address
from tradewind.points.board import Board, PointValue
from tradewind.points.channel_store import ChannelStore
from tradewind.points.commands import Commands


class PointServices(Protocol):
    """What the API needs of the point room of a station."""

    @property
    def board(self) -> Board: ...
    @property
    def channels(self) -> ChannelStore: ...
    @property
    def commands(self) -> Commands: ...
    @property
    def models(self) -> ModelStore: ...

    async def look(self) -> None:
        """Learn what points are called and measured in, so that the board shows it."""
        ...

    async def find(self, text: str) -> list[tuple[Address, str]]:
        """Points with that text in their address or name, in any case, each with its name."""
        ...


def point_view(point: PointValue) -> dict[str, Any]:
    """`ts` in milliseconds since the epoch, as it was sent."""
    return {
        "address": point.address,
        "value": point.value,
        "ts": point.ts,
        "quality": point.quality,
        "age_ms": point.age_ms,
        "unit": point.unit,
    }


async def read_points(room: PointServices, addresses: Sequence[Address]) -> list[PointValue]:
    """In the order asked for, with their units."""
    await room.look()
    return await room.board.read(addresses) if addresses else []


async def read_model(room: PointServices, model: str) -> list[PointValue]:
    """All measurements of a model, with their units."""
    await room.look()
    return await room.board.read_model(model)
