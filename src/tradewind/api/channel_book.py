"""What there is to say of channels without their points: what they are, and how they are doing. Reading only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tradewind.errors import Invalid
from tradewind.points.board import Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.driver_registry import PUSH
from tradewind.points.spec import ChannelSpec, Kind
from tradewind.points.values import finite, whole
from tradewind.redis.faults import WrongType

#: `pushed`: not declared, its values were sent to the API. `unattended`: no process polls it.
STATES = ("online", "offline", "unattended", "disabled", "pushed")
_TIMES = ("since_ms", "last_ms", "heard_ms")
_COUNTS = ("polls", "failures", "missed", "commands", "dropped", "refused")
_FIGURES = ("poll_ms", "poll_ms_max")


class ChannelGlance(msgspec.Struct, frozen=True):
    """A channel without its points."""

    id: str
    name: str
    protocol: str
    enabled: bool
    version: str
    counts: dict[str, int]

    @classmethod
    def of(cls, channel: ChannelSpec, version: str) -> ChannelGlance:
        counts = {kind.value: 0 for kind in Kind}
        for point in channel.points:
            counts[point.kind.value] += 1
        return cls(channel.id, channel.name, channel.protocol, channel.enabled, version, counts)


class ChannelBook:
    """Remembers definitions by their version: with their points they may be megabytes."""

    def __init__(self, board: Board, channels: ChannelStore) -> None:
        self._board = board
        self._channels = channels
        self._known: dict[str, ChannelGlance] = {}

    async def glances(self) -> dict[str, ChannelGlance]:
        """All declared channels by id."""
        versions = await self._channels.versions()
        known = {name: self._known[name] for name in self._known if versions.get(name) == self._known[name].version}
        changed = [name for name in versions if name not in known]
        for channel in await self._read(changed):
            if channel is not None:
                known[channel.id] = ChannelGlance.of(channel, versions[channel.id])
        self._known = known
        return known

    async def _read(self, ids: Sequence[str]) -> list[ChannelSpec | None]:
        """Without those that cannot be read: the others must still be seen."""
        try:
            return await self._channels.get_many(ids)
        except Invalid:
            found: list[ChannelSpec | None] = []
            for name in ids:
                with suppress(Invalid):
                    found += await self._channels.get_many([name])
            return found

    async def ids(self) -> list[str]:
        """Declared and pushed, in the order of their numbers."""
        return await self._board.channels()

    async def views(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """As the API shows them in a list."""
        declared = await self.glances()
        statuses = await self.statuses(ids)
        return [channel_view(name, declared.get(name), statuses[name]) for name in ids]

    async def statuses(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The figures of each by id, with `is_attended`: whether a process holds the channel now."""
        plane, keys = self._board.plane, self._board.plane.keys
        (seconds, micros), owners = await plane.home.ask([("TIME",), ("HGETALL", keys.channel_owners())])
        now = int(plane.clock.now_arg() or seconds * 1000 + micros // 1000)
        found: dict[str, dict[bytes, bytes] | WrongType] = {}
        if plane.link.cluster:
            for name in ids:
                found[name] = (await plane.at(name).ask_each([("HGETALL", keys.channel_status(name))]))[0]
        elif ids:
            replies = await plane.home.ask_each([("HGETALL", keys.channel_status(name)) for name in ids])
            found = dict(zip(ids, replies, strict=True))
        return {
            name: {**_figures(found[name]), "is_attended": _lease_ends(owners.get(name.encode())) > now} for name in ids
        }


def channel_view(name: str, glance: ChannelGlance | None, status: dict[str, Any]) -> dict[str, Any]:
    """`glance` None: nobody has declared it."""
    shown = {key: value for key, value in status.items() if key not in ("is_attended", "is_online")}
    if glance is None:
        made = {"id": name, "name": "", "protocol": PUSH, "enabled": True, "version": None, "counts": None}
        return {**made, "state": "pushed", "status": shown}
    if not glance.enabled:
        state = "disabled"
    elif not status["is_attended"]:
        state = "unattended"
    else:
        state = "online" if status["is_online"] else "offline"
    return {**msgspec.to_builtins(glance), "state": state, "status": shown}


def _figures(stored: dict[bytes, bytes] | WrongType) -> dict[str, Any]:
    """Times in ms, null: never; `poll_ms` is the usual time of a poll."""
    if isinstance(stored, WrongType):  # another program has spoilt it: this one is not known, the others are
        stored = {b"error": stored.message.encode()}
    known = {name.decode(errors="replace"): text.decode(errors="replace") for name, text in stored.items()}
    return {
        "is_online": known.get("online") == "1",
        **{name: whole(known.get(name)) or None for name in _TIMES},
        **{name: whole(known.get(name)) for name in _COUNTS},
        **{name: finite(known.get(name)) for name in _FIGURES},
        "error": known.get("error", ""),
        "owner": known.get("owner", ""),
    }


def _lease_ends(text: bytes | None) -> int:
    ends = text.rpartition(b":")[2] if text else b""
    return int(ends) if ends.isdigit() else 0
