"""Both sinks with the same samples, for the tests of questions: `both_sinks` is a fixture that gives each in turn."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests import servers
from tradewind.history.influx import InfluxSink
from tradewind.history.query import HistoryQuery
from tradewind.history.question import Limits
from tradewind.history.sink import Sink
from tradewind.history.sqlite import SqliteSink
from tradewind.settings import InfluxSettings

#: Begins a day, in UTC; questions are asked two days later.
DAY0 = 1_790_035_200_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NOW = DAY0 + 2 * DAY
A, B, C = "comsrv:1001:m:1", "comsrv:1001:m:2", "comsrv:2002:s:7"


def influx_for_module() -> Iterator[servers.Server]:
    with servers.influx_server() as server:
        yield server


@asynccontextmanager
async def open_sink(kind: str, folder: Path, influx: servers.Server | None) -> AsyncIterator[Sink]:
    if kind == "influx":
        assert influx is not None
        made: Sink = InfluxSink(InfluxSettings(url=influx.url, database=f"q{secrets.token_hex(4)}"))
    else:
        made = SqliteSink(folder / "history", now=lambda: NOW)
    async with made as sink:
        yield sink


async def units(series: Sequence[str]) -> dict[str, str]:
    return {A: "kW"}


def query_of(sink: Sink, max_points: int = 100_000, max_series: int = 100, now: int = NOW) -> HistoryQuery:
    return HistoryQuery(sink, units, Limits(max_points, max_series), now=lambda: now)
