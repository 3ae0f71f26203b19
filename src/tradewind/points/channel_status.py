"""How channels are doing: figures kept by their runners, written to `comsrv:{channel}:status` once a second at most."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import structlog

from tradewind.errors import TradewindError
from tradewind.points.plane import Place, PointPlane
from tradewind.redis.connection import translated
from tradewind.redis.faults import WrongType, report
from tradewind.redis.fences import do_all, sorted_out
from tradewind.redis.text import text_of

log = structlog.get_logger(__name__)
WRITE_S = 1.0
#: Each so many times all is written: a former owner may have written over it with its last breath.
WHOLE = 10
#: The end of the source of alarms about lost readings.
LOST = "readings"
#: Weight of the newest poll in the average.
_NEWEST = 0.1


class ChannelStatus:
    """Figures since this process took the channel. Times in ms of our clock; 0: never.

    `last_ms` is the last poll that succeeded: what the board takes all points of the channel to be as fresh as. Where
    the device or somebody else sends, nothing is known of points that were not sent: that time is `heard_ms`.
    `is_gone`: it was away for longer than its timeout; None while nobody knows. `dropped`: readings that were lost on
    their way to the board; `refused`: messages of the device that were not read because they are too large.
    """

    def __init__(self, channel: str, owner: str, points: int, now_ms: int) -> None:
        self.channel, self.owner, self.points = channel, owner, points
        self.is_online = False
        self.is_gone: bool | None = None
        self.since_ms = now_ms
        self.error = ""
        self.polls = self.failures = self.missed = self.commands = 0
        self.dropped = self.refused = 0
        self.last_ms = self.heard_ms = 0
        self.poll_ms = self.poll_ms_max = 0.0

    def polled(self, took_s: float, now_ms: int) -> None:
        took = took_s * 1000
        self.polls += 1
        self.poll_ms = took if self.polls == 1 else self.poll_ms + (took - self.poll_ms) * _NEWEST
        self.poll_ms_max = max(self.poll_ms_max, took)
        self.last_ms = now_ms

    def turn(self, is_online: bool, now_ms: int, error: str = "") -> None:
        if is_online != self.is_online:
            self.is_online, self.since_ms = is_online, now_ms
        self.error = error

    def fields(self, ahead_ms: int = 0) -> dict[str, Any]:
        """As in Redis; times by a clock that is `ahead_ms` before ours."""
        times = {name: getattr(self, name) for name in ("since_ms", "last_ms", "heard_ms")}
        return {
            "online": int(self.is_online),
            **{name: ms + ahead_ms if ms else 0 for name, ms in times.items()},
            "error": self.error,
            "polls": self.polls,
            "failures": self.failures,
            "missed": self.missed,
            "commands": self.commands,
            "dropped": self.dropped,
            "refused": self.refused,
            "points": self.points,
            "poll_ms": round(self.poll_ms, 3),
            "poll_ms_max": round(self.poll_ms_max, 3),
            "owner": self.owner,
        }


class StatusBook:
    """Writes what has changed, all channels in one round trip, and sees requests to reload a channel on the way.
    Channels that are gone, and those that are back, are reported as faults of the station."""

    def __init__(self, plane: PointPlane, on_reload: Callable[[str], None]) -> None:
        self._plane = plane
        self._on_reload = on_reload
        self._open: dict[str, ChannelStatus] = {}
        self._written: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, bytes | None] = {}
        self._told: dict[str, bool] = {}
        self._told_lost: dict[str, tuple[int, int]] = {}
        self._spoilt: set[str] = set()
        self._ahead_ms = 0
        self._writing = asyncio.Lock()

    def open(self, status: ChannelStatus) -> None:
        self._open[status.channel] = status
        self._written.pop(status.channel, None)

    def fail(self, channel: str, error: str) -> None:
        """Say in its status what stands in the way of a channel, until it has done better."""
        status = self._open.get(channel)
        if status is not None:
            status.error = error

    def all(self) -> list[ChannelStatus]:
        return list(self._open.values())

    async def close(self, channel: str, *, is_removed: bool, is_ours: bool, is_off: bool = False) -> None:
        """Nothing polls the channel here any more; the hash of one that was removed goes, and the fault of one that
        is not to be polled at all. One that another process took over in the meantime is left to it. Does not raise
        when Redis is away, or holds something else there."""
        status = self._open.pop(channel, None)
        self._written.pop(channel, None)
        self._asked.pop(channel, None)
        self._told.pop(channel, None)
        self._told_lost.pop(channel, None)
        self._spoilt.discard(channel)
        key, place = self._plane.keys.channel_status(channel), self._plane.at(channel)

        async def write() -> None:
            with translated(place.link):
                if is_removed:
                    await place.redis.unlink(key)
                    await self._plane.forget(channel)
                elif status is not None and is_ours:
                    await place.redis.hset(key, mapping=status.fields(self._ahead_ms))

        async def tell() -> None:
            if is_off:
                why = "the channel was removed" if is_removed else "the channel was disabled"
                await end_faults(self._plane, channel, why)

        try:
            # Not beside a write that still knows the channel: it would bring a removed hash back.
            async with self._writing:
                await do_all(write, tell)
        except TradewindError as error:
            log.warning("channel status not written", channel=channel, error=error.message)

    async def run(self) -> None:
        for turn in itertools.count():
            if turn % WHOLE == 0:
                self._written.clear()
            try:
                await do_all(self.write, self.tell)
            except TradewindError as error:
                self._written.clear()
                log.warning("channel status not written", error=error.message)
            await asyncio.sleep(WRITE_S)

    async def write(self) -> None:
        """What of it cannot be written, because a key holds another type, is logged. Raises Unavailable."""
        if not self._plane.link.cluster:
            await self._write_at(self._plane.home, list(self._open))
            return
        for channel in list(self._open):
            if channel in self._open:
                await self._write_at(self._plane.at(channel), [channel])

    async def tell(self) -> None:
        """Report channels that are gone or back since the last time, and those that lost readings. Raises Unavailable;
        the rest comes next time."""
        for channel, status in list(self._open.items()):
            is_gone = status.is_gone
            if is_gone is not None and is_gone != self._told.get(channel):
                await self._report(channel, is_gone=is_gone, error=status.error)
                if channel in self._open:
                    self._told[channel] = is_gone
            if (status.dropped, status.refused) != self._told_lost.get(channel, (0, 0)):
                await self._report_losses(status)

    async def _report_losses(self, status: ChannelStatus) -> None:
        """What is lost stays so: the alarm is open until somebody resolves it."""
        lost = status.dropped, status.refused
        counts = ((lost[0], "readings lost"), (lost[1], "messages refused because they are too large"))
        what = ", ".join(f"{count} {words}" for count, words in counts if count)
        source = f"comsrv:{status.channel}:{LOST}"
        await report(self._plane.link, self._plane.keys, "readings_lost", source, f"channel {status.channel}: {what}")
        log.error("readings_lost", channel=status.channel, dropped=lost[0], refused=lost[1])
        self._told_lost[status.channel] = lost

    async def _report(self, channel: str, *, is_gone: bool, error: str = "") -> None:
        plane = self._plane
        state: Literal["raise", "clear"] = "raise" if is_gone else "clear"
        text = f"channel {channel} is offline" + (f": {error}" if error else "") if is_gone else ""
        await report(plane.link, plane.keys, "channel_offline", f"comsrv:{channel}", text, state=state)

    async def _write_at(self, place: Place, channels: Iterable[str]) -> None:
        async with self._writing:
            await self._write_now(place, channels)

    async def _write_now(self, place: Place, channels: Iterable[str]) -> None:
        pipe = place.redis.pipeline(transaction=False)
        pipe.time()
        commands: list[tuple[str, str]] = [("TIME", "")]
        asked = []
        for channel in channels:
            status = self._open.get(channel)
            if status is None:
                continue
            key, fields = self._plane.keys.channel_status(channel), status.fields(self._ahead_ms)
            before = self._written.get(channel)
            changed = fields if before is None else {k: v for k, v in fields.items() if before.get(k) != v}
            if changed:
                pipe.hset(key, mapping=changed)
                commands.append(("HSET", key))
                self._written[channel] = fields
            pipe.hget(key, "reload")
            commands.append(("HGET", key))
            asked.append((channel, bool(changed)))
        with translated(place.link):
            replies = iter(sorted_out(commands, await pipe.execute(raise_on_error=False)))
        seconds, micros = next(replies)
        ahead = seconds * 1000 + micros // 1000 - self._plane.clock.now_ms()
        if abs(ahead - self._ahead_ms) > 100:  # else it would jitter, and all times with it
            self._ahead_ms = ahead
        for channel, was_written in asked:
            if was_written:
                next(replies)
            wish = next(replies)
            if isinstance(wish, WrongType):
                self._not_written(channel, wish)
                continue
            self._spoilt.discard(channel)
            if channel in self._asked and wish != self._asked[channel]:
                self._on_reload(channel)
            self._asked[channel] = wish

    def _not_written(self, channel: str, error: WrongType) -> None:
        self._written.pop(channel, None)
        if channel not in self._spoilt:  # once, not each second
            log.error("channel_status_not_written", channel=channel, error=error.message)
        self._spoilt.add(channel)


async def end_faults(plane: PointPlane, channel: str, why: str) -> None:
    """Resolve the alarms of a channel that is not to be polled any more. Raises Unavailable."""
    for code, source in (("channel_offline", f"comsrv:{channel}"), ("readings_lost", f"comsrv:{channel}:{LOST}")):
        await report(plane.link, plane.keys, code, source, why, state="clear")


async def request_reload(plane: PointPlane, channel: str, wish: str) -> None:
    """Ask whichever process polls the channel to begin anew, within about a second. `wish` is new with each request."""
    place = plane.at(channel)
    with translated(place.link):
        await place.redis.hset(plane.keys.channel_status(channel), "reload", wish)


async def read_statuses(plane: PointPlane, channels: Sequence[str]) -> list[dict[str, Any]]:
    """The figures of channels as their owners wrote them last; an empty dict for one that nobody has polled yet, only
    an `error` for one whose figures cannot be read."""
    found: list[dict[str, Any]] = []
    for channel in channels:
        stored = (await plane.at(channel).ask_each([("HGETALL", plane.keys.channel_status(channel))]))[0]
        if isinstance(stored, WrongType):
            found.append({"error": stored.message})
            continue
        fields: dict[str, Any] = {text_of(name): text_of(value) for name, value in stored.items()}
        for name in ("reload", "protocol"):
            fields.pop(name, None)
        for name, text in fields.items():
            if name not in ("error", "owner"):
                try:
                    fields[name] = float(text) if "." in text else int(text)
                except ValueError:  # of another program, or harmed by hand
                    fields[name] = 0
        if "online" in fields:
            fields["online"] = bool(fields["online"])
        found.append(fields)
    return found
