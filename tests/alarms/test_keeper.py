"""Raises from several processes, keepers that take over, faults of the station, indexes that were harmed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.alarms.alarm_room import AlarmRoom, hot
from tradewind.alarms.faults import READER
from tradewind.alarms.journal import AlarmJournal
from tradewind.alarms.journal_entry import READERS, SQL_CURSOR, JournalEntry, read_leaving
from tradewind.alarms.keeper import TICK_S, AlarmKeeper
from tradewind.alarms.listing import AlarmQuery
from tradewind.alarms.losses import JournalLosses
from tradewind.alarms.record import AlarmNotFound
from tradewind.alarms.recorder import AlarmRecorder
from tradewind.alarms.sweep import AlarmSweep
from tradewind.clock import Clock
from tradewind.errors import Unavailable
from tradewind.history.status import Faults
from tradewind.redis.connection import Link, open_link
from tradewind.redis.faults import report
from tradewind.settings import RedisSettings
from tradewind.sql import Sql, open_sql


@pytest.fixture
async def sql(tmp_path: Path) -> AsyncIterator[Sql]:
    sql = await open_sql("", tmp_path)
    yield sql
    await sql.close()


async def until(condition: Callable[[], Awaitable[Any]], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 - the change happens in a server
            await asyncio.sleep(0.02)


@asynccontextmanager
async def kept(room: AlarmRoom, sql: Sql) -> AsyncIterator[AlarmKeeper]:
    keeper, stop = AlarmKeeper(room.plane, sql), asyncio.Event()
    task = asyncio.create_task(keeper.run(stop), name="keeper")
    try:
        yield keeper
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)


async def test_four_hundred_raises_at_once_are_one_alarm_with_count_400(
    any_redis: servers.Server | servers.Cluster, link: Link, key_prefix: str
) -> None:
    room = AlarmRoom(link, key_prefix, Clock())
    argv = [sys.executable, "-m", "tests.alarms.raise_process", any_redis.url, key_prefix, "100"]
    processes = [subprocess.Popen(argv, preexec_fn=servers.die_with_parent) for _ in range(3)]
    mine = await asyncio.gather(*(room.store.raise_(hot()) for _ in range(100)))
    for process in processes:
        assert await asyncio.to_thread(process.wait, 60) == 0
    records = await room.audit()
    assert [(h["id"], h["count"]) for h in records.values()] == [(mine[0].id, "400")]
    assert len(await room.outbox()) == 1


@pytest.mark.parametrize("any_redis", ["redis_7", "cluster3"], indirect=True)
async def test_a_running_keeper_does_everything(link: Link, key_prefix: str, sql: Sql) -> None:
    room = AlarmRoom(link, key_prefix, Clock(), sql)
    async with kept(room, sql) as keeper:
        raised = await room.store.raise_(hot(escalate_ms=300))
        shelved = await room.store.raise_(hot("a:2"))
        await room.store.shelve(shelved.id, "li", duration_s=0.3)
        await report(link, room.keys, "channel_offline", "comsrv:7", "channel 7 is offline: no answer")
        await until(lambda: room.store.open_id("station", "comsrv:7"))
        await until(lambda: has_status(room, raised.id, "Escalated"))
        await until(lambda: has_status(room, shelved.id, "New"))
        await report(link, room.keys, "channel_offline", "comsrv:7", "", state="clear")

        async def is_clear() -> bool:
            return not await room.store.open_id("station", "comsrv:7")

        await until(is_clear)

        async def is_recorded() -> bool:
            return int(await room.redis.xlen(room.keys.alarm_journal())) == 0

        await until(is_recorded)
        assert keeper.is_leading and keeper.stats.faults == 2
    assert not keeper.is_leading
    assert await room.events(raised.id) == ["raised", "escalated"]
    assert await room.events(shelved.id) == ["raised", "shelved", "unshelved"]
    await room.audit()


async def has_status(room: AlarmRoom, alarm_id: str, status: str) -> bool:
    return await room.status(alarm_id) == status


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_a_job_that_fails_ends_the_role(
    link: Link, key_prefix: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs it tells it and starts it again; without one of its jobs it would look well."""
    keeper = AlarmKeeper(AlarmRoom(link, key_prefix, Clock(), sql).plane, sql)

    async def fails(*_: object) -> int:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(keeper._faults, "step", fails)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(keeper.run(asyncio.Event()), 10)
    assert not keeper.is_leading


async def test_a_look_at_the_timers_says_when_the_next_one_is(room: AlarmRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.alarms.keeper.TIMERS", 2)
    watch = room.keeper
    assert await watch.tick() == TICK_S
    raised = [await room.store.raise_(hot(f"a:{n}", escalate_ms=400)) for n in range(3)]
    assert await watch.tick() == 0.4
    room.advance(0.4)
    assert await watch.tick() == 0, "more may be due than one look takes: the next follows at once"
    assert await watch.tick() > 0 and watch.stats.timers == 3
    assert [await room.status(alarm.id) for alarm in raised] == ["Escalated"] * 3


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_another_keeper_takes_over(link: Link, key_prefix: str, sql: Sql) -> None:
    room = AlarmRoom(link, key_prefix, Clock(), sql)
    async with kept(room, sql) as first:
        await until(lambda: is_leading(first))
        async with kept(room, sql) as second:
            await room.redis.set(room.keys.alarms_leader(), "somebody", px=300)
            await until(lambda: is_leading(second, first))
            raised = await room.store.raise_(hot(escalate_ms=1))
            await until(lambda: has_status(room, raised.id, "Escalated"))
    assert await room.events(raised.id) == ["raised", "escalated"]


async def is_leading(*keepers: AlarmKeeper) -> bool:
    return any(keeper.is_leading for keeper in keepers)


async def test_a_fault_becomes_an_alarm_of_the_station(room: AlarmRoom, link: Link) -> None:
    await report(link, room.keys, "feed_missed", "points:feed:modsrv", "modsrv has missed 3 entries", level="Warning")
    await report(link, room.keys, "feed_missed", "points:feed:modsrv", "modsrv has missed 5 entries", level="Warning")
    await report(link, room.keys, "x", "bad source", "left out")
    await report(link, room.keys, "x", "never:raised", "", state="clear")
    assert await room.faults.step() == 4
    assert await room.faults.step() == 0
    (record,) = (await room.audit()).values()
    wanted = {"rule_id": "station", "category": "station", "source_point": "points:feed:modsrv", "level": "Low"}
    wanted |= {"title": "modsrv has missed 3 entries", "count": "2", "status": "New"}
    assert {name: record[name] for name in wanted} == wanted


async def test_reports_that_went_unread_are_a_fault_themselves(room: AlarmRoom, link: Link) -> None:
    await report(link, room.keys, "x", "comsrv:1", "offline")
    assert await room.faults.step() == 1
    for number in range(2, 6):
        await report(link, room.keys, "x", f"comsrv:{number}", "offline")
    await room.redis.xtrim(room.keys.faults(), maxlen=2, approximate=False)
    while await room.faults.step():
        pass
    sources = {record["source_point"] for record in (await room.audit()).values()}
    assert sources == {"comsrv:1", "comsrv:4", "comsrv:5", "station:faults"}
    await report(link, room.keys, "x", "comsrv:6", "offline")
    assert await room.faults.step() == 1
    found = [record for record in (await room.audit()).values() if record["source_point"] == "station:faults"]
    assert [record["count"] for record in found] == ["1"], "told once"


async def test_a_fault_of_a_time_without_alarmsrv_and_over_a_restart_of_redis_is_raised_and_cleared(
    key_prefix: str,
) -> None:
    """A role tells while Redis is away, and goes on telling until it is heard; nobody reads meanwhile."""
    with servers.redis_server(appendonly=True, extra=("--appendfsync", "always")) as server:
        link = await open_link(RedisSettings(url=server.url, dial_timeout_s=1))
        room = AlarmRoom(link, key_prefix)
        faults = Faults(room.plane)
        server.kill()
        await faults.set("history:sink", True, "history_sink_away", "the sink is away")
        await faults.tell("history:dropped", "history_dropped", "7 samples were dropped")
        server.start()
        async with asyncio.timeout(20):
            while await room.redis.xlen(room.keys.faults()) < 2:
                await faults.set("history:sink", True, "history_sink_away", "the sink is away")  # as each second
                await faults.flush()
                await asyncio.sleep(0.05)
        server.kill()
        server.start()
        await until(lambda: has_stepped(room))
        statuses = {record["source_point"]: record["status"] for record in (await room.audit()).values()}
        assert statuses == {"history:sink": "New", "history:dropped": "New"}
        await faults.set("history:sink", False, "history_sink_away", "the sink takes samples")
        assert await room.faults.step() == 1
        statuses = {record["source_point"]: record["status"] for record in (await room.audit()).values()}
        assert statuses == {"history:sink": "Resolved", "history:dropped": "New"}
        assert {record["count"] for record in (await room.audit()).values()} == {"1"}
        await link.close()


async def has_stepped(room: AlarmRoom) -> bool:
    try:
        return bool(await room.faults.step())
    except Unavailable:
        return False


async def test_two_readers_of_faults_raise_each_once(room: AlarmRoom, link: Link, key_prefix: str) -> None:
    other = AlarmRoom(link, key_prefix)
    for _ in range(50):
        await report(link, room.keys, "x", "comsrv:7", "offline")
    while await room.redis.hget(room.keys.cursors(), "station:faults@alarmsrv") is None:
        await asyncio.gather(room.faults.step(), other.faults.step())
    (record,) = (await room.audit()).values()
    assert record["count"] == "50"


async def test_harmed_indexes_are_repaired_and_sound_ones_left_alone(room: AlarmRoom) -> None:
    raised = await room.store.raise_many([hot(f"a:{n}", escalate_ms=9000) for n in range(30)])
    await room.store.resolve(raised[0].id, "li")
    await room.store.acknowledge(raised[0].id, "li")
    await room.store.shelve(raised[1].id, "li", duration_s=60)
    sweep = AlarmSweep(room.plane)
    assert await sweep.run() == []
    before, keys, redis = await room.picture(), room.keys, room.redis
    await redis.delete(keys.alarm_realtime(), keys.alarm_open(), keys.alarm_order("open"), keys.alarm_status("New"))
    await redis.delete(keys.alarm_timers(), keys.alarm_level("High"))
    await redis.sadd(keys.alarm_status("Closed"), raised[5].id, "alarm_gone")
    await redis.zadd(keys.alarm_order("open:Low"), {raised[5].id: 1, "alarm_gone": 2})
    await redis.hset(keys.alarm_bucket("2020010100"), "alarm_gone", "{}")
    await redis.hset(keys.alarm_open(), "x|y", "alarm_gone")
    await redis.zadd(keys.alarm_timers(), {"escalate:alarm_gone": 1})
    assert await sweep.run()
    assert await room.picture() == before
    await redis.delete(keys.alarm(raised[7].id))  # the record itself
    await sweep.run()
    assert raised[7].id not in await room.audit()
    assert (await room.store.raise_(hot("a:7"))).is_new
    assert await sweep.run() == []


async def test_a_slot_that_was_given_anew_since_the_look_is_left_alone(room: AlarmRoom) -> None:
    """The look and the repair are two steps; between them an alarm ends and the next one begins."""
    sweep = AlarmSweep(room.plane)
    old = await room.store.raise_(hot("a:1"))
    family = next(each for each in sweep.families if each.pattern.fullmatch("alarm:open"))
    seen = [entry async for entry in sweep._entries("alarm:open", family)]
    assert len(seen) == 2  # the key itself, too
    await room.store.resolve(old.id, "li")
    new = await room.store.raise_(hot("a:1"))
    assert await sweep.decide("sweep", seen, []) == []
    assert await room.store.open_id("rule_1", "a:1") == new.id
    await room.audit()


async def test_of_two_that_are_open_for_the_same_the_one_without_a_slot_is_resolved(room: AlarmRoom) -> None:
    first = await room.store.raise_(hot("a:1"))
    await room.redis.delete(room.keys.alarm_open())
    second = await room.store.raise_(hot("a:1"))
    assert await AlarmSweep(room.plane).run()
    assert [(await room.store.get(each.id)).status for each in (first, second)] == ["Resolved", "New"]
    assert await room.store.open_id("rule_1", "a:1") == second.id
    await room.audit()
    assert await AlarmSweep(room.plane).run() == []


@pytest.mark.parametrize("field", ["first_seen", "version", "category", "data", "level", "escalate_ms", "ended_ms"])
async def test_a_record_that_a_hand_has_spoilt_stops_neither_timers_nor_sweeper_nor_operators(
    room: AlarmRoom, field: str
) -> None:
    spoilt, whole = await room.store.raise_many([hot("a:1", escalate_ms=5000), hot("a:2", escalate_ms=5000)])
    if field == "ended_ms":
        await room.store.resolve(spoilt.id, "li")
        await room.store.acknowledge(spoilt.id, "li")
    if field == "escalate_ms":
        await room.redis.hset(room.keys.alarm(spoilt.id), field, "soon")
    else:
        await room.redis.hdel(room.keys.alarm(spoilt.id), field)
    room.advance(31 * 86_400)
    await room.tick()
    assert await room.status(whole.id) == "Escalated"
    with pytest.raises(AlarmNotFound):
        await room.store.acknowledge(spoilt.id, "li")
    assert (await room.store.raise_(hot("a:1"))).is_new
    await AlarmSweep(room.plane).run()
    await room.redis.delete(room.keys.alarm(spoilt.id))
    assert len(await room.audit()) == 2


async def test_cursors_and_names_of_another_program_stop_no_reader(room: AlarmRoom, link: Link, sql: Sql) -> None:
    cursors, keys = room.keys.cursors(), room.keys
    await room.redis.hset(cursors, mapping={READER: "soon", SQL_CURSOR: b"\xff", f"{READERS}stranger": "never"})
    odd = {b"\xff": "1", "raised": "many", "level:High": "1.5", "flood_since": "soon"}
    await room.redis.hset(keys.alarm_figures(), mapping=odd)
    await room.redis.zadd(keys.alarm_order("all"), {b"\xff": 1})
    await report(link, keys, "channel_offline", "comsrv:1", "channel 1 is offline")
    assert await room.faults.step() == 1
    assert await room.faults.step() == 0, "the cursor is one again"
    (alarm,) = (await room.store.list(AlarmQuery())).alarms
    await JournalLosses(room.plane).tell()
    assert await read_leaving(room.plane) == {}
    assert len(await JournalEntry.read(room.plane, AlarmJournal(sql), alarm.id)) == 1
    recorder = AlarmRecorder(room.plane, AlarmJournal(sql))
    assert await recorder.step() == 1
    assert await recorder.step() == 0
