"""The sink contract against a real InfluxDB, and what only InfluxDB has."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from tests import servers
from tests.history.class_contract import ClassContract
from tests.history.sink_contract import DAY0, A, NewSink, SinkContract
from tradewind.history.columns import Columns
from tradewind.history.influx import MAX_LINES, InfluxSink
from tradewind.history.keeping import KeepingSource
from tradewind.history.sample import Row
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

    async def make(raw_days: int = 0, keeping: KeepingSource | None = None) -> Sink:
        name = f"t{next(_numbers)}_{secrets.token_hex(3)}"
        sink = InfluxSink(InfluxSettings(url=influx.url, database=name), raw_days, keeping=keeping)
        await sink.open()
        sinks.append(sink)
        return sink

    yield make
    for sink in sinks:
        await sink.close()


class TestInflux(SinkContract, ClassContract):
    async def test_the_last_row_of_one_key_stays_also_in_another_request(self, sink: Sink) -> None:
        rows = [Row(A, DAY0 + at, float(at), 0) for at in range(2 * MAX_LINES)]
        rows[0], rows[-1] = Row(A, DAY0, -1.0, 0), Row(A, DAY0, -2.0, 0)
        for _ in range(3):
            assert (await sink.write(Columns(rows))).stored == 2 * MAX_LINES
            assert (await sink.read([A], DAY0, DAY0 + 1, 9))[A] == [(DAY0, -2.0, 0)]
