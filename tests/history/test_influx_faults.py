"""A real InfluxDB that stops, hangs, forgets its database, or does not like what it gets."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator

import httpx2 as httpx
import pytest

from tests import servers
from tradewind.history.influx import InfluxSink
from tradewind.history.influx_http import InfluxHttp
from tradewind.history.influx_line import LineMaker
from tradewind.history.influx_split import split
from tradewind.history.sample import Row
from tradewind.history.sink import SinkAway
from tradewind.settings import InfluxSettings

A, B = "comsrv:1001:m:10001", "comsrv:1001:s:7"
T0, DAY = 1_790_000_000_000, 86_400_000


def rows(count: int, start_ms: int = T0) -> list[Row]:
    return [Row(A, start_ms + n * 1000, n / 4, 0) for n in range(count)]


@pytest.fixture(scope="module")
def influx() -> Iterator[servers.Server]:
    with servers.influx_server() as server:
        yield server


@pytest.fixture
def settings(influx: servers.Server) -> InfluxSettings:
    return InfluxSettings(url=influx.url, database=f"t{secrets.token_hex(5)}")


@pytest.fixture
async def sink(settings: InfluxSettings) -> AsyncIterator[InfluxSink]:
    async with InfluxSink(settings, timeout_s=2.0) as sink:
        yield sink


def configured(server: servers.Server, *lines: str) -> None:
    """Start the server again with more lines in its section [http]."""
    server.stop()
    file = server.dir / "influxdb.conf"
    file.write_text(file.read_text().replace("log-enabled = false", "\n".join(["log-enabled = false", *lines])))
    server.start()


async def query(settings: InfluxSettings, text: str) -> str:
    async with httpx.AsyncClient(base_url=settings.url) as client:
        answer = await client.post("/query", params={"db": settings.database, "epoch": "ms"}, data={"q": text})
        assert answer.status_code == 200 and '"error"' not in answer.text, answer.text
        return answer.text


async def write_raw(settings: InfluxSettings, line: str) -> None:
    async with httpx.AsyncClient(base_url=settings.url) as client:
        params = {"db": settings.database, "precision": "ms"}
        assert (await client.post("/write", params=params, content=line.encode())).status_code == 204


async def test_a_server_that_stops_and_comes_back_loses_nothing(settings: InfluxSettings, sink: InfluxSink) -> None:
    with servers.influx_server() as server:
        async with InfluxSink(settings.model_copy(update={"url": server.url}), timeout_s=2.0) as own:
            await own.write(rows(100))
            server.kill()
            with pytest.raises(SinkAway):
                await own.write(rows(200))
            with pytest.raises(SinkAway):
                await own.read([A], 0, T0 + DAY, 10)
            server.start()
            assert (await own.write(rows(200))).stored == 200
            assert len((await own.read([A], 0, T0 + DAY, 1000))[A]) == 200


async def test_a_server_that_hangs_is_away_after_the_timeout_and_a_second_write_does_no_harm() -> None:
    with servers.influx_server() as server:
        settings = InfluxSettings(url=server.url)
        async with InfluxSink(settings, timeout_s=1.0) as sink:
            await sink.write(rows(10))
            server.pause()
            began = time.monotonic()
            with pytest.raises(SinkAway) as caught:
                await sink.write(rows(500))
            assert caught.value.code == "sink_timeout" and time.monotonic() - began < 8
            server.resume()  # and may now store what it had got: the same once more is the same
            assert (await sink.write(rows(500))).stored == 500
            [(_, count, total)] = (await sink.buckets([A], 0, T0 + DAY, 10 * DAY, ["count", "sum"], 9))[A]
            assert (count, total) == (500, sum(n / 4 for n in range(500)))


async def test_a_missing_database_is_created_also_when_it_goes_later(
    settings: InfluxSettings, sink: InfluxSink
) -> None:
    assert (await sink.latest([A]))[A] is None
    await sink.write(rows(3))
    await query(settings, f'DROP DATABASE "{settings.database}"')
    assert (await sink.write(rows(5))).stored == 5
    assert len((await sink.read([A], 0, T0 + DAY, 100))[A]) == 5


async def test_a_database_with_an_odd_name(influx: servers.Server) -> None:
    name = 'it\'s "odd"; DROP DATABASE x'
    async with InfluxSink(InfluxSettings(url=influx.url, database=name)) as sink:
        await sink.write(rows(2))
        assert len((await sink.read([A], 0, T0 + DAY, 9))[A]) == 2
        assert (await sink.stats()).rows == 2


async def test_one_unreadable_line_among_1000_stands_alone(settings: InfluxSettings, sink: InfluxSink) -> None:
    """No row makes such a line, so it is put among the lines here."""
    http = InfluxHttp(settings)
    http.open()
    some = rows(1000)
    lines = LineMaker().make(some).lines
    lines[617] = lines[617].replace("value=", "value=,")
    rejection = await http.write(http.packed("\n".join(lines).encode()))
    assert rejection is not None and rejection.reason == "not_understood"
    refused = await split(some, lines, rejection, lambda part: http.write(http.packed("\n".join(part).encode())))
    assert [(row, why) for row, why in refused] == [(some[617], "not_understood")]
    kept = (await sink.read([A], 0, T0 + DAY, 2000))[A]
    assert [ts for ts, _, _ in kept] == [row.ts_ms for row in some if row is not some[617]]
    await http.close()


async def test_a_type_conflict_costs_only_the_rows_that_have_it(settings: InfluxSettings, sink: InfluxSink) -> None:
    await sink.write([Row("modsrv:m:measurement:f", T0, 1.0, 0)])
    await write_raw(settings, f"telemetry,who=somebody value=5i {T0}")  # `value` is an integer in this week's shard
    early, late = rows(200), rows(800, T0 + 30 * DAY)
    model = [Row("modsrv:m:measurement:f", T0 + n, 2.0, 0) for n in range(100)]
    mixed = [row for three in zip(late, late, late, strict=True) for row in three[:1]]
    mixed[100:100] = early
    mixed[500:500] = model
    written = await sink.write(mixed)
    assert written.stored == 900
    assert {why for _, why in written.refused} == {"type_conflict"}
    assert [row for row, _ in written.refused] == early
    assert len((await sink.read([A], T0 + DAY, T0 + 60 * DAY, 2000))[A]) == 800
    [(_, count)] = (await sink.buckets(["modsrv:m:measurement:f"], 0, T0 + DAY, 10 * DAY, ["count"], 9)).popitem()[1]
    assert count == 100


async def test_many_rows_in_conflict_are_found_with_few_requests(
    settings: InfluxSettings, sink: InfluxSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sink.write([Row(A, T0 - 60 * DAY, 1.0, 0)])
    await write_raw(settings, f"telemetry,who=somebody value=5i {T0}")
    calls = 0
    send = InfluxHttp.write

    async def counted(self: InfluxHttp, body: bytes) -> object:
        nonlocal calls
        calls += 1
        return await send(self, body)

    monkeypatch.setattr(InfluxHttp, "write", counted)
    mixed = [row for pair in zip(rows(2000), rows(2000, T0 + 30 * DAY), strict=True) for row in pair]
    written = await sink.write(mixed)
    assert (written.stored, len(written.refused)) == (2000, 2000)
    assert calls < 60


async def test_rows_that_the_servers_policy_no_longer_keeps(settings: InfluxSettings, sink: InfluxSink) -> None:
    now = time.time_ns() // 1_000_000
    await query(settings, f'CREATE DATABASE "{settings.database}" WITH DURATION 7d')
    fresh, old = rows(50, now - DAY // 2), rows(50, now - 30 * DAY)
    written = await sink.write(old[:25] + fresh + old[25:])
    assert written.stored == 50
    assert [(row, why) for row, why in written.refused] == [(row, "beyond_retention") for row in old]
    assert len((await sink.read([A], 0, now + DAY, 1000))[A]) == 50
    stats = await sink.stats()
    assert stats.raw_from_ms == pytest.approx(now - 7 * DAY, abs=60_000)


async def test_a_body_that_is_too_large_is_sent_in_pieces() -> None:
    with servers.influx_server() as server:
        configured(server, "max-body-size = 2000")
        async with InfluxSink(InfluxSettings(url=server.url)) as sink:
            some = [Row(A, T0 + n * 997, n / 7, 0) for n in range(1000)]
            assert (await sink.write(some)).stored == 1000
            assert len((await sink.read([A], 0, T0 + DAY, 2000))[A]) == 1000


async def test_user_and_password_and_the_lack_of_rights() -> None:
    with servers.influx_server() as server:
        admin = InfluxSettings(url=server.url, user="root", password="p' w")
        await query(admin, "CREATE USER root WITH PASSWORD 'p\\' w' WITH ALL PRIVILEGES")
        configured(server, "auth-enabled = true")
        async with InfluxSink(admin) as sink:
            await sink.write(rows(10))
            assert len((await sink.read([A], 0, T0 + DAY, 100))[A]) == 10
            assert (await sink.stats()).rows == 10
        for wrong in (InfluxSettings(url=server.url), admin.model_copy(update={"password": "wrong"})):
            async with InfluxSink(wrong) as sink:
                with pytest.raises(SinkAway) as caught:
                    await sink.write(rows(11))
                assert "influx.user" in caught.value.hint
                with pytest.raises(SinkAway):
                    await sink.read([A], 0, T0 + DAY, 100)
        async with httpx.AsyncClient(base_url=server.url, auth=(admin.user, admin.password)) as client:
            for text in ("CREATE USER pen WITH PASSWORD 'ink'", f'GRANT WRITE ON "{admin.database}" TO pen'):
                assert (await client.post("/query", params={"q": text})).status_code == 200
        async with InfluxSink(admin.model_copy(update={"user": "pen", "password": "ink"})) as sink:
            assert (await sink.write(rows(20))).stored == 20
        async with InfluxSink(admin) as sink:
            assert len((await sink.read([A], 0, T0 + DAY, 100))[A]) == 20


async def test_a_write_that_is_cancelled_leaves_the_sink_usable(sink: InfluxSink) -> None:
    for delay_s in (0.0, 0.001, 0.005, 0.02):
        task = asyncio.create_task(sink.write(rows(12_000)))
        await asyncio.sleep(delay_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await sink.write(rows(12_000))).stored == 12_000
    [(_, count)] = (await sink.buckets([A], 0, T0 + DAY, 10 * DAY, ["count"], 9))[A]
    assert count == 12_000
