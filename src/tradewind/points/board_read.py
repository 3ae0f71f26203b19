"""Reading the board: points by address, whole channels, everything."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tradewind.points.address import CONTROL, Address, channel_of
from tradewind.points.plane import PointPlane
from tradewind.points.spec import Kind, PointSpec, Quality

Describe = Callable[[Address], PointSpec | None]

#: Kinds that somebody measures: when nothing confirms them for long, they are stale.
_MEASURED = frozenset((Kind.MEASUREMENT, Kind.SIGNAL))
_GOOD, _UNCERTAIN, _BAD = Quality.GOOD.value, Quality.UNCERTAIN.value, Quality.BAD.value
_WORDS = {b"uncertain": _UNCERTAIN, b"bad": _BAD}


class PointValue(msgspec.Struct, frozen=True):
    """What the board knows of a point. Without a value (None) the quality is bad and `ts` and `age_ms` are None.

    A stale value is not good any more: it is `uncertain`, or `bad` if it was. `ts` and `age_ms` in milliseconds.
    """

    address: str
    value: float | None
    ts: int | None
    quality: str
    age_ms: int | None
    unit: str = ""
    is_stale: bool = False


class BoardReader:
    def __init__(self, plane: PointPlane, describe: Describe | None = None) -> None:
        self.plane = plane
        self._describe = describe
        self._stale_ms = int(plane.settings.stale_s * 1000)

    async def read(self, addresses: Sequence[Address | str]) -> list[PointValue]:
        """In the order asked for, also those without a value. Raises Invalid naming every bad address."""
        wanted = _parsed(addresses)
        by_key: dict[str, list[int]] = {}
        for at, address in enumerate(wanted):
            by_key.setdefault(address.key, []).append(at)
        places: dict[str, list[str]] = {}
        for key in by_key:
            places.setdefault(channel_of(key) if self.plane.link.cluster else "", []).append(key)
        found: dict[int, PointValue] = {}
        for channel, keys in places.items():
            commands: list[tuple[Any, ...]] = [("TIME",)]
            for key in keys:
                fields = [wanted[at].field for at in by_key[key]]
                commands += [("HMGET", name, *fields) for name in self._names(key)[:3]]
                commands += self._status(key)
            replies = iter(await self.plane.at(channel).ask(commands))
            now = self._now(next(replies))
            for key in keys:
                values, times, words = next(replies), next(replies), next(replies)
                judge = self._judge(key, now, replies)
                for at, *stored in zip(by_key[key], values, times, words, strict=True):
                    found[at] = judge(wanted[at].field, *stored)
        return [found[at] for at in range(len(wanted))]

    async def read_one(self, address: Address | str) -> PointValue:
        return (await self.read([address]))[0]

    async def read_channel(self, channel: str, kinds: Iterable[str] = tuple(Kind)) -> list[PointValue]:
        """All points of a channel, kind by kind, by id."""
        keys = [Address.point(channel, kind, "0").key for kind in kinds]
        return await self._read_hashes(channel, keys)

    async def read_model(self, model: str) -> list[PointValue]:
        """All measurements of a model, by name."""
        return await self._read_hashes("", [Address.model(model, "x").key])

    async def read_all(self) -> AsyncIterator[list[PointValue]]:
        """Every channel, declared or pushed, then every model, one by one; those without values are left out."""
        for channel in await self.channels():
            if points := await self.read_channel(channel):
                yield points
        models = (await self.plane.home.ask([("HKEYS", self.plane.keys.models())]))[0]
        for model in sorted(models):
            if points := await self.read_model(model.decode()):
                yield points

    async def channels(self) -> list[str]:
        """Ids of all channels that are declared or have been written to, in the order of numbers."""
        keys = self.plane.keys
        declared, pushed = await self.plane.home.ask([("HKEYS", keys.channels()), ("SMEMBERS", keys.channels_pushed())])
        found = {name.decode() for name in declared} | {name.decode().partition(":")[0] for name in pushed}
        return sorted(found, key=_as_number)

    async def lengths(self, channel: str) -> dict[str, int]:
        """How many points of each kind have a value."""
        Address.point(channel, Kind.MEASUREMENT, "0")
        names = [("HLEN", self.plane.keys.points(channel, kind)) for kind in Kind]
        return dict(zip(map(str, Kind), await self.plane.at(channel).ask(names), strict=True))

    async def _read_hashes(self, channel: str, keys: Sequence[str]) -> list[PointValue]:
        commands: list[tuple[Any, ...]] = [("TIME",)]
        for key in keys:
            commands += [("HGETALL", name) for name in self._names(key)[:3]]
            commands += self._status(key)
        replies = iter(await self.plane.at(channel).ask(commands))
        now = self._now(next(replies))
        found: list[PointValue] = []
        for key in keys:
            values, times, words = next(replies), next(replies), next(replies)
            judge = self._judge(key, now, replies)
            rows = sorted(values.items(), key=_by_number if channel else None)
            found += [judge(field.decode(), value, times.get(field), words.get(field)) for field, value in rows]
        return found

    def _names(self, key: str) -> tuple[str, str, str, str]:
        """The hash of that key, its times, its qualities, its mark."""
        keys = self.plane.keys
        service, entity, kind = key.split(":")
        if service == "comsrv":
            return (
                keys.points(entity, kind),
                keys.points_ts(entity, kind),
                keys.points_quality(entity, kind),
                keys.points_mark(entity, kind),
            )
        return (
            keys.model_values(entity, kind),
            keys.model_ts(entity, kind),
            keys.model_quality(entity, kind),
            keys.model_mark(entity, kind),
        )

    def _status(self, key: str) -> list[tuple[Any, ...]]:
        """What tells when the channel of that key last answered: its unchanged points are as fresh as that."""
        channel = channel_of(key)
        return [("HGET", self.plane.keys.channel_status(channel), "last_ms")] if channel else []

    def _now(self, reply: tuple[int, int]) -> int:
        fixed = self.plane.clock.now_arg()
        return int(fixed) if fixed else reply[0] * 1000 + reply[1] // 1000

    def _judge(
        self, key: str, now: int, replies: Iterator[Any]
    ) -> Callable[[str, bytes | None, bytes | None, bytes | None], PointValue]:
        """Makes points of one hash out of stored value, time and quality. Takes the channel's status from `replies`."""
        service, entity, kind = key.split(":")
        seen = _int(next(replies)) if service == "comsrv" else 0
        usual = self._stale_ms if service == "comsrv" and kind in _MEASURED else None
        describe, prefix = self._describe, f"{key}:"
        is_control = kind == CONTROL

        def judge(field: str, value: bytes | None, ts: bytes | None, word: bytes | None) -> PointValue:
            unit, bound = "", usual
            if describe is not None:
                spec = describe(Address(service, entity, kind, field))
                if spec is not None:
                    unit = spec.unit
                    bound = usual if spec.max_age_s is None else int(spec.max_age_s * 1000)
            if is_control and value is not None:
                value, ts = _control_parts(value)
            number = _float(value) if value is not None else None
            if number is None:
                return PointValue(prefix + field, None, None, _BAD, None, unit)
            at = int(ts) if ts else None
            quality = _WORDS.get(word, _GOOD) if word else _GOOD
            is_stale = bound is not None and now - max(at or 0, seen) > bound
            if is_stale and quality == _GOOD:
                quality = _UNCERTAIN
            return PointValue(prefix + field, number, at, quality, None if at is None else now - at, unit, is_stale)

        return judge


def _parsed(addresses: Sequence[Address | str]) -> list[Address]:
    if any(isinstance(address, str) for address in addresses):
        return Address.parse_all(map(str, addresses))
    return [address for address in addresses if isinstance(address, Address)]


def _by_number(item: tuple[bytes, bytes]) -> tuple[int, bytes]:
    return len(item[0]), item[0]


def _as_number(text: str) -> tuple[int, str]:
    return len(text), text


def _int(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


def _float(text: bytes) -> float | None:
    """None for what is no finite number: words of a control hash, or what a foreign program left."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _control_parts(text: bytes) -> tuple[bytes, bytes | None]:
    """Value and time of `value:ts:source`."""
    parts = text.rsplit(b":", 2)
    return (parts[0], parts[1]) if len(parts) == 3 and parts[1].isdigit() else (text, None)
