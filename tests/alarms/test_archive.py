"""Lists with those that have left Redis: the same filters, the same shape, newest first, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.alarms.alarm_room import DAY_S, AlarmRoom, hot
from tests.alarms.test_listing import QUERIES, fill, pages
from tests.sql.databases import fresh_database
from tradewind.alarms.archive import with_archived
from tradewind.alarms.listing import AlarmPage, AlarmQuery, export_rows
from tradewind.alarms.recorder import AlarmRecorder
from tradewind.alarms.transitions import Action, Status
from tradewind.errors import Conflict
from tradewind.redis.connection import Link
from tradewind.sql import open_sql

pytestmark = pytest.mark.parametrize(
    ("any_redis", "dialect"), [("redis_7", "sqlite"), ("valkey", "postgresql")], indirect=["any_redis"]
)


@pytest.fixture
async def room(
    request: pytest.FixtureRequest, link: Link, key_prefix: str, dialect: str, tmp_path: Path
) -> AsyncIterator[AlarmRoom]:
    async with fresh_database(request, dialect, tmp_path) as url:
        sql = await open_sql(url, None)
        yield AlarmRoom(link, key_prefix, sql=sql)
        await sql.close()


async def leave(room: AlarmRoom) -> None:
    """Acknowledged ones that have ended are old now, and in SQL."""
    room.advance(31 * DAY_S)
    await room.tick()
    assert room.journal is not None
    recorder = AlarmRecorder(room.plane, room.journal)
    while await recorder.step():
        pass


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_filters_and_pages_are_the_same_whether_alarms_have_left_or_not(room: AlarmRoom, limit: int) -> None:
    records = await fill(room)
    # Every third, and those that would be closed by time.
    ended = [
        h["id"] for n, h in enumerate(records) if n % 3 == 0 or (h["status"] == "Resolved" and "acknowledged_at" in h)
    ]
    await room.store.act(Action.RESOLVE, ended, "li")
    await room.store.act(Action.CLOSE, ended, "li")
    words = [*QUERIES.values(), {"status": ["closed"]}, {"status": ["closed", "new"], "source": "comsrv:1:*"}]
    queries = [AlarmQuery.of_words(**each, limit=limit, archived=True) for each in words]  # type: ignore[arg-type]
    before = [await pages(room, query) for query in queries]
    shown = {i: (await room.store.get(i)).to_json() for i in ended}
    await leave(room)
    assert not any(await room.store.find(ended)), "they have left"
    assert [await pages(room, query) for query in queries] == before
    assert all(found for found, each in zip(before, words, strict=True) if each != {"category": ["none"]})
    assert {i: (await room.store.get(i)).to_json() for i in ended} == shown
    here = await pages(room, msgspec.structs.replace(queries[0], archived=False))
    assert here == [i for i in before[0] if i not in ended], "without being asked for they are not listed"


async def test_a_bounded_look_among_those_here_skips_none_of_the_others(
    room: AlarmRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.alarms.listing.LOOK", 5)
    monkeypatch.setattr("tradewind.alarms.listing.LOOK_MOST", 5)
    wanted = []
    for n in range(12):
        raised = await room.store.raise_(hot(f"rare:{n}", category="rare"))
        if n % 2:
            await room.store.resolve(raised.id, "li")
            await room.store.close(raised.id, "li")
        wanted.insert(0, raised.id)
        room.advance(1)
        await room.store.raise_many([hot(f"a:{n}:{k}") for k in range(12)])
        room.advance(1)
    await leave(room)
    query = AlarmQuery.of_words(category=["rare"], archived=True, limit=3)
    assert await pages(room, query) == wanted


async def test_an_alarm_that_leaves_while_it_is_listed_is_listed_once(room: AlarmRoom) -> None:
    raised = await room.store.raise_(hot())
    await room.store.resolve(raised.id, "li")
    await room.store.close(raised.id, "li")
    record = (await room.store.list(AlarmQuery())).alarms
    await leave(room)
    assert room.journal is not None
    page = await with_archived(room.journal, AlarmQuery(archived=True), AlarmPage(record, ""))
    assert [alarm.id for alarm in page.alarms] == [raised.id] and not page.next


async def test_an_alarm_on_its_way_to_sql_is_always_in_the_list_and_can_be_shown(room: AlarmRoom) -> None:
    """Readers race with what removes alarms from Redis and with what brings them to SQL."""
    raised = [one.id for one in await room.store.raise_many([hot(f"a:{n}") for n in range(60)])]
    await room.store.act(Action.RESOLVE, raised, "li")
    await room.store.act(Action.CLOSE, raised, "li")
    assert room.journal is not None
    recorder, over, looks = AlarmRecorder(room.plane, room.journal), asyncio.Event(), 0

    async def look(limit: int) -> None:
        nonlocal looks
        query = AlarmQuery.of_words(status=["archived"], category=["temperature"], limit=limit)
        while not over.is_set():
            assert sorted(await pages(room, query)) == sorted(raised)
            assert (await room.store.get(raised[looks % 60])).status is Status.CLOSED
            looks += 1

    async with asyncio.TaskGroup() as group:
        for limit in (7, 100):
            group.create_task(look(limit))
        await asyncio.sleep(0.05)
        room.advance(31 * DAY_S)
        await room.tick()
        assert not any(await room.store.find(raised)), "they have left Redis, and SQL does not have them yet"
        before = looks
        async with asyncio.timeout(30):
            while looks < before + 4:  # noqa: ASYNC110 - the readers are to look in this state
                await asyncio.sleep(0.01)
            while await recorder.step():
                pass
            before = looks
            while looks < before + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        over.set()


async def test_rows_for_csv_have_them(room: AlarmRoom) -> None:
    raised = await room.store.raise_many([hot(f"a:{n}") for n in range(5)])
    await room.store.resolve(raised[0].id, "li")
    await room.store.close(raised[0].id, "li")
    await leave(room)
    rows = [row async for row in export_rows(room.store, AlarmQuery(limit=2, archived=True))]
    assert sorted(row[0] for row in rows[1:]) == sorted(r.id for r in raised)


async def test_without_sql_it_is_refused(link: Link, key_prefix: str, dialect: str) -> None:
    with pytest.raises(Conflict) as caught:
        await AlarmRoom(link, key_prefix).store.list(AlarmQuery(archived=True))
    assert caught.value.code == "no_sql"
