"""A journal that is full: what its readers lose is counted to the entry, told as an alarm, and shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests import servers
from tests.alarms.alarm_room import AlarmRoom, hot
from tests.alarms.test_keeper import kept, until
from tradewind.alarms.journal import AlarmJournal
from tradewind.alarms.journal_entry import READERS
from tradewind.alarms.losses import JournalLosses
from tradewind.alarms.recorder import AlarmRecorder
from tradewind.alarms.statistics import read_statistics
from tradewind.clock import Clock
from tradewind.redis.connection import Link
from tradewind.sql import Sql, open_sql
from tradewind.sql.tables import alarm_journal

#: Entries leave a full journal a hundred at a time.
MOST, CUT = 50, 100


@pytest.fixture
async def sql(tmp_path: Path) -> AsyncIterator[Sql]:
    sql = await open_sql("", tmp_path)
    yield sql
    await sql.close()


@pytest.fixture
def room(link: Link, key_prefix: str, sql: Sql) -> AlarmRoom:
    return AlarmRoom(link, key_prefix, sql=sql, journal_max=MOST)


async def transitions(room: AlarmRoom, count: int, name: str = "a") -> None:
    await room.store.raise_many([hot(f"{name}:{n}") for n in range(count)])


async def test_nothing_is_dropped_up_to_the_bound(room: AlarmRoom) -> None:
    await transitions(room, MOST + CUT - 1)
    assert await room.redis.xlen(room.keys.alarm_journal()) == MOST + CUT - 1
    found = await read_statistics(room.plane)
    assert (found.journal_waiting, found.journal_dropped) == (MOST + CUT - 1, {"sql": 0})
    assert await JournalLosses(room.plane).tell() == 0


@pytest.mark.parametrize("any_redis", ["redis_7", "valkey", "cluster3"], indirect=True)
async def test_what_each_reader_never_had_is_counted_exactly(room: AlarmRoom, sql: Sql) -> None:
    recorder = AlarmRecorder(room.plane, AlarmJournal(sql))
    await transitions(room, 30)
    ids = [entry_id for entry_id, _ in await room.redis.xrange(room.keys.alarm_journal())]
    await room.redis.hset(room.keys.cursors(), f"{READERS}flows", ids[9])  # it has read ten, and is away now
    await room.redis.hset(room.keys.cursors(), "station:faults@alarmsrv", "1-1")  # of another stream
    assert await recorder.step() == 30
    assert await room.redis.xlen(room.keys.alarm_journal()) == 20, "as flows have not had them"
    await transitions(room, MOST + 2 * CUT, "b")
    found = await read_statistics(room.plane)
    left = int(await room.redis.xlen(room.keys.alarm_journal()))
    assert left < MOST + CUT
    gone = 20 + MOST + 2 * CUT - left
    assert found.journal_dropped == {"sql": gone - 20, "flows": gone}
    assert await recorder.step() == left
    async with sql.read("test") as connection:
        rows = (await connection.execute(select(func.count()).select_from(alarm_journal))).scalar()
    assert rows == 30 + left, "what is not counted as dropped is in SQL"


async def test_a_loss_is_an_alarm_and_told_once(room: AlarmRoom) -> None:
    await transitions(room, MOST + CUT)
    assert await JournalLosses(room.plane).tell() == CUT
    assert await room.faults.step() == 1
    alarm = await room.store.get(await room.store.open_id("station", "alarms:journal:sql"))
    assert alarm.data["code"] == "alarm_journal_dropped" and "100 transitions" in alarm.title
    assert await JournalLosses(room.plane).tell() == 0, "another process knows that it was told"
    await transitions(room, CUT, "b")
    losses = JournalLosses(room.plane)
    assert await losses.tell() == CUT
    await transitions(room, CUT, "c")
    assert await losses.tell() == 0, "not every second"
    assert await JournalLosses(room.plane).tell() == CUT


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_a_keeper_whose_database_is_away_tells_of_it(link: Link, key_prefix: str) -> None:
    with servers.postgres_server() as server:
        away = await open_sql(server.url, None)
        server.kill()
        room = AlarmRoom(link, key_prefix, Clock(), away, journal_max=MOST)
        await transitions(room, MOST + CUT)
        async with kept(room, away):
            await until(lambda: room.store.open_id("station", "alarms:journal:sql"))
        await away.close()
