"""Retention to the millisecond, class by class: what is younger than its days stays, what is older by a day more is
gone, and where it ends is told; at the begin, in the middle and at the end of a day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tradewind.history.influx import InfluxSink
from tradewind.history.keeping import Keeping, always
from tradewind.history.policy import read_policy
from tradewind.history.sample import Row
from tradewind.history.sink import Sink
from tradewind.history.sqlite import SqliteSink
from tradewind.settings import InfluxSettings

DAY = 86_400_000
#: Days of samples of each channel: those of its class.
DAYS = {1: 1, 2: 4, 3: 2}
KEEPING = Keeping(
    (2, 6, 0),
    read_policy(
        {
            "policies": [{"match": "comsrv:1:*", "class": "brief"}, {"match": "comsrv:2:*", "class": "long"}],
            "classes": {"brief": {"raw_days": 1, "minute_days": 3, "hour_days": 5}, "long": {"raw_days": 4}},
        }
    ),
)


@pytest.fixture(scope="module")
def influx() -> Iterator[servers.Server]:
    with servers.influx_server() as server:
        yield server


@pytest.fixture(params=["files", "influxdb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("into_day_ms", [0, 1, DAY // 2, DAY - 1])
async def test_a_class_ends_on_its_day(kind: str, into_day_ms: int, tmp_path: Path, influx: servers.Server) -> None:
    now = 20_700 * DAY + into_day_ms
    sink: Sink = SqliteSink(tmp_path, keeping=always(KEEPING), now=lambda: now)
    if kind == "influxdb":
        sink = InfluxSink(InfluxSettings(url=influx.url, database=f"d{into_day_ms}"), keeping=always(KEEPING))
    times = sorted({now - days * DAY + off for days in range(8) for off in (-1, 0, 1) if days or off < 1})
    async with sink:
        for channel in DAYS:
            await sink.write([Row(f"comsrv:{channel}:m:1", ts, 1.0) for ts in times])
        for _ in range(6):
            await sink.retain(now)
        for channel, days in DAYS.items():
            name = f"comsrv:{channel}:m:1"
            left = [ts for ts, _, _ in (await sink.read([name], 0, now + 1, 1000))[name]]
            assert {ts for ts in times if ts >= now - days * DAY} <= set(left), (channel, "too much has gone")
            assert all(ts >= now - (days + 1) * DAY for ts in left), (channel, "too much has stayed")
            mark = (await sink.kept_from([name]))[name].raw_ms
            assert mark is not None and [ts for ts in times if ts >= mark] == left, (channel, "told otherwise")
