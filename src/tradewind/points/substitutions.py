"""Substituting points: a person gives a value instead of the device, for a reason and a limited time; and releases it.

The board shows it with quality `substituted`. What the driver writes meanwhile is kept beside it by the scripts that
write to the board, so nobody has to hold anything: a substitution outlives every process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import structlog

from tradewind.errors import Invalid, Overloaded, Problem, TradewindError, Unavailable
from tradewind.ids import short_random
from tradewind.points.address import Address, is_number
from tradewind.points.board import Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.command_check import find_point
from tradewind.points.plane import Place
from tradewind.points.spec import ChannelSpec, Kind
from tradewind.points.substitution import Released, Substitution, read_substitution
from tradewind.points.values import format_value
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType
from tradewind.redis.scripts import Arg
from tradewind.redis.text import text_of

log = structlog.get_logger(__name__)
#: Points of one channel that may be substituted at a time.
MAX_POINTS = 1000
MIN_S = 1.0
#: How long the end of a substitution is remembered if the device says nothing more.
RELEASED_MS = 86_400_000
SUBSTITUTABLE = (Kind.MEASUREMENT, Kind.SIGNAL)


class SubstituteRequest(msgspec.Struct, frozen=True):
    """`for_s`: how long it lasts; None: `points.substitute_s`."""

    address: str
    value: float
    reason: str
    who: str = ""
    source: str = "api_request"
    for_s: float | None = None


class Substitutions:
    def __init__(self, board: Board, channels: ChannelStore) -> None:
        self._board = board
        self._plane = board.plane
        self._channels = channels
        self._future_ms = round(self._plane.settings.future_s * 1000)
        self._known: dict[str, tuple[str, ChannelSpec | None]] = {}
        self._told: set[str] = set()

    async def substitute(self, request: SubstituteRequest) -> Substitution:
        """Show this value instead of the device's. Raises Invalid with all problems, or Overloaded."""
        address, lasts_s = await self._checked(request)
        value = format_value(address.kind, request.value)
        place = self._plane.at(address.entity)
        with translated(self._plane.link):
            # First: a substitution that is not listed would not end by itself.
            await self._plane.redis.sadd(self._plane.keys.channels_substituted(), address.entity)
        args: list[Arg] = [value, round(lasts_s * 1000), request.who, request.reason, request.source, MAX_POINTS]
        args.append(self._future_ms)
        reply = await place.scripts.run("point_substitute", self._names(address), [*self._head(address), *args])
        if not reply[0]:
            message = f"{MAX_POINTS} points of channel {address.entity} are substituted already"
            raise Overloaded(message, code="too_many_substitutions", hint="release some")
        log.warning("point_substituted", address=str(address), value=value, who=request.who, reason=request.reason,
                    lasts_s=lasts_s)  # fmt: skip
        found = await self.find(address)
        if found is None:  # released in between
            found = Substitution(str(address), float(value), int(reply[1]), int(reply[2]), request.who, request.reason)
        return found

    async def release(self, address: str, who: str = "", reason: str = "") -> bool:
        """Show what the device said last; False when the point was not substituted."""
        where = Address.parse(address)
        if not where.is_point:
            raise Invalid(f"{where} is no point of a channel", code="not_a_point", hint="name a point: comsrv:…")
        is_done = await self._release(where, "")
        if is_done:
            log.warning("point_released", address=str(where), who=who, reason=reason)
        return is_done

    async def find(self, address: Address) -> Substitution | None:
        key = self._plane.keys.point_substitutions(address.entity)
        text = (await self._plane.at(address.entity).ask([("HGET", key, f"{address.kind}:{address.field}")]))[0]
        found = read_substitution(str(address), text) if text is not None else None
        return found if isinstance(found, Substitution) else None

    async def standing(self, channels: Sequence[str] | None = None) -> list[Substitution]:
        """All that stand, by address; of these channels only, if any are named. Raises Unavailable."""
        found = [item for item in await self._all(channels) if isinstance(item, Substitution)]
        return sorted(found, key=lambda item: [(len(part), part) for part in item.address.split(":")])

    async def sweep(self) -> list[str]:
        """End what is over, and what stands at points that nobody declares any more; several sweepers do no harm. One
        that cannot be ended holds up no other. The addresses that were released."""
        now, ended = await self._now_ms(), []
        found = await self._all(None)
        specs = await self._specs({item.address.split(":", 2)[1] for item in found})
        for item in found:
            try:
                if await self._end(item, now, specs):
                    ended.append(item.address)
                self._told.discard(item.address)
            except Unavailable:
                raise
            except TradewindError as error:  # of this one: another program has written to one of its keys
                self._trouble(item.address, error)
        return ended

    async def _end(self, item: Substitution | Released, now: int, specs: Mapping[str, ChannelSpec | None]) -> bool:
        """Whether it stood, and ends now."""
        address = Address.parse(item.address)
        if isinstance(item, Released):
            if item.released_ms + RELEASED_MS < now:
                await self._release(address, str(item.released_ms))
            return False
        is_over = item.until_ms <= now
        if not is_over and find_point(specs[address.entity], address) is not None:
            return False
        is_ended = await self._release(address, str(item.since_ms))
        if is_ended:
            why = "its time is over" if is_over else "the point is not declared any more"
            log.warning("point_released", address=item.address, who="", reason=why)
        return is_ended

    def _trouble(self, what: str, error: TradewindError) -> None:
        if what not in self._told:  # once, not each second
            log.error("substitution_unreadable", what=what, error=error.message)
        self._told.add(what)

    async def _release(self, address: Address, since: str) -> bool:
        """`since`: only that one."""
        point = find_point((await self._specs({address.entity}))[address.entity], address)
        max_age_s = point.max_age_s if point is not None and point.max_age_s else self._plane.settings.stale_s
        names = [*self._names(address), self._plane.keys.channel_status(address.entity)]
        args: list[Arg] = [*self._head(address), since, round(max_age_s * 1000), short_random(), self._future_ms]
        reply = await self._plane.at(address.entity).scripts.run("point_release", names, args)
        return bool(reply[0])

    async def _checked(self, request: SubstituteRequest) -> tuple[Address, float]:
        problems: list[Problem] = []
        most_s = self._plane.settings.substitute_max_s
        lasts_s = min(self._plane.settings.substitute_s, most_s) if request.for_s is None else request.for_s
        if not MIN_S <= lasts_s <= most_s:
            problems.append(Problem("out_of_range", "for_s", f"{MIN_S:g} to {most_s:g} seconds"))
        if not request.reason.strip():
            problems.append(Problem("no_reason", "reason", "say why the device's value is not to be shown"))
        for name, limit in (("reason", 500), ("who", 200), ("source", 64)):
            if len(getattr(request, name)) > limit:
                problems.append(Problem("too_long", name, f"at most {limit} characters"))
        if not math.isfinite(request.value):
            problems.append(Problem("not_finite", "value", "write a finite number"))
        address = None
        try:
            address = Address.parse(request.address)
        except Invalid as error:
            problems.append(Problem("bad_address", "address", f"{error.message}; {error.hint}"))
        if address is not None:
            problems += await self._target_problems(address, request.value)
        if problems or address is None:
            few = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems[:3])
            message = f"the substitution is refused: {few}"
            raise Invalid(message, code="bad_substitution", hint="correct what is named", problems=problems)
        return address, lasts_s

    async def _target_problems(self, address: Address, value: float) -> list[Problem]:
        if not address.is_point:
            hint = "models compute their values; substitute a point that they read"
            return [Problem("not_substitutable", "address", hint)]
        if address.kind not in SUBSTITUTABLE:
            return [Problem("not_substitutable", "address", "c and a show what commands have set: send a command")]
        channel = (await self._channels.get_many([address.entity]))[0]
        if channel is None:
            return [Problem("unknown_channel", "address", f"there is no channel {address.entity}")]
        if find_point(channel, address) is None:
            hint = f"channel {channel.id} has no point {address.kind}:{address.field}"
            return [Problem("unknown_point", "address", hint)]
        if address.is_switched and value not in (0, 1):
            return [Problem("not_a_switch", "value", "give 0 or 1")]
        return []

    async def _all(self, channels: Sequence[str] | None) -> list[Substitution | Released]:
        keys = self._plane.keys
        listed = (await self._plane.home.ask([("SMEMBERS", keys.channels_substituted())]))[0]
        names = sorted(map(text_of, listed))
        names = [name for name in names if is_number(name) and (channels is None or name in channels)]
        found: list[Substitution | Released] = []
        for place, some in self._places(names):
            replies = await place.ask_each([("HGETALL", keys.point_substitutions(name)) for name in some])
            for name, stored in zip(some, replies, strict=True):
                if isinstance(stored, WrongType):  # the board has no use for it either
                    self._trouble(name, stored)
                    continue
                for field, text in stored.items():
                    try:
                        address = Address.parse(f"comsrv:{name}:{text_of(field)}")
                    except Invalid:  # a foreign program has left something
                        continue
                    item = read_substitution(str(address), text)
                    if item is not None:
                        found.append(item)
        return found

    def _places(self, channels: Sequence[str]) -> list[tuple[Place, Sequence[str]]]:
        if self._plane.link.cluster:
            return [(self._plane.at(name), [name]) for name in channels]
        return [(self._plane.home, channels)] if channels else []

    async def _specs(self, channels: set[str]) -> dict[str, ChannelSpec | None]:
        """Their definitions, read again only when they have changed; None: not declared."""
        if not channels:
            return {}
        versions = await self._channels.versions()
        for name in channels:
            version = versions.get(name, "")
            if name not in self._known or self._known[name][0] != version:
                found = await self._channels.get_readable([name]) if version else []
                self._known[name] = version, found[0] if found else None
        for name in self._known.keys() - channels:
            del self._known[name]
        return {name: self._known[name][1] for name in channels}

    async def _now_ms(self) -> int:
        fixed = self._plane.clock.now_arg()
        if fixed:
            return int(fixed)
        seconds, micros = (await self._plane.home.ask([("TIME",)]))[0]
        return int(seconds) * 1000 + int(micros) // 1000

    def _names(self, address: Address) -> list[str]:
        return [self._plane.keys.feed(address.entity), *self._board.names_of(address.key)]

    def _head(self, address: Address) -> list[Arg]:
        plane = self._plane
        mode = plane.settings.publish + ("+points" if plane.settings.point_channels else "")
        is_cluster = "1" if plane.link.cluster else "0"
        channel = plane.keys.channel_prefix + address.key
        return [plane.clock.now_arg(), address.key, channel, mode, is_cluster, address.field]
