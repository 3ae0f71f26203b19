"""A channel whose values are sent to the API: nothing to poll; says when they stop coming."""

from __future__ import annotations

import asyncio

import structlog

from tradewind.errors import TradewindError
from tradewind.points.address import is_number
from tradewind.points.batch import Batch
from tradewind.points.board import Board
from tradewind.points.channel_samples import READ_KINDS
from tradewind.points.channel_status import ChannelStatus
from tradewind.points.plane import PointPlane
from tradewind.points.spec import ChannelSpec, Quality
from tradewind.points.values import whole

log = structlog.get_logger(__name__)


class PushWatch:
    """`run` until it is cancelled. A value older than its point's `max_age_s` (`points.stale_s`) becomes uncertain."""

    def __init__(self, channel: ChannelSpec, board: Board, status: ChannelStatus) -> None:
        self.channel = channel
        self.status = status
        self._board = board
        self._plane: PointPlane = board.plane
        usual_s = self._plane.settings.stale_s
        self._usual_ms = int(usual_s * 1000)
        ages = [point for point in channel.points if point.max_age_s is not None]
        self._ages_ms = {(str(point.kind), point.id): int((point.max_age_s or 0) * 1000) for point in ages}
        shortest_s = min([usual_s, *(point.max_age_s or 0 for point in ages)])
        self._every_s = min(10.0, max(0.25, shortest_s / 4))
        self._marked: dict[tuple[str, str], int] = {}

    is_unsure = False

    def wake(self) -> None:
        """There is no device, so no commands either."""

    async def finish_command(self, timeout_s: float) -> None:
        """As ChannelRunner."""

    async def run(self) -> None:
        while True:
            try:
                await self._look()
            except TradewindError as error:
                log.warning("pushed channel not looked at", channel=self.channel.id, error=error.message)
            await asyncio.sleep(self._every_s)

    async def _look(self) -> None:
        keys, channel = self._plane.keys, self.channel.id
        commands = [("TIME",), *(("HGETALL", keys.points_ts(channel, kind)) for kind in READ_KINDS)]
        commands.append(("HKEYS", keys.point_substitutions(channel)))
        (seconds, micros), *found, substituted = await self._plane.at(channel).ask(commands)
        people = {name.decode(errors="replace") for name in substituted}
        now = int(self._plane.clock.now_arg() or seconds * 1000 + micros // 1000)
        newest = 0
        batches = []
        for kind, times in zip(READ_KINDS, found, strict=True):
            stale = {}
            for name, at in times.items():
                key, ts = (kind.value, name.decode(errors="replace")), whole(at)
                if not ts or not is_number(key[1]):  # a foreign program has left something that is no time
                    continue
                if ":".join(key) in people:  # nobody has sent that
                    continue
                newest = max(newest, ts)
                if now - ts > self._ages_ms.get(key, self._usual_ms) and self._marked.get(key) != ts:
                    self._marked[key] = ts
                    stale[key[1]] = Quality.UNCERTAIN.value
            if stale:
                batches.append(Batch.of_channel(channel, kind, {}, quality=stale))
        if batches:
            try:
                await self._board.write(batches)
            except BaseException:
                self._marked.clear()
                raise
        is_fresh = newest > 0 and now - newest <= self._usual_ms
        self.status.heard_ms = newest
        error = "" if is_fresh else f"no value for {(now - newest) // 1000} s" if newest else "no value yet"
        self.status.turn(is_fresh, now, error)
        if newest:
            self.status.is_gone = not is_fresh
