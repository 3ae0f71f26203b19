"""Where points stand on the board, as plain samples: no judgement of age, and rubbish counts as no value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tradewind.errors import Invalid
from tradewind.models.outputs import Sample
from tradewind.models.program import BAD, GOOD, SUBSTITUTED, UNCERTAIN
from tradewind.points.address import CONTROL, Address
from tradewind.points.plane import PointPlane
from tradewind.points.values import ControlValue, parse_value
from tradewind.redis.faults import WrongType

_QUALITIES = {b"substituted": SUBSTITUTED, b"uncertain": UNCERTAIN, b"bad": BAD}
#: Fields asked for with one command.
PIECE = 5_000


async def read_samples(plane: PointPlane, addresses: Iterable[str]) -> dict[str, Sample]:
    """By address; those without a value are left out, and those whose keys hold another type. Raises Unavailable."""
    places: dict[str, dict[str, list[Address]]] = {}
    for text in dict.fromkeys(addresses):
        address = Address.parse(text)
        channel = address.entity if address.is_point and plane.link.cluster else ""
        places.setdefault(channel, {}).setdefault(address.key, []).append(address)
    found: dict[str, Sample] = {}
    for channel, by_key in places.items():
        commands: list[tuple[Any, ...]] = []
        asked: list[list[Address]] = []
        for wanted in by_key.values():
            names = _names(plane, wanted[0])
            for start in range(0, len(wanted), PIECE):
                piece = wanted[start : start + PIECE]
                asked.append(piece)
                commands += [("HMGET", name, *(address.field for address in piece)) for name in names]
        replies = iter(await plane.at(channel).ask_each(commands))
        for piece in asked:
            columns = next(replies), next(replies), next(replies)
            if any(isinstance(column, WrongType) for column in columns):
                continue
            for address, *stored in zip(piece, *columns, strict=True):
                sample = _sample(address, *stored)
                if sample is not None:
                    found[str(address)] = sample
    return found


def _names(plane: PointPlane, address: Address) -> tuple[str, str, str]:
    keys, entity, kind = plane.keys, address.entity, address.kind
    if address.is_point:
        return keys.points(entity, kind), keys.points_ts(entity, kind), keys.points_quality(entity, kind)
    return keys.model_values(entity, kind), keys.model_ts(entity, kind), keys.model_quality(entity, kind)


def _sample(address: Address, value: bytes | None, ts: bytes | None, word: bytes | None) -> Sample | None:
    if value is None:
        return None
    try:
        if address.kind == CONTROL:  # value:ts:source; the value may be a word
            control = ControlValue.parse(value.decode())
            return Sample(parse_value(control.value), control.ts_ms)
        return Sample(parse_value(value), int(ts) if ts else 0, _QUALITIES.get(word or b"", GOOD))
    except (Invalid, ValueError):
        return None
