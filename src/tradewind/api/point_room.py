"""What the API needs of the point room of a station, and how it shows a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

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
    found = await room.board.read(addresses) if addresses else []
    return await _with_units(room, found) if any(not address.is_point for address in addresses) else found


async def read_model(room: PointServices, model: str) -> list[PointValue]:
    return await _with_units(room, await room.board.read_model(model))


async def _with_units(room: PointServices, points: list[PointValue]) -> list[PointValue]:
    """Units of model outputs stand in the models, which the board does not know."""
    specs = (await room.models.load()).specs
    found = []
    for point in points:
        service, model, _, field = point.address.split(":")
        spec = specs.get(model) if service == "modsrv" and not point.unit else None
        unit = next((output.unit for output in spec.outputs if output.field == field), "") if spec else ""
        found.append(msgspec.structs.replace(point, unit=unit) if unit else point)
    return found
