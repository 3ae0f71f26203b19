"""What the board shows and the feed does not tell: values from before the first start, or that were trimmed unread, and
what a minimum interval held back when a recorder was killed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tradewind.history.batcher import Batcher
from tradewind.history.sample import Row
from tradewind.history.sink import Sample
from tradewind.points.board_read import BoardReader
from tradewind.points.plane import PointPlane

#: Series whose newest samples the sink is asked for at once.
TOGETHER = 1000

Latest = Callable[[Sequence[str]], Awaitable[Mapping[str, Sample | None]]]


class Untold:
    """The board is looked at when the feed is read to its end, and what it showed is taken when that is so once more:
    then the feed has told all of it that it can."""

    def __init__(self, plane: PointPlane, batcher: Batcher, latest: Latest) -> None:
        self._board = BoardReader(plane)
        self._batcher = batcher
        self._latest = latest
        self._owed = ""  # or "some", or "all"
        self._shown: list[Row] = []

    def owe(self, *, is_whole: bool) -> None:
        """Look at the board soon; unless `is_whole`, for points with a minimum interval only."""
        self._owed = "all" if is_whole else self._owed or "some"
        self._shown = []
        self._batcher.newest = self._batcher.newest or {}

    async def caught_up(self) -> None:
        """Call it when the feed is read to its end. Raises Unavailable."""
        if self._shown:
            await self._take()
        elif self._owed:
            async for points in self._board.read_all():
                self._shown += self._batcher.shown(points, is_whole=self._owed == "all")
            self._owed = ""
            if not self._shown:
                self._batcher.newest = None

    async def _take(self) -> None:
        batcher, shown, newest = self._batcher, self._shown, self._batcher.newest or {}
        batcher.newest, self._shown = None, []
        missing = [row for row in shown if row.ts_ms > newest.get(row.series, -1)]
        for at in range(0, len(missing), TOGETHER):
            part = missing[at : at + TOGETHER]
            stored = await self._latest([row.series for row in part])
            for row in part:
                last = stored.get(row.series)
                batcher.thinner.seed(row.series, Row(row.series, *last) if last is not None else None)
                if row.ts_ms > max(last[0] if last else -1, batcher.thinner.newest_ms(row.series)):
                    batcher.add_shown(row, time.monotonic())
