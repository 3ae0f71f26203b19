"""Reading the board: points by address, whole channels, everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from tradewind.ids import ID, RESERVED
from tradewind.offload import offload
from tradewind.points.address import KINDS, Address, channel_of, is_number
from tradewind.points.board_point import SUBSTITUTED, Moment, points_of, substituted
from tradewind.points.board_point import Describe as Describe
from tradewind.points.board_point import PointValue as PointValue
from tradewind.points.plane import PointPlane
from tradewind.points.spec import Kind
from tradewind.points.substitution import Substitution, read_substitution
from tradewind.points.values import whole
from tradewind.redis.faults import WrongType
from tradewind.redis.text import text_of

log = structlog.get_logger(__name__)
#: Points of a hash that the server packs in one go, for about a millisecond a thousand.
PACKED_POINTS = 10_000
Hash = dict[str, str]
Columns = tuple[Hash, Hash | str, Hash, int]
#: Points that are put together where they are asked for; more of them beside other work.
MANY = 2_000
_decode = msgspec.msgpack.Decoder(list[str]).decode
_decode_parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class BoardReader:
    def __init__(self, plane: PointPlane, describe: Describe | None = None) -> None:
        self.plane = plane
        self._describe = describe
        self._stale_ms = int(plane.settings.stale_s * 1000)
        self.future_ms = int(plane.settings.future_s * 1000)

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
                moment = self._moment(now, replies)
                points = points_of(key, fields, values, times, words, moment, self._describe)
                found.update(zip(by_key[key], points, strict=True))
        return await self._explained([found[at] for at in range(len(wanted))])

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
        """Every channel, declared or pushed, then every model, one by one; those without values are left out, and those
        whose keys hold another type."""
        models = (await self.plane.home.ask([("HKEYS", self.plane.keys.models())]))[0]
        names = [name for name in sorted(map(text_of, models)) if ID.fullmatch(name) and name not in RESERVED]
        reads = [partial(self.read_channel, channel) for channel in await self.channels()]
        for read in [*reads, *(partial(self.read_model, name) for name in names)]:
            try:
                points = await read()
            except WrongType as error:  # where these stand, another program has left something: nobody knows them
                log.warning("points_left_out", error=error.message)
                continue
            if points:
                yield points

    async def channels(self) -> list[str]:
        """Ids of all channels that are declared or have been written to, in the order of numbers."""
        keys = self.plane.keys
        declared, pushed = await self.plane.home.ask([("HKEYS", keys.channels()), ("SMEMBERS", keys.channels_pushed())])
        found = {text_of(name) for name in declared} | {text_of(name).partition(":")[0] for name in pushed}
        return sorted(filter(is_number, found), key=_as_number)

    async def pushed(self) -> list[tuple[str, str, str]]:
        """Channel, kind and id of every value in hashes that nobody has declared. What is none of ours is left out."""
        listed = (await self.plane.home.ask([("SMEMBERS", self.plane.keys.channels_pushed())]))[0]
        found: list[tuple[str, str, str]] = []
        for name in listed:
            channel, _, kind = text_of(name).partition(":")
            if not is_number(channel) or kind not in KINDS:
                continue
            ids = (await self.plane.at(channel).ask_each([("HKEYS", self.plane.keys.points(channel, kind))]))[0]
            if not isinstance(ids, WrongType):
                found += [(channel, kind, point) for point in map(text_of, ids) if is_number(point)]
        return found

    async def lengths(self, channel: str) -> dict[str, int]:
        """How many points of each kind have a value."""
        Address.point(channel, Kind.MEASUREMENT, "0")
        names = [("HLEN", self.plane.keys.points(channel, kind)) for kind in Kind]
        return dict(zip(map(str, Kind), await self.plane.at(channel).ask(names), strict=True))

    async def _read_hashes(self, channel: str, keys: Sequence[str]) -> list[PointValue]:
        names = [name for key in keys for name in (*self._names(key)[:3], self._status_of(key))]
        reply = await self.plane.at(channel).scripts.run("board_read", names, [PACKED_POINTS])
        try:
            columns = [_columns(*reply[at : at + 4]) for at in range(2, len(reply), 4)] if reply else None
        except msgspec.DecodeError:  # a foreign program has left something that is no text
            columns = None
        if columns is None:
            return await self._read_plain(channel, keys)
        now = self._now(reply)
        if sum(len(values) for values, *_ in columns) < MANY:
            found = self._points_of(keys, columns, now, is_numbered=bool(channel))
        else:
            found = await offload(self._points_of, keys, columns, now, is_numbered=bool(channel))
        return await self._explained(found) if channel and any(words for _, _, words, _ in columns) else found

    async def _explained(self, points: list[PointValue]) -> list[PointValue]:
        """Say of substituted points who substituted them, why and until when."""
        places: dict[str, list[int]] = {}
        for at, point in enumerate(points):
            if point.quality == SUBSTITUTED and point.address.startswith("comsrv:"):
                places.setdefault(point.address.split(":", 2)[1], []).append(at)
        for channel, some in places.items():
            fields = [points[at].address.split(":", 2)[2] for at in some]
            key = self.plane.keys.point_substitutions(channel)
            time, texts = await self.plane.at(channel).ask_raw([("TIME",), ("HMGET", key, *fields)])
            for at, text in zip(some, texts, strict=True):
                found = read_substitution(points[at].address, text) if text is not None else None
                known = found if isinstance(found, Substitution) else None
                points[at] = substituted(points[at], known, self._now(time))
        return points

    def _points_of(
        self, keys: Sequence[str], columns: Sequence[Columns], now: int, *, is_numbered: bool
    ) -> list[PointValue]:
        found: list[PointValue] = []
        for key, (values, times, words, answered) in zip(keys, columns, strict=True):
            if values:
                moment = Moment(now, answered, self._stale_ms, self.future_ms)
                found += self._points(key, values, times, words, moment, is_numbered=is_numbered)
        return found

    async def _read_plain(self, channel: str, keys: Sequence[str]) -> list[PointValue]:
        """Hashes that are too large to be packed by the server in one go."""
        commands: list[tuple[Any, ...]] = [("TIME",)]
        for key in keys:
            commands += [("HGETALL", name) for name in self._names(key)[:3]]
            commands += self._status(key)
        replies = await self.plane.at(channel).ask_raw(commands)
        return await self._explained(await offload(self._plain_points, channel, keys, replies))

    def _plain_points(self, channel: str, keys: Sequence[str], answers: Sequence[Any]) -> list[PointValue]:
        replies = iter(answers)
        now = self._now(next(replies))
        found: list[PointValue] = []
        for key in keys:
            values, times, words = _hash(next(replies)), _hash(next(replies)), _hash(next(replies))
            moment = self._moment(now, replies)
            if values:
                found += self._points(key, values, times, words, moment, is_numbered=bool(channel))
        return found

    def _points(
        self, key: str, values: Hash, times: Hash | str, words: Hash, moment: Moment, *, is_numbered: bool
    ) -> list[PointValue]:
        fields = sorted(values)
        if is_numbered:
            fields.sort(key=len)
        each = [times] * len(fields) if isinstance(times, str) else list(map(times.get, fields))
        marks = list(map(words.get, fields)) if words else None
        return points_of(key, fields, list(map(values.get, fields)), each, marks, moment, self._describe)

    def _status_of(self, key: str) -> str:
        """The hash whose `last_ms` tells until when all values of that key are what they should be."""
        channel = channel_of(key)
        return self.plane.keys.channel_status(channel) if channel else self.plane.keys.models_status()

    def _names(self, key: str) -> tuple[str, str, str, str, str]:
        """The hash of that key, its times, its qualities, its mark, the substitutions of its channel; as board.lua has
        it. Fields of models cannot be substituted."""
        keys = self.plane.keys
        service, entity, kind = key.split(":")
        if service == "comsrv":
            return (
                keys.points(entity, kind),
                keys.points_ts(entity, kind),
                keys.points_quality(entity, kind),
                keys.points_mark(entity, kind),
                keys.point_substitutions(entity),
            )
        values = keys.model_values(entity, kind)
        return (
            values,
            keys.model_ts(entity, kind),
            keys.model_quality(entity, kind),
            keys.model_mark(entity, kind),
            values,
        )

    def names_of(self, key: str) -> tuple[str, ...]:
        """The keys of a batch in lua/board.lua."""
        return self._names(key)

    def _status(self, key: str) -> list[tuple[Any, ...]]:
        """What tells when the channel of that key last answered: its unchanged points are as fresh as that."""
        return [("HGET", self._status_of(key), "last_ms")]

    def _now(self, reply: Sequence[bytes]) -> int:
        fixed = self.plane.clock.now_arg()
        return int(fixed) if fixed else int(reply[0]) * 1000 + int(reply[1]) // 1000

    def _moment(self, now: int, replies: Iterator[Any]) -> Moment:
        """Takes the status that was asked for."""
        answered = next(replies)
        return Moment(now, whole(answered), self._stale_ms, self.future_ms)


def _parsed(addresses: Sequence[Address | str]) -> list[Address]:
    if any(isinstance(address, str) for address in addresses):
        return Address.parse_all(map(str, addresses))
    return [address for address in addresses if isinstance(address, Address)]


def _hash(reply: Sequence[bytes]) -> Hash:
    return {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in zip(reply[::2], reply[1::2], strict=True)
    }


def _columns(values: bytes, times: bytes, words: bytes, answered: bytes) -> Columns:
    """Of one hash, as board_read gives it."""
    time = times.decode(errors="replace") if times[:1].isdigit() else _unpacked(times)
    return _unpacked(values), time, _unpacked(words), whole(answered)


def _unpacked(data: bytes) -> Hash:
    try:
        flat = _decode(data) if data else []
    except (UnicodeDecodeError, msgspec.DecodeError):
        flat = [_text(bytes(part)) for part in _decode_parts(data)]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _text(packed: bytes) -> str:
    """One packed string that another program wrote and that is not UTF-8: the bytes after its length."""
    kind = packed[0]
    start = 1 if kind < 0xC0 else {0xD9: 2, 0xDA: 3, 0xDB: 5}.get(kind, 1)
    return packed[start:].decode(errors="replace")


def _as_number(text: str) -> tuple[int, str]:
    return len(text), text
