"""The point room of a station: board, channels, models and commands on one plane."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence

from tradewind.health_part import Part
from tradewind.history.store import CONSUMER as RECORDER
from tradewind.ids import short_random
from tradewind.models.engine import ModelEngine
from tradewind.models.spec import ModelSpec
from tradewind.models.store import ModelStore
from tradewind.points.acquisition import Acquisition
from tradewind.points.address import CONTROL, MEASUREMENT, Address
from tradewind.points.board import Board
from tradewind.points.channel_claim import taken_beyond_share
from tradewind.points.channel_store import ChannelStore
from tradewind.points.command_run import CommandRunner
from tradewind.points.commands import Commands
from tradewind.points.feed_trim import trim_feed
from tradewind.points.plane import PointPlane
from tradewind.points.spec import Kind, PointSpec
from tradewind.points.substitutions import Substitutions
from tradewind.redis.connection import Link
from tradewind.redis.fences import do_all
from tradewind.redis.text import text_of
from tradewind.settings import Settings
from tradewind.station_parts import leading, missing, unneeded
from tradewind.tasks.progress import read_report

#: How old the descriptions of points may be that values are shown with.
FRESH_S = 2.0
#: Channel or model, kind, point or field.
Key = tuple[str, str, str]
#: How many channels are named.
NAMED = 5
KIND_ORDER = tuple(kind.value for kind in Kind)


class PointRoom:
    def __init__(self, link: Link, settings: Settings) -> None:
        self.plane = PointPlane(link, settings)
        keys = self.plane.keys
        self.board = Board(self.plane, self.describe)
        self.channels = ChannelStore(link, keys)
        self.models = ModelStore(link, keys)
        self.commands = Commands(self.plane, self.board, self.channels, self.models.find_control)
        self.substitutions = Substitutions(self.board, self.channels)
        self._known: dict[tuple[str, str, str], PointSpec] = {}
        self._versions: dict[str, str] = {}
        self._enabled: set[str] = set()
        self._by_channel: dict[str, list[Key]] = {}
        self._fields: dict[tuple[str, str, str], PointSpec] = {}
        self._models_version = ""
        self._looked = 0.0

    async def look(self) -> None:
        """Learn what channels say of their points (units, ages) and models of their fields, if that was long ago.
        Raises Unavailable."""
        if time.monotonic() - self._looked < FRESH_S:
            return
        versions = await self.channels.versions()
        changed = [channel for channel, version in versions.items() if self._versions.get(channel) != version]
        gone = set(self._versions) - set(versions)
        if changed or gone:
            stale = gone | set(changed)
            kept = {key: spec for key, spec in self._known.items() if key[0] not in stale}
            enabled = self._enabled - stale
            for channel in await self.channels.get_readable(changed):
                kept |= {(channel.id, point.kind.value, point.id): point for point in channel.points}
                enabled |= {channel.id} if channel.enabled else set()
            self._known, self._versions, self._enabled = kept, versions, enabled
            self._by_channel = {}
            for key in kept:
                self._by_channel.setdefault(key[0], []).append(key)
        definitions = await self.models.load()
        if definitions.version != self._models_version:
            self._fields = _fields(definitions.specs.values())
            self._models_version = definitions.version
        self._looked = time.monotonic()

    async def health(self) -> dict[str, Part]:
        """The roles comsrv and modsrv. Raises Unavailable."""
        await self.look()
        keys = self.plane.keys
        (seconds, _), owners, claims, models, leader, report = await self.plane.home.ask(
            [
                ("TIME",),
                ("HGETALL", keys.channel_owners()),
                ("HGETALL", keys.channel_claims()),
                ("HLEN", keys.models()),
                ("GET", keys.models_leader()),
                ("GET", keys.progress(keys.models_leader())),
            ]
        )
        now = int(seconds) * 1000
        held = {text_of(name): owner for name, owner in owners.items() if _lease_ends(owner) > now}
        if leader:
            modsrv = leading(text_of(leader), f"{models} models", read_report(report), now)
        else:
            what = f"no process has this role, {models} models"
            modsrv = missing("modsrv", what) if models else unneeded(what)
        return {"comsrv": self._polling(held, taken_beyond_share(claims, now)), "modsrv": modsrv}

    def _polling(self, held: Mapping[str, bytes], extras: Mapping[str, int]) -> Part:
        left = sorted(self._enabled - set(held), key=lambda name: (len(name), name))
        if not self._enabled:
            return Part("ok" if held else "off", "no channel is enabled")
        if not held:
            return missing("comsrv", f"no process has this role, {len(left)} channels are enabled")
        said = f"{len(self._enabled)} channels, {len({owner.partition(b':')[0] for owner in held.values()})} processes"
        if left:
            more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
            detail = f"{said}; nobody polls {', '.join(left[:NAMED])}{more}"
            return Part("degraded", detail, "a comsrv claims them within seconds; if not, start another one")
        if extras:
            taken = ", ".join(f"{count} by {name}" for name, count in sorted(extras.items()))
            detail = f"{said}; polled beyond the share of a process, because another one does not claim them: {taken}"
            return Part("degraded", detail, "look at the log of the comsrv that has fewer channels, or stop it")
        return Part("ok", said)

    def describe(self, address: Address) -> PointSpec | None:
        """What is said of a point or a field, as it was at the last `look`."""
        known = self._known if address.is_point else self._fields
        return known.get((address.entity, str(address.kind), address.field))

    def declared(self, channel: str, kinds: Sequence[str]) -> list[Address]:
        """The points that a channel declares, as it was at the last `look`: kind by kind, by number."""
        found = [key for key in self._by_channel.get(channel, ()) if key[1] in kinds]
        order = sorted(found, key=lambda key: (KIND_ORDER.index(key[1]), len(key[2]), key[2]))
        return [Address("comsrv", *key) for key in order]

    def fields(self, model: str) -> list[Address]:
        """The measurements that a model declares, by name."""
        found = sorted(key for key in self._fields if key[0] == model and key[1] == MEASUREMENT)
        return [Address("modsrv", *key) for key in found]

    async def find(self, text: str) -> list[tuple[Address, str]]:
        """Address and name of each point with that text in one of them, in any case: declared points in the order of
        their numbers, pushed ones among them, then fields of models. Raises Unavailable."""
        await self.look()
        pushed = await self.board.pushed()
        return await asyncio.to_thread(_find, text.lower(), self._known, pushed, self._fields)

    def acquisition(self) -> Acquisition:
        """What polls the devices and carries commands out: the role comsrv."""
        owner = f"comsrv-{short_random()}"
        commands = CommandRunner(self.commands.store, self.board, owner)
        return Acquisition(
            self.plane, self.board, self.channels, commands=commands, owner=owner, lease_s=self.plane.settings.lease_s
        )

    def engine(self) -> ModelEngine:
        """What computes the models: the role modsrv."""
        return ModelEngine(self.plane, self.board, self.models, self.channels)

    async def look_after(self) -> None:
        """A job of the leader: the feed is trimmed to its slowest reader; commands and substitutions end in time, each
        also while another of these fails."""
        expected = (RECORDER,) if self.plane.all_settings.history.enabled else ()
        while True:
            await do_all(lambda: trim_feed(self.plane, expected), self.commands.sweep, self.substitutions.sweep)
            await asyncio.sleep(1)

    async def close(self) -> None:
        await self.plane.close()


def _lease_ends(owner: bytes) -> int:
    """ms of `process:ms`; 0 when it is none."""
    ends = owner.rpartition(b":")[2]
    return int(ends) if ends.isdigit() else 0


def _fields(models: Iterable[ModelSpec]) -> dict[tuple[str, str, str], PointSpec]:
    """The outputs and controls by model, kind and field."""
    found = {}
    for model in models:
        for kind, fields in ((MEASUREMENT, model.outputs), (CONTROL, model.controls)):
            for item in fields:
                found[model.name, kind, item.field] = PointSpec(Kind.MEASUREMENT, item.field, unit=item.unit)
    return found


def _find(
    text: str, known: Mapping[Key, PointSpec], pushed: Iterable[Key], fields: Mapping[Key, PointSpec]
) -> list[tuple[Address, str]]:
    points = {
        key: spec.name for key, spec in known.items() if text in _said("comsrv", key) or text in spec.name.lower()
    }
    points |= {key: "" for key in pushed if key not in known and text in _said("comsrv", key)}
    order = sorted(points, key=lambda key: (len(key[0]), key[0], KIND_ORDER.index(key[1]), len(key[2]), key[2]))
    found = [(Address("comsrv", *key), points[key]) for key in order]
    return found + [(Address("modsrv", *key), "") for key in sorted(fields) if text in _said("modsrv", key)]


def _said(service: str, key: Key) -> str:
    return f"{service}:{key[0]}:{key[1]}:{key[2]}".lower()
