"""The board: the newest value of every point. Writing, comparing, removing; reading is in board_read.py.

A batch is written by one atomic script: values, times, qualities, the feed, the seed's messages.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from tradewind import codec
from tradewind.errors import Conflict
from tradewind.ids import short_random
from tradewind.offload import offload
from tradewind.points.address import KINDS, MODEL_KINDS, Address, channel_of
from tradewind.points.batch import MAX_POINTS, Formats, Line
from tradewind.points.batch import Batch as Batch
from tradewind.points.batch import Written as Written
from tradewind.points.board_read import MANY, BoardReader, Describe
from tradewind.points.board_read import PointValue as PointValue
from tradewind.points.board_watch import Change as Change
from tradewind.points.board_watch import watch
from tradewind.points.plane import PointPlane
from tradewind.points.spec import Quality
from tradewind.points.values import format_value
from tradewind.redis.connection import translated
from tradewind.redis.scripts import Arg
from tradewind.redis.text import text_of

#: How long a hash counts as noted in `points:pushed` and `points:feeds`.
NOTED_S = 30.0
DEFINITION_CHANGED = "definition_changed"

_pack = msgspec.msgpack.Encoder().encode


class Board(BoardReader):
    """`describe` says what is known of a point (unit, max_age_s); without it the settings decide what is stale."""

    def __init__(self, plane: PointPlane, describe: Describe | None = None) -> None:
        super().__init__(plane, describe)
        self._formats = Formats()
        self._writes = itertools.count()
        self._name = short_random()
        self._noted: dict[str, float] = {}

    async def write(self, batches: Sequence[Batch]) -> Written:
        """Write them all, or raise Invalid naming everything that is wrong and write nothing.

        For whoever the points belong to: the driver of a channel, the engine of models. Others use `push`. What belongs
        to substituted points is kept beside what people say. Atomic up to 10,000 points (in a cluster: of one channel),
        beyond that in pieces. Safe to repeat.
        """
        lines = await self._lines(batches)
        if not lines:
            return Written()
        await self._note(lines)
        return await self._write(lines)

    async def push(self, batches: Sequence[Batch], versions: Mapping[str, str]) -> Written:
        """As `write`, for programs that are no driver. `versions`: of the definitions by which the caller judged that
        these channels have no device, `-` for one that is not declared. Raises Conflict (`definition_changed`) when one
        is another now. Nothing is written then, up to 10,000 points; of more, and in a cluster, some may have been
        written before that (the message says so): what these channels show of it is made uncertain."""
        lines = await self._lines(batches)
        if not lines:
            return Written()
        expected = {line.channel: versions.get(line.channel, "-") for line in lines if line.channel}
        is_cluster = self.plane.link.cluster
        if not is_cluster and sum(line.count for line in lines) <= MAX_POINTS:
            await self._note(lines)
            return await self._write(lines, expected)
        if await self._versions(expected) != expected:
            raise _definition_changed()
        await self._note(lines)
        written: Written | None = None
        try:
            written = await self._write(lines, None if is_cluster else expected)
        except Conflict as error:
            if error.code != DEFINITION_CHANGED:
                raise
        now = await self._versions(expected)
        if changed := {channel for channel in expected if now[channel] != expected[channel]}:
            doubtful = [batch for batch in batches if channel_of(batch.key) in changed]
            marks = [dict.fromkeys(batch.values, Quality.UNCERTAIN.value) for batch in doubtful]
            await self.write([Batch(b.key, {}, quality=mark) for b, mark in zip(doubtful, marks, strict=True)])
        if changed or written is None:
            raise _definition_changed("; some of the values were written before that")
        return written

    async def _lines(self, batches: Sequence[Batch]) -> list[Line]:
        if sum(len(batch.values) for batch in batches) < MANY:
            return self._formats.lines(batches)
        return await offload(self._formats.lines, batches)

    async def _versions(self, channels: Iterable[str]) -> dict[str, str]:
        names = list(channels)
        found = (await self.plane.home.ask([("HMGET", self.plane.keys.channel_versions(), *names)]))[0] if names else []
        return {name: text_of(text) if text else "-" for name, text in zip(names, found, strict=True)}

    async def _write(self, lines: list[Line], expected: Mapping[str, str] | None = None) -> Written:
        if not self.plane.link.cluster:
            return await self._send("", lines, expected)
        by_channel: dict[str, list[Line]] = {}
        for line in lines:
            by_channel.setdefault(line.channel, []).append(line)
        return _sum(await asyncio.gather(*(self._send(channel, part) for channel, part in by_channel.items())))

    def pack(self, batches: Sequence[Batch]) -> tuple[list[str], list[Arg]]:
        """KEYS and ARGV of `board_write` in lua/board.lua, for scripts that write to the board together with their own
        effect. In a cluster for models only. Raises Invalid as `write` does; at most 10,000 points."""
        return self._packed(self._formats.lines(batches), "")

    async def compare_and_set(self, address: Address | str, expected: float | None, value: float) -> bool:
        """Write the value if the board shows `expected` (None: no value) for that point; says whether it did. For
        whoever the point belongs to, as `write`."""
        where = Address.parse(address) if isinstance(address, str) else address
        batch = Batch(where.key, {where.field: value})
        lines = self._formats.lines([batch])
        await self._note(lines)
        keys, args = self._packed(lines, lines[0].channel)
        known = "" if expected is None else format_value(where.kind, expected)
        reply = await self.plane.at(lines[0].channel).scripts.run("board_compare", keys, [*args, where.field, known])
        return bool(reply)

    def subscribe(
        self,
        *,
        addresses: Sequence[Address | str] = (),
        channels: Sequence[str] = (),
        patterns: Sequence[str] = (),
    ) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """The seed's messages as they come; see board_watch.watch."""
        return watch(self, addresses=addresses, channels=channels, patterns=patterns)

    async def publish(self, messages: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Publish JSON objects on keys' channels in one round trip, without touching the board (seed 001 7.2.1)."""
        prefix = self.plane.keys.channel_prefix
        pipe = self.plane.redis.pipeline(transaction=False)
        for key, message in messages:
            pipe.publish(prefix + key, codec.encode(message))
        with translated(self.plane.link):
            await pipe.execute()

    async def remove_channel(self, channel: str) -> int:
        """Remove all values of a channel (not its definition and not its commands); how many keys went."""
        keys = self.plane.keys
        names = [name for kind in sorted(KINDS) for name in self._names(f"comsrv:{channel}:{kind}")]
        names = list(dict.fromkeys([*names, keys.channel_status(channel)]))  # the substitutions are of all kinds
        if self.plane.link.cluster:
            names.append(keys.feed(channel))
        for kind in KINDS:
            self._noted.pop(f"comsrv:{channel}:{kind}", None)
        with translated(self.plane.link):
            removed: int = await self.plane.at(channel).redis.unlink(*names)
            await self.plane.redis.unlink(keys.channel_outcomes(channel))
            await self.plane.redis.srem(keys.channels_substituted(), channel)
            await self.plane.redis.srem(keys.channels_pushed(), *(f"{channel}:{kind}" for kind in KINDS))
            if self.plane.link.cluster:
                await self.plane.redis.srem(keys.feeds(), channel)
        await self.plane.forget(channel)
        return removed

    async def remove_model(self, model: str) -> int:
        """Remove all values of a model; how many keys went."""
        names = [name for kind in sorted(MODEL_KINDS) for name in self._names(f"modsrv:{model}:{kind}")]
        with translated(self.plane.link):
            removed: int = await self.plane.redis.unlink(*names)
        return removed

    async def _send(self, channel: str, lines: Sequence[Line], expected: Mapping[str, str] | None = None) -> Written:
        """One call after the other: each may have to be repeated, and knows only its own last write. `expected`:
        versions that the definitions must have."""
        scripts, written = self.plane.at(channel).scripts, []
        for part in _calls(lines):
            keys, args = self._packed(part, channel)
            if expected is None:
                reply = await scripts.run("board_write", keys, args)
            else:
                judged = {line.channel: expected[line.channel] for line in part if line.channel}
                head: list[Arg] = [len(judged), *itertools.chain.from_iterable(judged.items())]
                reply = await scripts.run("board_push", [self.plane.keys.channel_versions(), *keys], [*head, *args])
            if reply is None:
                raise _definition_changed()
            written.append(Written(*reply))
        return _sum(written)

    def _packed(self, lines: Sequence[Line], channel: str) -> tuple[list[str], list[Arg]]:
        plane = self.plane
        settings, prefix = plane.settings, plane.keys.channel_prefix
        keys = [plane.keys.feed(channel)]
        args: list[Arg] = [
            plane.clock.now_arg(),
            self.future_ms,
            settings.publish + ("+points" if settings.point_channels else ""),
            "1" if plane.link.cluster else "0",
            len(lines),
        ]
        nonce = f"{self._name}{next(self._writes):x}"
        for line in lines:
            keys += self._names(line.key)
            flat = _pack(line.d.replace(":", ",").split(","))
            args += (line.key, prefix + line.key, line.ts, line.times, line.d, flat)
            args += (line.q, line.marks, line.origin, line.ttl_ms, nonce)
        return keys, args

    async def _note(self, lines: Iterable[Line]) -> None:
        """Before the values: list hashes that nobody declared, and in a cluster the channels that have a feed."""
        now, noted = time.monotonic(), self._noted
        new = {line.key: line.channel for line in lines if line.channel and noted.get(line.key, 0.0) <= now}
        if not new:
            return
        keys = self.plane.keys
        args = [part for key, channel in new.items() for part in (channel, key.rpartition(":")[2])]
        await self.plane.scripts.run(
            "board_note",
            [keys.channels(), keys.channels_pushed(), keys.feeds()],
            ["1" if self.plane.link.cluster else "0", *args],
        )
        if len(noted) > 100_000:
            noted.clear()
        for key in new:
            noted[key] = now + NOTED_S


def _definition_changed(more: str = "") -> Conflict:
    message = f"a channel was declared otherwise in between{more}"
    return Conflict(message, code=DEFINITION_CHANGED, hint="look at the definitions and try again")


def _calls(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Lines for one script call each; a line with more points than a call takes is cut."""
    part: list[Line] = []
    count = 0
    for line in itertools.chain.from_iterable(map(_pieces, lines)):
        if part and count + line.count > MAX_POINTS:
            yield part
            part, count = [], 0
        part.append(line)
        count += line.count
    if part:
        yield part


def _pieces(line: Line) -> Iterator[Line]:
    if line.count <= MAX_POINTS:
        yield line
        return
    pairs, times = line.d.split(","), line.times.split(",") if line.times else []
    words = dict(word.split(":") for word in line.q.split(",")) if line.q else {}
    for at in range(0, line.count, MAX_POINTS):
        some = pairs[at : at + MAX_POINTS]
        ids = [pair.partition(":")[0] for pair in some] if words else []
        yield msgspec.structs.replace(
            line,
            count=len(some),
            d=",".join(some),
            times=",".join(times[at : at + MAX_POINTS]),
            q=",".join(f"{name}:{words[name]}" for name in ids if name in words),
            marks=line.marks if at == 0 else "",
        )


def _sum(parts: Iterable[Written]) -> Written:
    return Written(*map(sum, zip(*(msgspec.structs.astuple(part) for part in parts), strict=True)))
