"""A sink in memory that can be told to be away, slow or picky, and remembers every write; for tests of the recorder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tradewind.history.sample import Refused, Row
from tradewind.history.sink import KeptFrom, Retained, Sample, SeriesInfo, Sink, SinkAway, SinkStats, Written


class MemorySink(Sink):
    """`may_go`: writes wait until it is set."""

    def __init__(self) -> None:
        self.found: dict[str, dict[int, tuple[float, int]]] = {}
        self.writes: list[list[Row]] = []
        self.is_away = False
        self.refuses: Callable[[Row], bool] = lambda row: False
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.retained = self.tries = 0

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def write(self, rows: Sequence[Row]) -> Written:
        self.tries += 1
        await self.may_go.wait()
        self._check()
        self.writes.append(list(rows))
        refused = [Refused(row, "picky") for row in rows if self.refuses(row)]
        for row in rows:
            if not self.refuses(row):
                self.found.setdefault(row.series, {})[row.ts_ms] = (row.value, row.quality)
        return Written(len(rows) - len(refused), refused)

    async def latest(self, series: Sequence[str]) -> dict[str, tuple[int, float, int] | None]:
        self._check()
        newest = {name: max(self.found.get(name, {}), default=None) for name in series}
        return {name: (ts, *self.found[name][ts]) if ts is not None else None for name, ts in newest.items()}

    async def retain(self, now_ms: int) -> Retained:
        self._check()
        self.retained += 1
        return Retained()

    def rows(self) -> int:
        return sum(len(samples) for samples in self.found.values())

    def values(self, series: str) -> list[float]:
        return [value for _, (value, _) in sorted(self.found.get(series, {}).items())]

    def _check(self) -> None:
        if self.is_away:
            raise SinkAway("the sink in memory is away", hint="wait")

    async def read(self, series: Sequence[str], from_ms: int, to_ms: int, limit: int) -> dict[str, list[Sample]]:
        self._check()
        return {name: self._samples(name, from_ms, to_ms)[:limit] for name in series}

    def _samples(self, name: str, from_ms: int, to_ms: int) -> list[Sample]:
        return [(ts, *pair) for ts, pair in sorted(self.found.get(name, {}).items()) if from_ms <= ts < to_ms]

    async def buckets(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def series(self, *args: Any, **named: Any) -> list[SeriesInfo]:
        raise NotImplementedError

    async def stats(self) -> SinkStats:
        raise NotImplementedError

    async def kept_from(self, series: Sequence[str]) -> dict[str, KeptFrom]:
        return dict.fromkeys(series, KeptFrom())

    async def forget(self, series: Sequence[str]) -> int:
        raise NotImplementedError
