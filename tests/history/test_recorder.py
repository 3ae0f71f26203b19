"""The recorder on a real Redis with a sink in memory: order, outages, full disks, bad data, policies, takeover."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.history.history_room import QUICK, HistoryRoom, until
from tests.history.memory_sink import MemorySink
from tests.history.test_spool import segments, small_disk, spoil
from tradewind.clock import now_ms
from tradewind.history import delivery
from tradewind.history.sample import SUBSTITUTED, Row
from tradewind.history.store import CONSUMER
from tradewind.points.channel_store import ChannelStore
from tradewind.points.feed import FeedReader
from tradewind.points.feed_trim import trim_feed
from tradewind.points.spec import ChannelSpec, Kind, PointSpec
from tradewind.points.substitutions import SubstituteRequest, Substitutions
from tradewind.redis.connection import Link

ONE = "comsrv:1001:m:1"


@pytest.fixture
async def room(
    link: Link, key_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HistoryRoom]:
    """Its recorders look at the policy, their figures and their stop five times a second instead of once."""
    monkeypatch.setattr("tradewind.history.recorder.TICK_S", 0.2)
    room = HistoryRoom(link, key_prefix, tmp_path)
    await room.store.put_policy(QUICK)
    yield room
    await room.plane.close()


@pytest.fixture
def home(room: HistoryRoom) -> HistoryRoom:
    if room.link.cluster:
        pytest.skip("the same in a cluster")
    return room


async def test_every_change_reaches_the_sink_also_those_before_the_recorder_started(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    for at in range(5):
        await room.write(start + at, {"1": at, "2": -at})
    async with room.recorder(sink):
        await until(lambda: sink.rows() == 10)
        await room.write(start + 5, {"1": 5}, _1="uncertain")
        await room.write(start + 5, {"total": 7}, "modsrv:power:measurement")
        await room.write(start + 5, {"4": 1}, "comsrv:1001:s")
        await room.write(start + 5, {"5": 1}, "comsrv:1001:c")
        await room.write(start + 2, {"1": 20, "3": 3})  # late for the first point
        await until(lambda: sink.rows() == 14)
        channels = ChannelStore(room.link, room.keys)
        await channels.put([ChannelSpec("1001", points=(PointSpec(Kind.MEASUREMENT, "1"),))])
        people = Substitutions(room.board, channels)
        made = await people.substitute(SubstituteRequest(ONE, -1, "sensor is broken"))
        await room.write(made.since_ms + 1, {"1": 6})  # what the device says is not what is shown
        await until(lambda: sink.rows() == 15)
        await people.release(ONE)
        await until(lambda: sink.rows() == 16)
    assert sink.values(ONE) == [0, 1, 20, 3, 4, 5, -1, 6]
    assert sink.found[ONE][made.since_ms] == (-1, SUBSTITUTED)
    assert sink.found[ONE][start + 5] == (5, 1)
    assert set(sink.found) == {
        ONE,
        "comsrv:1001:m:2",
        "comsrv:1001:m:3",
        "comsrv:1001:s:4",
        "modsrv:power:measurement:total",
    }


async def test_a_recorder_that_leads_again_knows_what_another_one_recorded_meanwhile(home: HistoryRoom) -> None:
    sink, start, client = MemorySink(), now_ms() - 100_000, home.plane.redis
    await home.store.put_policy({**QUICK, "policies": [{"match": "*", "deadband": 1}]})
    async with home.recorder(sink) as recorder:
        await home.write(start, {"1": 10})
        await until(lambda: sink.rows() == 1)
        await client.set(home.keys.history_leader(), "another", px=60_000)
        await client.incr(home.keys.history_epoch())
        await until(lambda: not recorder.is_leading)
        await home.write(start + 1, {"1": 20})
        reader = FeedReader(home.plane, CONSUMER)
        batch = await reader.read(1000)
        assert batch is not None
        await sink.write([Row(ONE, start + 1, 20.0)])
        await reader.commit(batch)
        await reader.close()
        await client.delete(home.keys.history_leader())
        await until(lambda: recorder.is_leading)
        await home.write(start + 2, {"1": 10.5})  # far from the 20, near the 10 that it recorded itself
        await until(lambda: sink.rows() == 3)
    assert sink.values(ONE) == [10, 20, 10.5]


async def test_the_next_recorder_goes_on_where_the_last_one_stopped(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    async with room.recorder(sink):
        await room.write(start, {"1": 1})
        await until(lambda: sink.rows() == 1)
    await room.write(start + 1, {"1": 2})
    second = MemorySink()
    async with room.recorder(second):
        await until(lambda: second.rows() == 1)
        await until(lambda: second.retained > 0)
    assert second.values(ONE) == [2]
    assert await room.status("written") == 2


async def test_a_stop_stores_what_was_read(home: HistoryRoom) -> None:
    await home.store.put_policy({"batch_config": {"size": 1000, "timeout_ms": 600_000}})
    sink, start = MemorySink(), now_ms() - 100_000
    async with home.recorder(sink) as recorder:
        await until(lambda: recorder.is_leading)
        await home.write(start, {"1": 1})
        await until(lambda: recorder._batcher.tally.samples == 1)
        assert sink.rows() == 0
    assert sink.values(ONE) == [1]


async def test_while_the_sink_is_away_samples_wait_on_disk_and_go_in_order(
    room: HistoryRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "AWAY_S", 0.1)
    sink, start = MemorySink(), now_ms() - 100_000
    async with room.recorder(sink) as recorder:
        await room.write(start, {"1": 0})
        await until(lambda: sink.rows() == 1)
        sink.is_away = True
        for at in range(1, 200):
            await room.write(start + at, {"1": at})
        await until(lambda: recorder.figures.spooled == 199)
        fault = ("history:sink", "history_sink_away", "raise")
        await until(lambda: _has(room, fault))
        await until(lambda: _status_is(room, sink="away", spool_rows="199"))
        assert segments(room.folder / "spool") != []
        sink.is_away = False
        await until(lambda: sink.rows() == 200)
        await until(lambda: _has(room, ("history:sink", "history_sink_away", "clear"), last=True))
        await until(lambda: _status_is(room, sink="ok", spool_rows="0", spool_bytes="0"))
    times = [row.ts_ms for rows in sink.writes for row in rows]
    assert times == sorted(times)  # in order
    assert sink.values(ONE) == list(range(200))
    assert segments(room.folder / "spool") == []


async def test_what_waits_on_disk_goes_before_what_comes_new(home: HistoryRoom) -> None:
    """The same point twice at one time: the newer value must win, though it could have gone straight."""
    sink, start = MemorySink(), now_ms() - 100_000
    sink.is_away = True
    async with home.recorder(sink) as recorder:
        await home.write(start, {"1": 1})
        await until(lambda: sink.tries == 6)  # the next try is more than a second off
        sink.is_away = False
        await home.write(start, {"1": 2})
        await until(lambda: _is_caught_up(home))
        await until(lambda: recorder._spool.is_empty)
    assert sink.values(ONE) == [2]
    assert [row.value for rows in sink.writes for row in rows] == [1, 2]


async def test_a_slow_sink_does_not_stop_the_reading(home: HistoryRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SLOW_S", 0.1)
    sink, start = MemorySink(), now_ms() - 100_000
    sink.may_go.clear()
    async with home.recorder(sink) as recorder:
        for at in range(5):
            await home.write(start + at, {"1": at})
            await until(lambda at=at: recorder.figures.spooled == at + 1)  # type: ignore[misc]
        await until(lambda: _is_caught_up(home))
        assert recorder.figures.sink == "slow"
        sink.may_go.set()
        await until(lambda: sink.rows() == 5)
        await until(lambda: recorder._spool.is_empty)
    assert sink.values(ONE) == [0, 1, 2, 3, 4]


async def test_what_gathers_while_the_sink_is_busy_goes_in_one_write(home: HistoryRoom) -> None:
    await home.store.put_policy({"batch_config": {"size": 1, "timeout_ms": 50}})
    sink, start = MemorySink(), now_ms() - 100_000
    sink.may_go.clear()
    async with home.recorder(sink) as recorder:
        await until(lambda: recorder.is_leading)
        for at in range(7):
            await home.write(start + at // 2, {"1": at})
            await until(lambda at=at: recorder._batcher.tally.samples == at + 1)  # type: ignore[misc]
            await until(lambda: sink.tries == 1)
        sink.may_go.set()
        await until(lambda: _is_caught_up(home))
    assert [[row.value for row in rows] for rows in sink.writes] == [[0], [1, 2, 3, 4, 5, 6]]
    assert sink.values(ONE) == [1, 3, 5, 6]  # of two at one time the later one


async def test_refused_rows_are_put_aside_and_cost_no_neighbour(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    sink.refuses = lambda row: row.value == 13
    async with room.recorder(sink):
        await room.write(start, {str(n): n for n in range(1, 101)})
        await until(lambda: _status_is(room, refused="1", written="99"))
    aside = await room.store.refused()
    assert [(item.series, item.ts_ms, item.value, item.reason) for item in aside] == [
        ("comsrv:1001:m:13", start, "13.0", "picky")
    ]
    assert ("history:refused", "history_refused", "raise") in await room.faults()


async def test_nan_never_reaches_the_sink(home: HistoryRoom) -> None:
    """Our board refuses it; somebody else may still write it, or anything, to the feed."""
    sink, start = MemorySink(), now_ms() - 100_000
    feed = home.keys.feed()
    async with home.recorder(sink):
        for data in (b"1:nan,2:2", b"1:inf,2:3", b"1:1e999", b"1:x"):
            await home.plane.redis.xadd(feed, {"k": "comsrv:1001:m", "t": start, "d": data})
            start += 1
        await home.plane.redis.xadd(feed, {"what": "is this"})
        await home.write(start, {"1": 7})
        await until(lambda: sink.values(ONE) == [7])
        await until(lambda: _status_is(home, not_finite="3", unreadable="2"))
    assert sink.values("comsrv:1001:m:2") == [2, 3]


async def test_drops_at_the_bound_are_counted_told_and_shown(link: Link, key_prefix: str, tmp_path: Path) -> None:
    room = HistoryRoom(link, key_prefix, tmp_path, spool_max_bytes=3000)
    await room.store.put_policy({"batch_config": {"size": 10, "timeout_ms": 20}})
    sink, start = MemorySink(), now_ms() - 100_000
    sink.is_away = True
    points = {str(n): n / 3 for n in range(10)}
    async with room.recorder(sink) as recorder:
        for at in range(60):
            await room.write(start + at, {point: value + at for point, value in points.items()})
            await until(lambda at=at: recorder.figures.spooled == (at + 1) * 10)  # type: ignore[misc]  # not in one write
        await until(lambda: _has(room, ("history:dropped", "history_dropped", "raise")))
        sink.is_away = False
        await until(lambda: recorder._spool.is_empty)
        dropped = recorder._spool.dropped.bytes
        assert 0 < dropped < 600
        await until(lambda: _status_is(room, dropped=str(dropped), dropped_bytes=str(dropped)))
    assert sink.rows() == 600 - dropped
    newest = sink.values("comsrv:1001:m:0")
    assert newest == [float(at) for at in range(60 - len(newest), 60)]  # the oldest went
    await room.plane.close()


async def test_a_broken_record_on_disk_is_left_out_told_and_shown(home: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    sink.is_away = True
    async with home.recorder(sink) as recorder:
        for at in range(3):
            await home.write(start + at, {"1": at})
            await until(lambda at=at: recorder.figures.spooled == at + 1)  # type: ignore[misc]
    spoil(segments(home.folder / "spool")[0], 50)
    sink.is_away = False
    async with home.recorder(sink):
        await until(lambda: _status_is(home, dropped_corrupt="1", spool_rows="0"))
        await until(lambda: _has(home, ("history:dropped", "history_dropped", "raise")))
    assert sink.values(ONE) == [1, 2]


async def test_a_torn_end_on_disk_is_cut_off_and_shown(home: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    sink.is_away = True
    async with home.recorder(sink) as recorder:
        await home.write(start, {"1": 1})
        await until(lambda: recorder.figures.spooled == 1)
    with segments(home.folder / "spool")[-1].open("ab") as file:
        file.write(b"half a record")
    sink.is_away = False
    async with home.recorder(sink):
        await until(lambda: _status_is(home, torn_bytes="13", spool_rows="0", dropped="0"))
    assert sink.values(ONE) == [1]


async def test_a_full_disk_stops_the_cursor_and_loses_nothing(link: Link, key_prefix: str, tmp_path: Path) -> None:
    if link.cluster:
        pytest.skip("the same in a cluster")
    with small_disk(tmp_path / "disk", "128k") as disk:
        room = HistoryRoom(link, key_prefix, disk)
        await room.store.put_policy(QUICK)
        sink, start, sent = MemorySink(), now_ms() - 100_000, 0
        sink.is_away = True
        async with room.recorder(sink) as recorder:
            await until(lambda: recorder.is_leading)
            (disk / "ballast").write_bytes(bytes(80_000))
            fault = ("history:spool", "history_disk_full", "raise")
            while fault not in await room.faults():
                await room.write(start + sent, {str(n): n * 1.37 + sent for n in range(500)})
                sent += 1
            stuck = await room.cursor()
            for _ in range(5):
                await room.write(start + sent, {str(n): n * 1.37 + sent for n in range(500)})
                sent += 1
            assert await room.cursor() == stuck  # the feed holds what the disk cannot
            await until(lambda: _status_is(room, sink="away"))
            (disk / "ballast").unlink()  # space again, the sink still away
            await until(lambda: _is_caught_up(room))
            assert (await room.faults())[-1][0::2] in {("history:spool", "clear"), ("history:sink", "raise")}
            sink.is_away = False
            await until(lambda: sink.rows() == sent * 500)
            assert recorder.figures.dropped == 0
        assert sink.values("comsrv:1001:m:3") == [pytest.approx(3 * 1.37 + at, abs=1e-6) for at in range(sent)]


async def test_the_sink_frees_a_full_disk(link: Link, key_prefix: str, tmp_path: Path) -> None:
    if link.cluster:
        pytest.skip("the same in a cluster")
    with small_disk(tmp_path / "disk", "64k") as disk:
        room = HistoryRoom(link, key_prefix, disk)
        await room.store.put_policy(QUICK)
        sink, start, sent = MemorySink(), now_ms() - 100_000, 0
        sink.is_away = True
        async with room.recorder(sink):
            while ("history:spool", "history_disk_full", "raise") not in await room.faults():
                await room.write(start + sent, {str(n): n * 1.37 + sent for n in range(500)})
                sent += 1
            sink.is_away = False
            await until(lambda: sink.rows() == sent * 500)
            await until(lambda: _is_caught_up(room))
            await until(lambda: _has(room, ("history:spool", "history_disk_full", "clear"), last=True))


async def test_a_new_policy_counts_without_a_restart_and_a_bad_one_changes_nothing(room: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    async with room.recorder(sink) as recorder:
        await room.write(start, {"1": 1, "2": 1})
        await until(lambda: sink.rows() == 2)
        await room.store.put_policy({**QUICK, "policies": [{"match": "*:1", "record": False}]})
        await until(lambda: len(recorder._batcher.policy.policies) == 1)
        await room.write(start + 1, {"1": 2, "2": 2})
        await until(lambda: sink.rows() == 3)
        await room.plane.redis.set(room.keys.history_policy(), b'{"polices": []}')
        await until(lambda: _has(room, ("history:policy", "history_policy", "raise")))
        await until(lambda: _policy_error_says(room, "polices"))
        await room.write(start + 2, {"1": 3, "2": 3})
        await until(lambda: sink.rows() == 4)
        await room.store.put_policy(QUICK)
        await until(lambda: _has(room, ("history:policy", "history_policy", "clear"), last=True))
    assert sink.values(ONE) == [1] and sink.values("comsrv:1001:m:2") == [1, 2, 3]


async def test_what_the_feed_does_not_tell_is_taken_from_the_board_at_the_first_start(
    room: HistoryRoom,
) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    await room.write(start, {"1": 1, "2": 2}, _2="bad")
    await room.write(start, {"9": 1}, "comsrv:1001:c")
    await room.plane.redis.delete(room.keys.feed())
    await room.plane.at("1001").redis.delete(room.keys.feed("1001"))
    await room.write(start + 5, {"2": 3})
    async with room.recorder(sink):
        await until(lambda: sink.rows() == 2)
        await until(lambda: _is_caught_up(room))
    assert sink.found[ONE] == {start: (1, 0)} and sink.found["comsrv:1001:m:2"] == {start + 5: (3, 0)}
    assert len(sink.found) == 2 and await room.status("written") == 2


async def test_what_a_minimum_interval_holds_back_outlives_a_kill(room: HistoryRoom) -> None:
    """A recorder that is dropped without an end stands for one that is killed: its cursor has passed the value."""
    await room.store.put_policy({**QUICK, "policies": [{"match": "*:1", "min_interval_ms": 2500}]})
    sink, start = MemorySink(), now_ms() - 10_000
    async with room.recorder(sink) as recorder:
        await room.write(start, {"1": 1, "2": 1})
        await room.write(start + 10, {"1": 2, "2": 2})
        await until(lambda: _is_caught_up(room) if sink.rows() == 3 else False)
        recorder._batcher.thinner.forget()
    assert sink.values(ONE) == [1]
    async with room.recorder(sink):
        await until(lambda: sink.values(ONE) == [1, 2])
    assert sink.values("comsrv:1001:m:2") == [1, 2] and await room.status("written") == 4


async def test_thinning_goes_on_after_a_restart_from_what_the_sink_has(home: HistoryRoom) -> None:
    await home.store.put_policy({**QUICK, "policies": [{"match": "*", "deadband": 1}]})
    sink, start = MemorySink(), now_ms() - 100_000
    async with home.recorder(sink):
        await home.write(start, {"1": 10})
        await until(lambda: sink.rows() == 1)
    async with home.recorder(sink):
        await home.write(start + 1, {"1": 10.5, "2": 1})
        await until(lambda: sink.rows() == 2)
        await home.write(start + 2, {"1": 11.2})
        await until(lambda: sink.rows() == 3)
        await until(lambda: _status_is(home, thinned="1"))
    assert sink.values(ONE) == [10, 11.2]


async def test_entries_trimmed_unread_are_counted_and_told(home: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    async with home.recorder(sink):
        await home.write(start, {"1": 1})
        await until(lambda: sink.rows() == 1)
    plane = HistoryRoom(home.link, home.plane.all_settings.key_prefix, home.folder).plane
    plane.settings = plane.settings.model_copy(update={"feed_max_bytes": 2000})
    for at in range(1, 200):
        await home.write(start + at, {str(n): at for n in range(30)})
    missed = (await trim_feed(plane)).missed[CONSUMER]
    async with home.recorder(sink):
        await until(lambda: _status_is(home, missed=str(missed)))
        assert ("history:missed", "history_missed", "raise") in await home.faults()
        await home.write(start + 200, {"1": 200})
        await until(lambda: sink.values(ONE)[-1] == 200)


async def test_one_records_and_another_takes_over(home: HistoryRoom) -> None:
    sink, start = MemorySink(), now_ms() - 100_000
    async with home.recorder(sink, "b", "b") as second:
        await until(lambda: second.is_leading)
        async with home.recorder(sink, "a", "a") as first:
            await home.write(start, {"1": 0})
            await until(lambda: sink.rows() == 1)
            assert second.is_leading and not first.is_leading
    async with home.recorder(sink, "a", "a") as first:
        await until(lambda: first.is_leading)
        await home.write(start + 1, {"1": 1})
        await until(lambda: sink.rows() == 2)


async def test_who_stands_by_still_delivers_what_it_has_on_disk(home: HistoryRoom) -> None:
    away, start = MemorySink(), now_ms() - 100_000
    away.is_away = True
    async with home.recorder(away, "a") as first:
        await home.write(start, {"1": 1})
        await until(lambda: first.figures.spooled == 1)
    sink = MemorySink()
    async with home.recorder(sink, "b") as leader:
        await until(lambda: leader.is_leading)
        away.is_away = False
        async with home.recorder(away, "a") as first:
            await until(lambda: away.values(ONE) == [1])
            assert leader.is_leading and not first.is_leading
    assert sink.rows() == 0 and segments(home.folder / "a") == []


async def _has(room: HistoryRoom, fault: tuple[str, str, str], *, last: bool = False) -> bool:
    of_source = [found for found in await room.faults() if found[0] == fault[0]]
    return of_source[-1:] == [fault] if last else fault in of_source


async def _policy_error_says(room: HistoryRoom, word: str) -> bool:
    return word in (await room.store.status())["policy_error"]


async def _status_is(room: HistoryRoom, **expected: str) -> bool:
    status = await room.store.status()
    return all(status.get(name) == text for name, text in expected.items())


async def _is_caught_up(room: HistoryRoom) -> bool:
    last = await room.plane.redis.xrevrange(room.keys.feed(), count=1)
    return not last or await room.cursor() == last[0][0]


async def test_what_the_board_had_before_the_first_start_is_recorded_also_when_the_feed_is_held(
    home: HistoryRoom,
) -> None:
    """The leader holds the feed for a recorder that has not run yet: that is no former run."""
    sink, start = MemorySink(), now_ms() - 100_000
    await home.write(start, {"1": 1})
    await home.link.client.delete(home.plane.keys.feed("1001"))
    await trim_feed(home.plane, [CONSUMER])
    await home.write(start + 1, {"2": 2})
    await trim_feed(home.plane, [CONSUMER])
    async with home.recorder(sink):
        await until(lambda: sink.rows() == 2)
    assert sink.values(ONE) == [1]
