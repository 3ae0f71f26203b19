"""From the stream to SQL: every transition once, also when the recorder is killed; who left Redis stays known."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs

from tests import servers
from tests.alarms.alarm_room import DAY_S, AlarmRoom, hot
from tests.sql.databases import fresh_database
from tradewind.alarms.journal import AlarmJournal
from tradewind.alarms.journal_entry import READERS
from tradewind.alarms.record import AlarmNotFound
from tradewind.alarms.recorder import AlarmRecorder
from tradewind.redis.connection import Link
from tradewind.sql import Sql, open_sql
from tradewind.sql.tables import alarm_journal

on_every_database = pytest.mark.parametrize(
    ("any_redis", "dialect"),
    [("redis_7", "sqlite"), ("valkey", "postgresql"), ("cluster3", "sqlite")],
    indirect=["any_redis"],
)
on_one = pytest.mark.parametrize(("any_redis", "dialect"), [("redis_7", "sqlite")], indirect=["any_redis"])
#: A recorder that is killed when it wants to move its cursor.
KILLED = """
import asyncio, os, signal, sys
from tradewind.alarms.journal import AlarmJournal
from tradewind.alarms.recorder import AlarmRecorder
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.sql import open_sql
redis_url, sql_url, prefix = sys.argv[1:]
class Killed(AlarmRecorder):
    async def _advance(self, last):
        os.kill(os.getpid(), signal.SIGKILL)
async def main():
    link = await open_link(RedisSettings(url=redis_url))
    plane = PointPlane(link, Settings(key_prefix=prefix))
    await Killed(plane, AlarmJournal(await open_sql(sql_url, None))).run()
asyncio.run(main())
"""


@pytest.fixture
async def url(request: pytest.FixtureRequest, dialect: str, tmp_path: Path) -> AsyncIterator[str]:
    async with fresh_database(request, dialect, tmp_path) as url:
        yield url


@pytest.fixture
async def sql(url: str) -> AsyncIterator[Sql]:
    sql = await open_sql(url, None)
    yield sql
    await sql.close()


@pytest.fixture
def room(link: Link, sql: Sql, key_prefix: str) -> AlarmRoom:
    return AlarmRoom(link, key_prefix, sql=sql)


async def drain(room: AlarmRoom) -> int:
    assert room.journal is not None
    recorder, total = AlarmRecorder(room.plane, room.journal), 0
    while moved := await recorder.step():
        total += moved
    return total


async def rows(sql: Sql) -> int:
    async with sql.read("test") as connection:
        return int((await connection.execute(select(func.count()).select_from(alarm_journal))).scalar() or 0)


async def live(room: AlarmRoom, n: int) -> str:
    raised = await room.store.raise_(hot(f"a:{n}", title="zu heiß\0"))
    await room.store.acknowledge(raised.id, "li", "sehe ich")
    await room.store.clear("rule_1", f"a:{n}", "20")
    return raised.id


@on_every_database
async def test_a_journal_is_whole_before_and_after_it_is_in_sql(room: AlarmRoom, sql: Sql) -> None:
    alarm_id = await live(room, 1)
    before = await room.store.history(alarm_id)
    assert [(e.event, e.from_status, e.to_status) for e in before] == [
        ("raised", "", "New"),
        ("acknowledged", "New", "Acknowledged"),
        ("cleared", "Acknowledged", "Resolved"),
    ]
    assert (before[1].who, before[1].note, before[2].note, before[2].actual_value) == (
        "li",
        "sehe ich",
        "condition cleared",
        "20",
    )
    assert await drain(room) == 3
    assert await room.redis.xlen(room.keys.alarm_journal()) == 0
    assert await room.store.history(alarm_id) == before
    await room.store.close(alarm_id, "li")
    assert await room.store.history(alarm_id) == [*before, (await room.store.history(alarm_id))[-1]]
    assert await drain(room) == 1 and await drain(room) == 0
    assert await rows(sql) == 4


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_a_journal_is_whole_however_much_waits(link: Link, key_prefix: str) -> None:
    room = AlarmRoom(link, key_prefix)
    raised = await room.store.raise_(hot())
    pipe = room.redis.pipeline(transaction=False)
    for _ in range(10_050):
        pipe.xadd(room.keys.alarm_journal(), {"id": "alarm_other"})
    await pipe.execute()
    await room.store.acknowledge(raised.id, "li")
    assert await room.events(raised.id) == ["raised", "acknowledged"]


@on_every_database
async def test_killed_between_the_commit_and_the_cursor_each_transition_is_there_once(
    room: AlarmRoom, sql: Sql, any_redis: servers.Server, url: str, key_prefix: str
) -> None:
    ids = [await live(room, n) for n in range(20)]
    argv = [sys.executable, "-c", KILLED, any_redis.url, url, key_prefix]
    for _ in range(2):
        assert await asyncio.to_thread(subprocess.call, argv, timeout=60) == -signal.SIGKILL
        assert await room.redis.xlen(room.keys.alarm_journal()) == 60
        assert await rows(sql) == 60
    await drain(room)
    assert await rows(sql) == 60
    for alarm_id in ids:
        assert [e.version for e in await room.store.history(alarm_id)] == [1, 2, 3]


@on_every_database
async def test_an_alarm_that_left_redis_is_found_in_sql_until_its_journal_is_too_old(room: AlarmRoom) -> None:
    alarm_id, unseen = await live(room, 1), await room.store.raise_(hot("a:2"))
    shown = (await room.store.get(alarm_id)).to_json()
    room.advance(30 * DAY_S)
    await room.tick()
    assert set(await room.audit()) == {unseen.id}
    await drain(room)
    gone = (await room.store.get(alarm_id)).to_json()
    changed = {name for name in shown if shown[name] != gone[name]}
    assert changed == {"status", "updated_at", "version", "note"} and gone["status"] == "Closed"
    assert await room.events(alarm_id) == ["raised", "acknowledged", "cleared", "closed", "removed"]
    journal, now = room.journal, room.clock.now_ms()
    assert journal is not None
    assert await journal.purge(now) == 0
    assert await journal.purge(now + 1) == 1
    assert await room.events(alarm_id) == []
    assert await room.events(unseen.id) == ["raised"]
    with pytest.raises(AlarmNotFound):
        await room.store.get(alarm_id)


@on_one
async def test_what_another_reader_has_not_seen_stays_in_the_stream(room: AlarmRoom) -> None:
    key, cursors = room.keys.alarm_journal(), room.keys.cursors()
    await live(room, 1)
    first = (await room.redis.xrange(key, count=1))[0][0]
    await room.redis.hset(cursors, f"{READERS}flows", first)
    await drain(room)
    assert await room.redis.xlen(key) == 2
    await room.redis.hset(cursors, f"{READERS}flows", (await room.redis.xrevrange(key, count=1))[0][0])
    await room.store.raise_(hot("a:9"))
    await drain(room)
    assert await room.redis.xlen(key) == 1


@on_one
async def test_what_is_no_entry_holds_up_no_neighbour(room: AlarmRoom, sql: Sql) -> None:
    await room.redis.xadd(room.keys.alarm_journal(), {"id": "x"})
    await live(room, 1)
    with capture_logs() as logged:
        assert await drain(room) == 4
    assert await rows(sql) == 3
    assert [entry["log_level"] for entry in logged] == ["error"]


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_a_lost_database_is_told_once_and_nothing_is_lost(link: Link, key_prefix: str) -> None:
    with servers.postgres_server() as server:
        sql = await open_sql(server.url, None)
        room = AlarmRoom(link, key_prefix, sql=sql)
        await live(room, 1)
        server.kill()
        recorder = AlarmRecorder(room.plane, AlarmJournal(sql))
        with capture_logs() as logged:
            job = asyncio.create_task(recorder.run())
            async with asyncio.timeout(60):
                while recorder._failures < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                await live(room, 2)
                assert await room.redis.xlen(room.keys.alarm_journal()) == 6
                server.start()
                while await room.redis.xlen(room.keys.alarm_journal()) or recorder._failures:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            job.cancel()
        assert await rows(sql) == 6
        assert [entry["log_level"] for entry in logged] == ["warning", "info"]
        await sql.close()
