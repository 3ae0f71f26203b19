"""Definitions of channels in Redis, each with a version (a hash of what it says), and the notice that one changed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from tradewind.errors import Conflict, Invalid, NotFound, TradewindError
from tradewind.ids import short_random
from tradewind.offload import offload
from tradewind.points.address import is_number
from tradewind.points.channel_check import validate_channel as validate_channel
from tradewind.points.spec import ChannelSpec
from tradewind.redis.connection import Link, translated
from tradewind.redis.keys import Keys
from tradewind.redis.scripts import Arg, Scripts
from tradewind.redis.text import text_of

log = structlog.get_logger(__name__)
#: As `expected`: the channel must not exist yet.
NEW: Final = "-"
#: So many definitions in one call; each may be megabytes.
BATCH = 50
# No channel has this id. A counter would come back to an old value when a server restarts from an old copy.
_WORD = "word"
_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(ChannelSpec)
#: Bytes of definitions that are decoded where they are asked for.
LONG = 50_000


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """Ids of channels that are new or other than before, and of those that are gone."""

    changed: tuple[str, ...]
    removed: tuple[str, ...]


def channel_document(channel: ChannelSpec) -> dict[str, Any]:
    """The channel as the document that `validate_channel` takes; what is at its default is left out."""
    document: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(channel, points=()))
    points = [msgspec.to_builtins(point) for point in channel.points]  # one by one: all of them take long
    return {**document, "protocol": channel.protocol, "points": points}


def version_of(channel: ChannelSpec) -> str:
    """16 hexadecimal digits; the same for definitions that say the same."""
    return definition_version(_encoder.encode(channel))


class ChannelStore:
    def __init__(self, link: Link, keys: Keys, retries: int = 3) -> None:
        self._link = link
        self._keys = [keys.channels(), keys.channel_versions()]
        self._scripts = Scripts(link, "tradewind.points", retries)
        self._redis: Any = link.client

    async def put(self, channels: Sequence[ChannelSpec], *, expected: str = "") -> list[str]:
        """Store them; the ids of those that changed. Many go in several steps, each of them whole.

        `expected`, for a single channel: the version that it must have now, or NEW. Raises Conflict.
        """
        if expected and len(channels) != 1:
            raise ValueError("an expected version is for one channel")
        changed: list[str] = []
        for start in range(0, len(channels), BATCH):
            args: list[Arg] = [expected, short_random()]
            for channel in channels[start : start + BATCH]:
                data = await offload(_encoder.encode, channel)
                args += [channel.id, data, definition_version(data)]
            ok, *rest = await self._scripts.run("channel_put", self._keys, args)
            if not ok:
                raise _conflict(channels[0].id, text_of(rest[0]))
            changed += list(map(text_of, rest))
        return changed

    async def get(self, channel_id: str) -> ChannelSpec:
        """Raises NotFound."""
        found = (await self.get_many([channel_id]))[0]
        if found is None:
            raise NotFound(f"there is no channel {channel_id}", code="unknown_channel", hint="list the channels")
        return found

    async def get_many(self, channel_ids: Sequence[str]) -> list[ChannelSpec | None]:
        if not channel_ids:
            return []
        with translated(self._link):
            texts = await self._redis.hmget(self._keys[0], list(channel_ids))
        if sum(len(text or b"") for text in texts) < LONG:
            return [_decode(name, text) for name, text in zip(channel_ids, texts, strict=True)]
        return [await offload(_decode, name, text) for name, text in zip(channel_ids, texts, strict=True)]

    async def get_readable(self, channel_ids: Sequence[str]) -> list[ChannelSpec]:
        """Those that are there and can be read: one broken definition holds up nobody, and is logged."""
        if not channel_ids:
            return []
        with translated(self._link):
            texts = await self._redis.hmget(self._keys[0], list(channel_ids))
        return _readable(dict(zip(channel_ids, texts, strict=True)))

    async def broken(self) -> dict[str, str]:
        """Definitions that cannot be read: why, by channel."""
        with translated(self._link):
            stored = await self._redis.hgetall(self._keys[0])
        found = {}
        for name, text in stored.items():
            try:
                _decode(text_of(name), text)
            except Invalid as error:
                found[text_of(name)] = error.message
        return found

    async def remove(self, channel_ids: Iterable[str], *, expected: str = "") -> list[str]:
        """The ids of those that were there. `expected`: the version of a single one, as for `put`. Raises Conflict."""
        names = list(channel_ids)
        if not names:
            return []
        ok, *rest = await self._scripts.run("channel_remove", self._keys, [expected, short_random(), *names])
        if not ok:
            raise _conflict(names[0], text_of(rest[0]))
        return list(map(text_of, rest))

    async def versions(self) -> dict[str, str]:
        """Version by channel id."""
        with translated(self._link):
            stored = await self._redis.hgetall(self._keys[1])
        return {text_of(name): text_of(version) for name, version in stored.items() if name != _WORD.encode()}

    async def list(self) -> list[ChannelSpec]:
        """All that can be read, in the order of their numbers; one that cannot is logged."""
        with translated(self._link):
            stored = await self._redis.hgetall(self._keys[0])
        found = _readable({text_of(name): text for name, text in stored.items()})
        return sorted(found, key=lambda channel: (int(channel.id), channel.id))

    async def ages(self) -> dict[str, int]:
        """Address → ms, of points with a `max_age_s` of their own. Raises Unavailable."""
        return {
            f"comsrv:{channel.id}:{point.kind}:{point.id}": int(point.max_age_s * 1000)
            for channel in await self.list()
            for point in channel.points
            if point.max_age_s is not None
        }

    async def word(self) -> bytes:
        """Changes with every change of a definition. Raises Unavailable."""
        with translated(self._link):
            found: bytes | None = await self._redis.hget(self._keys[1], _WORD)
        return found or b""

    async def watch(self, every_s: float = 1.0) -> AsyncIterator[ChannelChange]:
        """At once what there is, then each change within about `every_s`. Does not end; waits while Redis is away, or
        holds something else there."""
        known: dict[str, str] = {}
        word: Any = ()
        is_away = False
        while True:
            change = None
            try:
                with translated(self._link):
                    now = await self._redis.hget(self._keys[1], _WORD)
                if now != word:
                    # The word is older than the versions, so a change in between is only looked at twice.
                    versions = await self.versions()
                    changed = tuple(name for name, version in versions.items() if known.get(name) != version)
                    removed = tuple(name for name in known if name not in versions)
                    if changed or removed or word == ():
                        change = ChannelChange(changed, removed)
                    known, word = versions, now
                is_away = False
            except TradewindError as error:
                if not is_away:
                    log.warning("channel_watch_waits", error=error.message)
                is_away = True
            if change is not None:
                yield change
            await asyncio.sleep(every_s)


def definition_version(data: bytes) -> str:
    """Of a definition as it is stored."""
    return hashlib.sha256(data).hexdigest()[:16]


def _decode(name: str, text: bytes | None) -> ChannelSpec | None:
    if text is None:
        return None
    try:
        channel = _decoder.decode(text)
        if channel.id != name or not is_number(name):
            raise ValueError(f"it says that it is channel {channel.id!r}")
        return channel
    except (msgspec.DecodeError, ValueError) as error:
        hint = "store the channel again"
        raise Invalid(f"channel {name} cannot be read: {error}", code="bad_definition", hint=hint) from error


def _readable(texts: Mapping[str, bytes | None]) -> list[ChannelSpec]:
    found = []
    for name, text in texts.items():
        try:
            channel = _decode(name, text)
        except Invalid as error:
            log.warning("channel_unreadable", channel=name, error=error.message)
            continue
        if channel is not None:
            found.append(channel)
    return found


def _conflict(channel_id: str, version: str) -> Conflict:
    what = "does not exist" if version == NEW else f"exists with version {version}"
    hint = "read the channel again, then decide"
    return Conflict(f"channel {channel_id} {what}", code="version_conflict", hint=hint)
