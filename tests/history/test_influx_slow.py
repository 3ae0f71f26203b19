"""An InfluxDB with too many series to list them in time, and answers that nobody knows: samples go, or wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.history.influx_fake import FakeInflux, Reply, Request, Silence, fake_influx
from tradewind.history import influx
from tradewind.history.influx import InfluxSink
from tradewind.history.sample import Row
from tradewind.history.sink import SinkAway
from tradewind.settings import InfluxSettings

ONE, T0 = "comsrv:1001:m:1", 1_790_000_000_000


@pytest.fixture
async def fake() -> AsyncIterator[FakeInflux]:
    async with fake_influx() as server:
        yield server


async def test_a_server_too_slow_for_questions_still_gets_samples(
    fake: FakeInflux, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its quality, since it is not known which series have one. It is not asked again soon."""
    monkeypatch.setattr(influx, "MARKS_S", 0.2)
    monkeypatch.setattr(influx, "IDLE_S", -1.0)  # before every write

    def silent(request: Request) -> Reply:
        raise Silence

    fake.to_questions = silent
    async with InfluxSink(InfluxSettings(url=fake.url, gzip="never")) as sink:
        for at in range(3):
            assert (await sink.write([Row(ONE, T0 + at, 1.0)])).stored == 1
    questions = [request for request in fake.requests if request.path == "/query"]
    lines = [request.body for request in fake.requests if request.path == "/write"]
    assert len(questions) == 1 and len(lines) == 3 and all(b"quality=0" in line for line in lines)


async def test_a_server_that_is_away_for_questions_is_away(fake: FakeInflux) -> None:
    fake.to_questions = lambda request: Reply(503, b"{}")
    async with InfluxSink(InfluxSettings(url=fake.url)) as sink:
        with pytest.raises(SinkAway):
            await sink.write([Row(ONE, T0, 1.0)])


async def test_one_row_that_is_refused_in_unknown_words_waits_like_two(fake: FakeInflux) -> None:
    """As by a proxy that was spoken to on the wrong port."""
    fake.answer = lambda request: Reply(400, b"The plain HTTP request was sent to HTTPS port")
    async with InfluxSink(InfluxSettings(url=fake.url)) as sink:
        for count in (2, 1):
            with pytest.raises(SinkAway):
                await sink.write([Row(ONE, T0 + n, 1.0) for n in range(count)])


async def test_one_row_that_is_refused_among_good_ones_is_put_aside(fake: FakeInflux) -> None:
    """So one that waited alone is known as bad when others come."""
    fake.answer = lambda request: Reply(400, b"nobody knows") if b" %d" % T0 in request.body else Reply(204, b"")
    async with InfluxSink(InfluxSettings(url=fake.url, gzip="never")) as sink:
        written = await sink.write([Row(ONE, T0 + n, 1.0) for n in range(5)])
    assert [row.ts_ms for row, _ in written.refused] == [T0]
