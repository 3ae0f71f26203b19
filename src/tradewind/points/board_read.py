"""Reading the board: points by address, whole channels, everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from tradewind.points.address import Address, channel_of
from tradewind.points.board_point import Describe as Describe
from tradewind.points.board_point import Moment, points_of
from tradewind.points.board_point import PointValue as PointValue
from tradewind.points.plane import PointPlane
from tradewind.points.spec import Kind


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
            replies = iter(await self.plane.at(channel).ask_raw(commands))
            now = self._now(next(replies))
            for key in keys:
                values, times, words = next(replies), next(replies), next(replies)
                fields = [wanted[at].field for at in by_key[key]]
                moment = self._moment(key, now, replies)
                points = points_of(key, fields, values, times, words, moment, self._describe)
                found.update(zip(by_key[key], points, strict=True))
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
        replies = iter(await self.plane.at(channel).ask_raw(commands))
        now = self._now(next(replies))
        found: list[PointValue] = []
        for key in keys:
            values, times, words = _hash(next(replies)), _hash(next(replies)), _hash(next(replies))
            moment = self._moment(key, now, replies)
            if not values:
                continue
            names = sorted(values)
            if channel:
                names.sort(key=len)  # as numbers
            fields = b":".join(names).decode().split(":")
            stored = list(map(values.get, names))
            marks = list(map(words.get, names)) if words else None
            found += points_of(key, fields, stored, list(map(times.get, names)), marks, moment, self._describe)
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

    def _now(self, reply: Sequence[bytes]) -> int:
        fixed = self.plane.clock.now_arg()
        return int(fixed) if fixed else int(reply[0]) * 1000 + int(reply[1]) // 1000

    def _moment(self, key: str, now: int, replies: Iterator[Any]) -> Moment:
        """Takes the status that was asked for a key of a channel."""
        answered = next(replies) if channel_of(key) else None
        return Moment(now, int(answered) if answered and answered.isdigit() else 0, self._stale_ms)


def _parsed(addresses: Sequence[Address | str]) -> list[Address]:
    if any(isinstance(address, str) for address in addresses):
        return Address.parse_all(map(str, addresses))
    return [address for address in addresses if isinstance(address, Address)]


def _hash(reply: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _as_number(text: str) -> tuple[int, str]:
    return len(text), text
