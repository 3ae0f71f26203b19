"""What the API needs of the point room of a station, and how it shows a point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from tradewind.clock import iso
from tradewind.models.store import ModelStore
from tradewind.points.address import Address
from tradewind.points.board import Board, PointValue
from tradewind.points.channel_store import ChannelStore
from tradewind.points.command_store import PointOutcome
from tradewind.points.commands import Commands
from tradewind.points.spec import Kind

#: Kinds that commands write.
WRITTEN = frozenset((Kind.CONTROL.value, Kind.ADJUSTMENT.value))


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


async def point_views(room: PointServices, points: Sequence[PointValue]) -> list[dict[str, Any]]:
    """As `point_view`; c and a points of channels also with how their last command ended."""
    views = [point_view(point) for point in points]
    written = {at: Address.parse(p.address) for at, p in enumerate(points) if p.address.split(":", 3)[2] in WRITTEN}
    outcomes = await room.commands.outcomes(list(written.values())) if written else []
    for at, outcome in zip(written, outcomes, strict=True):
        views[at]["command"] = None if outcome is None else outcome_view(outcome)
    return views


def outcome_view(outcome: PointOutcome) -> dict[str, Any]:
    """`unsure`: what the point stands at is not known since."""
    return {
        "id": outcome.id,
        "value": _number(outcome.value),
        "status": outcome.status,
        "result": outcome.result,
        "message": outcome.message,
        "who": outcome.who,
        "source": outcome.source,
        "at": iso(outcome.at),
        "unsure": bool(outcome.unsure),
    }


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


async def read_points(room: PointServices, addresses: Sequence[Address]) -> list[PointValue]:
    """In the order asked for, with their units."""
    await room.look()
    return await room.board.read(addresses) if addresses else []


async def read_model(room: PointServices, model: str) -> list[PointValue]:
    """All measurements of a model, with their units."""
    await room.look()
    return await room.board.read_model(model)
