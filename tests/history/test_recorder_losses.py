"""What could cost samples silently: no spool, a slow write, a Redis that forgets, others who remove from the feed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import servers
from tests.history.history_room import QUICK, HistoryRoom, until
from tests.history.memory_sink import MemorySink
from tradewind.clock import now_ms
from tradewind.history import delivery
from tradewind.history.status import SILENT_MS
from tradewind.points.feed_trim import trim_feed
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings
from tradewind.station_history import HistoryRoom as StationHistory
from tradewind.station_points import PointRoom

ONE = "comsrv:1001:m:1"


@pytest.fixture
async def room(
    redis_7: servers.Server, key_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HistoryRoom]:
    monkeypatch.setattr("tradewind.history.recorder.TICK_S", 0.2)
    link = await open_link(RedisSettings(url=redis_7.url))
    room = HistoryRoom(link, key_prefix, tmp_path)
    await room.store.put_policy(QUICK)
    yield room
    await room.plane.close()
    await link.close()


async def says(room: HistoryRoom, **expected: str) -> bool:
    status = await room.store.status()
    return all(status.get(name) == text for name, text in expected.items())


async def last_fault(room: HistoryRoom, source: str) -> str:
    return ([state for name, _, state in await room.faults() if name == source] or [""])[-1]


async def test_without_a_spool_samples_go_to_the_sink_and_that_is_told(room: HistoryRoom) -> None:
    spool, sink, start = room.folder / "spool", MemorySink(), now_ms() - 100_000
    spool.write_text("a file where the folder should be")
    station = StationHistory(PointRoom(room.link, room.plane.all_settings))

    async def is_well() -> bool:
        return (await station.look())["hissrv"].status == "ok"

    async with room.recorder(sink) as recorder:
        await room.write(start, {"1": 1})
        await until(lambda: sink.values(ONE) == [1])
        assert await last_fault(room, "history:spool") == "raise" and await is_well() is False
        await until(lambda: _has_word(room, "spool_error"))
        sink.is_away = True
        await room.write(start + 1, {"1": 2})
        await until(lambda: sink.tries > 3)
        assert recorder.figures.spooled == 0
        spool.unlink()  # somebody sees to it
        await until(lambda: recorder.figures.spooled == 1)
        sink.is_away = False
        await until(lambda: sink.values(ONE) == [1, 2])
        await until(lambda: says(room, spool_error="", sink="ok", spool_rows="0"))
        assert await last_fault(room, "history:spool") == "clear" and await is_well() is True


async def test_who_leads_and_says_nothing_does_not_record(room: HistoryRoom) -> None:
    station, sink = StationHistory(PointRoom(room.link, room.plane.all_settings)), MemorySink()
    async with room.recorder(sink):
        await room.write(now_ms(), {"1": 1})
        await until(lambda: _has_word(room, "at_ms"))
        assert (await station.look())["hissrv"].status == "ok"
    await room.plane.redis.set(room.keys.history_leader(), "somebody")
    await room.plane.redis.hset(room.keys.history_status(), "at_ms", now_ms() - SILENT_MS)
    assert (await station.look())["hissrv"].status == "down"


async def test_a_spool_that_is_removed_while_it_is_open_is_made_again(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    async with room.recorder(sink) as recorder:
        await room.write(start, {"1": 1})
        await until(lambda: sink.rows() == 1)
        sink.is_away = True
        await room.write(start + 1, {"1": 2})
        await until(lambda: recorder.figures.spooled == 1)
        shutil.rmtree(room.folder / "spool")
        await room.write(start + 2, {"1": 3})
        await until(lambda: recorder.figures.spooled == 2)
        await until(lambda: says(room, dropped_corrupt="1", spool_rows="1"))
        sink.is_away = False
        await until(lambda: sink.values(ONE) == [1, 3])


async def test_a_slow_write_is_never_taken_for_another(
    room: HistoryRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool has dropped its rows for their age meanwhile, and is empty."""
    monkeypatch.setattr(delivery, "SLOW_S", 1.0)
    brief = HistoryRoom(room.link, room.plane.all_settings.key_prefix, tmp_path, spool_max_age_s=1)
    sink, start = MemorySink(), now_ms() - 100_000
    sink.may_go.clear()
    async with brief.recorder(sink) as recorder:
        await brief.write(start, {"1": 0})
        await until(lambda: recorder.figures.spooled == 1)
        await until(lambda: recorder._spool.is_empty)
        await brief.write(start + 1, {"1": 1})
        await until(lambda: recorder._batcher.tally.samples == 2 and not recorder._batcher._batch.rows)
        await asyncio.sleep(0.1)  # it is to be stored now
        sink.may_go.set()
        await until(lambda: sink.values(ONE)[-1:] == [1])
        await brief.write(start + 2, {"1": 2})
        await until(lambda: sink.values(ONE)[-1] == 2)
    await brief.plane.close()


async def test_what_was_missed_is_shown_after_a_restart_too(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    async with room.recorder(sink):
        await room.write(start, {"1": 1})
        await until(lambda: sink.rows() == 1)
    plane = HistoryRoom(room.link, room.plane.all_settings.key_prefix, room.folder).plane
    plane.settings = plane.settings.model_copy(update={"feed_max_bytes": 2000})
    for at in range(1, 200):
        await room.write(start + at, {str(n): at for n in range(30)})
    missed = str((await trim_feed(plane)).missed["history"])
    for _ in range(2):
        async with room.recorder(sink) as recorder:
            await until(lambda recorder=recorder: says(room, missed=missed, recorder=recorder.id))  # type: ignore[misc]
    await plane.close()


async def test_entries_that_somebody_else_removed_are_counted_and_told(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    async with room.recorder(sink):
        await room.write(start, {"1": 0})
        await until(lambda: sink.rows() == 1)
    for at in range(1, 51):
        await room.write(start + at, {"1": at})
    await room.plane.redis.xtrim(room.keys.feed(), maxlen=10, approximate=False)
    async with room.recorder(sink):
        await until(lambda: sink.values(ONE)[-1] == 50)
        await until(lambda: says(room, missed="40"))
        assert await last_fault(room, "history:missed") == "raise"


async def test_what_is_no_entry_of_the_feed_is_counted(room: HistoryRoom) -> None:
    sink = MemorySink()
    async with room.recorder(sink):
        await room.plane.redis.xadd(room.keys.feed(), {"what": "is this"})
        await room.plane.redis.xadd(room.keys.feed(), {"k": "comsrv:1:m", "t": "soon", "d": "1:1"})
        await room.plane.redis.xadd(room.keys.feed(), {"k": "comsrv:1:m", "t": "1", "d": "1:one"})
        await room.write(now_ms(), {"1": 1})
        await until(lambda: says(room, unreadable="3", written="1"))


@pytest.mark.parametrize("is_sink_slow", [True, False])
async def test_rows_in_hand_outlive_a_redis_that_forgets(key_prefix: str, tmp_path: Path, is_sink_slow: bool) -> None:
    """In the queue behind a sink that is slow, or in a batch that is not due yet."""
    sink, start = MemorySink(), now_ms() - 100_000
    with servers.redis_server() as server:
        link = await open_link(RedisSettings(url=server.url))
        room = HistoryRoom(link, key_prefix, tmp_path)
        timeout_ms = 50 if is_sink_slow else 600_000
        await room.store.put_policy({"batch_config": {"size": 1000, "timeout_ms": timeout_ms}})
        async with room.recorder(sink) as recorder:
            await until(lambda: recorder.is_leading)
            if is_sink_slow:
                sink.may_go.clear()
            for at in range(20):
                await room.write(start + at, {"1": at})
            await until(lambda: recorder._batcher.tally.samples == 20)
            server.kill()
            server.start()
            await asyncio.sleep(0.5)
            sink.may_go.set()
            await until(lambda: sink.values(ONE) == list(range(20)))
            await until(lambda: _is_raised(room, "history:missed"))  # what else there was nobody knows
        await room.plane.close()
        await link.close()


async def _is_raised(room: HistoryRoom, source: str) -> bool:
    return await last_fault(room, source) == "raise"


async def _has_word(room: HistoryRoom, name: str) -> bool:
    return bool((await room.store.status()).get(name))
