"""The embedded sink keeps the contract of every sink: fresh from the tail, moved to its days, rolled up and packed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.history.class_contract import ClassContract
from tests.history.sink_contract import NewSink, SinkContract
from tradewind.history.keeping import KeepingSource
from tradewind.history.sample import Row
from tradewind.history.sink import Sink, Written
from tradewind.history.sqlite import SqliteSink

#: Later than every sample of the tests.
LONG_AFTER = 2_000_000_000_000


class MovingSink(SqliteSink):
    """Does all upkeep after every write: nothing is answered from the tail, and what can be rolled up is."""

    async def write(self, rows: Sequence[Row]) -> Written:
        written = await super().write(rows)
        await self.keep_up()
        return written


class PackingSink(MovingSink):
    """And packs every day at once."""

    async def write(self, rows: Sequence[Row]) -> Written:
        written = await super().write(rows)
        await self.retain(LONG_AFTER)
        return written


@pytest.mark.parametrize("kind", [SqliteSink, MovingSink, PackingSink])
class TestSqlite(SinkContract, ClassContract):
    @pytest.fixture
    async def new_sink(self, tmp_path: Path, kind: type[SqliteSink]) -> AsyncIterator[NewSink]:
        opened: list[Sink] = []

        async def new_sink(raw_days: int = 0, keeping: KeepingSource | None = None) -> Sink:
            made = kind
            if made is PackingSink and (raw_days or keeping is not None):
                made = MovingSink  # packing at once would remove at once, too
            # Every hour is over as soon as a later one has begun.
            folder = tmp_path / f"history{len(opened)}"
            sink = made(folder, (raw_days, 0, 0), keeping=keeping, now=lambda: LONG_AFTER)
            opened.append(sink)
            await sink.open()
            return sink

        yield new_sink
        for sink in opened:
            await sink.close()
