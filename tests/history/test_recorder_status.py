"""What the recorder says of itself: how far it is behind, and what is wrong with the files of its sink."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.history.history_room import QUICK, HistoryRoom, until
from tests.history.memory_sink import MemorySink
from tests.history.sink_contract import DAY0, A
from tests.history.test_sqlite_faults import scribble, three_days
from tradewind.clock import now_ms
from tradewind.history import delivery
from tradewind.history.sqlite import SqliteSink
from tradewind.points.feed import FeedReader
from tradewind.points.feed_trim import trim_feed
from tradewind.redis.connection import Link


@pytest.fixture
async def room(link: Link, key_prefix: str, tmp_path: Path) -> AsyncIterator[HistoryRoom]:
    room = HistoryRoom(link, key_prefix, tmp_path)
    await room.store.put_policy(QUICK)
    yield room
    await room.plane.close()


async def write(room: HistoryRoom, first: int, count: int, start: int) -> None:
    """Two channels, so that a cluster has two feeds."""
    for at in range(first, first + count):
        await room.write(start + at, {"1": at})
        await room.write(start + at, {"1": at}, "comsrv:2002:m")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SLOW_S", 60.0)  # or what a sink holds up would go to the disk


async def test_behind_counts_what_is_not_stored_and_not_what_others_still_need(room: HistoryRoom) -> None:
    slow = FeedReader(room.plane, "models", start="oldest")
    await slow.open()
    sink, start = MemorySink(), now_ms() - 100_000
    async with room.recorder(sink):
        await write(room, 0, 25, start)
        await until(lambda: sink.rows() == 50)
        await until(lambda: says(room, behind="0", lag_ms="0"))
        sink.may_go.clear()
        await write(room, 25, 3, start)
        await until(lambda: says(room, behind="6"))
        assert await room.status("lag_ms") > 0
        await write(room, 28, 1, start)
        await trim_feed(room.plane)
        await until(lambda: says(room, behind="8"))
        sink.may_go.set()
        await until(lambda: says(room, behind="0", lag_ms="0"))
    # A new one begins in the middle; what it cannot know at once it knows when it was at the end.
    sink.may_go.clear()
    await write(room, 29, 2, start)
    async with room.recorder(sink):
        await until(lambda: says(room, sink="ok", spool_rows="0"))
        sink.may_go.set()
        await until(lambda: sink.rows() == 62)
        for _ in range(2):  # what it said before it was at the end does not count
            said = await room.status("at_ms")
            await until(lambda said=said: _has_said(room, said))  # type: ignore[misc]
        assert await says(room, behind="0")
        sink.may_go.clear()
        await write(room, 31, 2, start)
        await until(lambda: says(room, behind="4"))
        sink.may_go.set()


async def test_a_feed_that_is_trimmed_to_the_recorder_tells_exactly_from_the_start(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    async with room.recorder(sink):
        await write(room, 0, 5, start)
        await until(lambda: sink.rows() == 10)
        await until(lambda: says(room, behind="0"))
    await trim_feed(room.plane)
    await write(room, 5, 4, start)
    sink.may_go.clear()
    async with room.recorder(sink) as recorder:
        await until(lambda: recorder.figures.behind == 8)
        await room.plane.redis.delete(room.keys.feed())
        await room.plane.at("1001").redis.delete(room.keys.feed("1001"))
        await room.plane.at("2002").redis.delete(room.keys.feed("2002"))
        await until(lambda: says(room, behind="0"))
        sink.may_go.set()


async def test_a_damaged_day_raises_an_alarm_until_somebody_has_seen_to_it(room: HistoryRoom, tmp_path: Path) -> None:
    if room.link.cluster:
        pytest.skip("the same in a cluster")
    folder = tmp_path / "history"
    await three_days(folder)
    first, second, _ = sorted(folder.glob("raw-*.db"))
    scribble(first, 0, 20_000)
    code = "history_files_damaged"
    async with room.recorder(SqliteSink(folder, now=lambda: 2 * DAY0)):
        async with SqliteSink(folder) as other:  # of the process that answers questions
            await other.read([A], 0, 2 * DAY0, 9)
        await until(lambda: last_fault(room, code, "raise", first.name))
        scribble(second, 0, 20_000)
        async with SqliteSink(folder) as other:
            await other.read([A], 0, 2 * DAY0, 9)
        await until(lambda: last_fault(room, code, "raise", second.name))  # told again: it is another file
        for path in folder.glob(f"{first.name}.damaged-*"):
            path.unlink()
        for path in folder.glob(f"{second.name}.damaged-*"):
            path.rename(tmp_path / path.name)
        await until(lambda: last_fault(room, code, "clear", "no file"))
    count = len(await room.faults())
    async with room.recorder(SqliteSink(folder)) as recorder:
        await until(lambda: recorder.is_leading)
        await until(lambda: says(room, recorder=recorder.id))
    assert all(state == "clear" for _, _, state in (await room.faults())[count:])


async def says(room: HistoryRoom, **expected: str) -> bool:
    status = await room.store.status()
    return all(status.get(name) == text for name, text in expected.items())


async def _has_said(room: HistoryRoom, before_ms: int) -> bool:
    return await room.status("at_ms") > before_ms


async def last_fault(room: HistoryRoom, code: str, state: str, word: str) -> bool:
    found = await room.plane.redis.xrevrange(room.keys.faults())
    for _, fault in found:
        if fault[b"source"] == b"history:files":
            return (fault[b"code"].decode(), fault[b"state"].decode()) == (code, state) and word in fault[
                b"message"
            ].decode()
    return False
