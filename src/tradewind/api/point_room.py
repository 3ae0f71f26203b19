"""What the API needs of the point room of a station, and how it shows a point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tradewind.clock import iso
from tradewind.models.store import ModelStore
from tradewind.offload import offload
from tradewind.points.address import Address
from tradewind.points.board import Board, PointValue
from tradewind.points.channel_store import ChannelStore
from tradewind.points.command_store import PointOutcome
from tradewind.points.commands import Commands
from tradewind.points.spec import Kind, PointSpec
from tradewind.points.substitution import Substitution
from tradewind.points.substitutions import Substitutions

_KINDS = [kind.value for kind in Kind]
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
    @property
    def substitutions(self) -> Substitutions: ...

    async def look(self) -> None:
        """Learn what points are called and measured in, so that the board shows it."""
        ...

    def describe(self, address: Address) -> PointSpec | None:
        """What is said of a point or of a field of a model, as it was at the last `look`; None: nobody declared it."""
        ...

    def declared(self, channel: str, kinds: Sequence[str]) -> list[Address]:
        """The points that a channel declares, as it was at the last `look`: kind by kind, by number."""
        ...

    def fields(self, model: str) -> list[Address]:
        """The measurements that a model declares, by name."""
        ...

    async def find(self, text: str) -> list[tuple[Address, str]]:
        """Points with that text in their address or name, in any case, each with its name."""
        ...


def point_view(point: PointValue, is_declared: bool) -> dict[str, Any]:
    """`ts` in milliseconds since the epoch, as it was sent. `state` says what there is to know beside the quality."""
    if point.value is None:
        state = "bad" if point.is_refused else "no_value" if is_declared else "undeclared"
    elif point.is_stale:
        state = "stale"
    elif point.substitution is not None:
        state = "substituted"
    else:
        state = "ok" if is_declared else "pushed"
    said = {} if point.substitution is None else {"substitution": substitution_view(point.substitution)}
    return {
        "address": point.address,
        "value": point.value,
        "ts": point.ts,
        "quality": point.quality,
        "age_ms": point.age_ms,
        "unit": point.unit,
        "state": state,
        **said,
    }


def substitution_view(item: Substitution) -> dict[str, Any]:
    """Who says so, why, until when; `device`: what the device says."""
    has_value = item.device_value is not None
    return {
        "address": item.address,
        "value": item.value,
        "reason": item.reason,
        "who": item.who,
        "source": item.source,
        "since": iso(item.since_ms),
        "until": iso(item.until_ms),
        "device": {
            "value": item.device_value,
            "ts": item.device_ts if has_value else None,
            "quality": item.device_quality if has_value else "bad",
            "held": item.held,
        },
    }


def plain_views(room: PointServices, points: Sequence[PointValue]) -> list[dict[str, Any]]:
    """Of each, as the last `look` of the room knows them."""
    return [point_view(point, room.describe(Address(*point.address.split(":", 3))) is not None) for point in points]


async def point_views(room: PointServices, points: Sequence[PointValue]) -> list[dict[str, Any]]:
    """As `plain_views`; c and a points of channels also with how their last command ended."""
    views = await offload(plain_views, room, points)
    written = await offload(_written, points)
    outcomes = await room.commands.outcomes(list(written.values())) if written else []
    for at, outcome in zip(written, outcomes, strict=True):
        views[at]["command"] = None if outcome is None else outcome_view(outcome)
    return views


def _written(points: Sequence[PointValue]) -> dict[int, Address]:
    return {at: Address.parse(p.address) for at, p in enumerate(points) if p.address.split(":", 3)[2] in WRITTEN}


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


async def read_channel(room: PointServices, channel: str, kinds: Sequence[str]) -> list[PointValue]:
    """All points of a channel, those that are declared and those that have a value, kind by kind by number."""
    await room.look()
    found = await room.board.read_channel(channel, kinds)
    return await _with_silent(room, found, room.declared(channel, kinds), _place)


async def read_model(room: PointServices, model: str) -> list[PointValue]:
    """All measurements of a model, those that it declares and those that have a value, by name."""
    await room.look()
    return await _with_silent(room, await room.board.read_model(model), room.fields(model), str)


async def _with_silent(
    room: PointServices, found: list[PointValue], declared: Sequence[Address], order: Callable[[str], Any]
) -> list[PointValue]:
    known = {point.address for point in found}
    silent = [address for address in declared if str(address) not in known]
    if silent:
        found = sorted([*found, *await room.board.read(silent)], key=lambda point: order(point.address))
    return found


def _place(address: str) -> tuple[int, int, str]:
    _, _, kind, point = address.split(":")
    return _KINDS.index(kind), len(point), point
