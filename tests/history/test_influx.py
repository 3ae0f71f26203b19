"""The sink contract against a real InfluxDB, and what only InfluxDB has."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from tests import servers
from tests.history.sink_contract import NewSink, SinkContract
from tradewind.history.influx import InfluxSink
from tradewind.history.sink import Sink
from tradewind.settings import InfluxSettings

_numbers = itertools.count()


@pytest.fixture(scope="module")
def influx() -> Iterator[servers.Server]:
    with servers.influx_server() as server:
        yield server


@pytest.fixture
async def new_sink(influx: servers.Server) -> AsyncIterator[NewSink]:
    sinks: list[InfluxSink] = []

    async def make(raw_days: int = 0) -> Sink:
        name = f"t{next(_numbers)}_{secrets.token_hex(3)}"
        sink = InfluxSink(InfluxSettings(url=influx.url, database=name), raw_days)
        await sink.open()
        sinks.append(sink)
        return sink

    yield make
    for sink in sinks:
        await sink.close()


class TestInflux(SinkContract):
    pass
