"""The time that retention goes by: a wrong clock costs no history, a right one is followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import servers
from tests.history.history_room import QUICK, HistoryRoom, until
from tests.history.memory_sink import MemorySink
from tradewind.clock import now_ms
from tradewind.history import retention
from tradewind.history.influx import InfluxSink
from tradewind.history.retention import RetentionClock
from tradewind.history.sample import Row
from tradewind.history.sink import Retained
from tradewind.history.sqlite import SqliteSink
from tradewind.redis.connection import open_link
from tradewind.settings import InfluxSettings, RedisSettings

DAY, HOUR, NOW = 86_400_000, 3_600_000, 20_000 * 86_400_000
ONE = "comsrv:1001:m:1"


@pytest.fixture
async def room(redis_7: servers.Server, key_prefix: str, tmp_path: Path) -> AsyncIterator[HistoryRoom]:
    link = await open_link(RedisSettings(url=redis_7.url))
    room = HistoryRoom(link, key_prefix, tmp_path)
    await room.store.put_policy(QUICK)
    yield room
    await room.plane.close()
    await link.close()


def test_it_is_bounded_by_the_newest_sample() -> None:
    assert RetentionClock().look(NOW, NOW - 5, 60) == NOW
    assert RetentionClock().look(NOW + 400 * DAY, NOW, 60) == NOW + DAY
    assert RetentionClock().look(NOW, NOW + 400 * DAY, 60) == NOW


def test_a_leap_is_followed_slowly_and_taken_back_at_once() -> None:
    """Also when the samples leap with the clock."""
    clock, far = RetentionClock(), NOW + 400 * DAY
    assert clock.look(NOW, NOW, 60) == NOW
    for minute in range(1, 11):
        assert clock.look(far, far, 60) == NOW + minute * HOUR and clock.ahead_ms > 390 * DAY
    assert clock.look(NOW + 600_000, far, 60) == NOW + 600_000 and clock.ahead_ms == 0


def test_after_days_without_a_recorder_it_is_right_again_within_hours() -> None:
    clock, minutes = RetentionClock(NOW - 10 * DAY), 0
    while clock.look(NOW + minutes * 60_000, NOW + minutes * 60_000, 60) < NOW + minutes * 60_000:
        minutes += 1
    assert 200 < minutes < 300


@pytest.mark.parametrize("kind", ["files", "influxdb"])
async def test_a_clock_that_is_wrong_for_a_while_costs_no_history(
    room: HistoryRoom, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples bear the wrong time as well."""
    now, ahead = now_ms(), 0
    monkeypatch.setattr(retention, "RETAIN_S", 0.05)
    monkeypatch.setattr(retention, "now_ms", lambda: now_ms() + ahead)
    with servers.influx_server() as influx:
        files, other = SqliteSink(tmp_path / "files", (30, 365, 0)), InfluxSink(InfluxSettings(url=influx.url), 30)
        async with files if kind == "files" else other as sink:
            await sink.write([Row(ONE, now - days * DAY, 1.0) for days in range(20)])
            calls, retain = 0, sink.retain

            async def counted(at_ms: int) -> Retained:
                nonlocal calls
                calls += 1
                return await retain(at_ms)

            monkeypatch.setattr(sink, "retain", counted)
            async with room.recorder(sink):
                await room.write(now, {"2": 1})
                await until(lambda: calls > 1)
                ahead, calls = 400 * DAY, 0
                await stamp(room, now + 400 * DAY)
                await until(lambda: calls > 3)
                await until(lambda: _is_told(room, "raise"))
                ahead = 0
                await until(lambda: _is_told(room, "clear"))
            async with files if kind == "files" else other:
                assert (await sink.write([Row(ONE, now + 1, 1.0)])).refused == []
                assert len((await sink.read([ONE], 0, now + DAY, 100))[ONE]) == 21


async def test_a_recorder_that_starts_with_a_wrong_clock_knows_where_retention_stood(
    room: HistoryRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Sink(MemorySink):
        async def retain(self, now_ms: int) -> Retained:
            asked.append(now_ms)
            return Retained()

    now = now_ms()
    async with room.recorder(Sink()):
        await asyncio.sleep(0.7)
        assert asked == [], "without a sample nothing needs to go"
        await room.write(now, {"1": 1})
        await until(lambda: len(asked) == 1)
    monkeypatch.setattr(retention, "now_ms", lambda: now + 400 * DAY)
    async with room.recorder(Sink()):
        await stamp(room, now + 400 * DAY)
        await until(lambda: len(asked) == 2)
    assert abs(asked[0] - now) < 60_000 and asked[1] - asked[0] <= HOUR


async def stamp(room: HistoryRoom, ts_ms: int) -> None:
    """A sample by the wrong clock; the board would hold it back, since that of Redis is right here."""
    await room.plane.redis.xadd(room.keys.feed(), {"k": "comsrv:1001:m", "t": ts_ms, "d": "2:2"})


async def _is_told(room: HistoryRoom, state: str) -> bool:
    told = [fault for fault in await room.faults() if fault[0] == "history:clock"]
    return bool(told) and told[-1] == ("history:clock", "history_clock", state)
