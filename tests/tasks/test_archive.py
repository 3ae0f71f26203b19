"""From the outbox to SQL: nothing lost in a crash, nothing blocked by one bad row, nothing stored twice."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog

from tests import servers
from tests.lifetimes import lives
from tests.sql.databases import fresh_database
from tests.tasks.room import Room, ending
from tradewind import codec
from tradewind.errors import Conflict, NotFound, Overloaded, Unavailable
from tradewind.sql import Sql, open_sql
from tradewind.tasks.archive import Archiver
from tradewind.tasks.archive_table import TaskArchive
from tradewind.tasks.record import Task

DAY_S = 86_400
on_every_database = pytest.mark.parametrize(
    ("any_redis", "dialect"),
    [("redis_7", "sqlite"), ("valkey", "postgresql"), ("cluster3", "sqlite")],
    indirect=["any_redis"],
)
on_one = pytest.mark.parametrize(("any_redis", "dialect"), [("redis_7", "sqlite")], indirect=["any_redis"])


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
def archive(sql: Sql) -> TaskArchive:
    return TaskArchive(sql)


@pytest.fixture
def kept(make_room: Callable[..., Room], archive: TaskArchive) -> Room:
    return make_room(archive)


async def end(room: Room, count: int, status: str = "SUCCESS", **options: object) -> list[str]:
    """So many tasks that were run and ended."""
    worker = await room.join(capacity=count)
    ids = [a.id for a in await room.store.submit([room.submission("a", n, **options) for n in range(count)])]
    while taken := await room.start(worker, 500):
        await worker.finish([ending(t, status, result={"n": t.id}) for t in taken])
    return ids


async def archive_all(room: Room, archive: TaskArchive) -> int:
    archiver, total = Archiver(room.plane, archive), 0
    while done := await archiver.step():
        total += done
    return total


async def forget(room: Room, ids: list[str]) -> None:
    """As if the 300 s after the archive were over."""
    for task_id in ids:
        await lives(room.redis, room.keys.task(task_id), 300)
        await lives(room.redis, room.keys.body(task_id), 300)
        await room.redis.delete(room.keys.task(task_id), room.keys.body(task_id))


@on_every_database
async def test_ended_tasks_reach_sql_and_leave_the_outbox(kept: Room, archive: TaskArchive) -> None:
    ids = await end(kept, 1300, tags=["t"])
    dead = await end(kept, 3, "DEAD", max_attempts=2)
    await kept.store.cancel([cancelled := await kept.submit("nobody", delay_s=9)])
    live = [task for task in await kept.store.read_live([ids[0], dead[0], cancelled]) if task is not None]
    assert await archive_all(kept, archive) == 1304
    assert (await kept.look()).number("task:outbox:count") == 0 == await kept.redis.xlen(kept.keys.outbox())
    counts = await archive.counts()
    assert (counts["SUCCESS"], counts["DEAD"], counts["CANCELLED"]) == (1300, 3, 1)
    await forget(kept, [ids[0], dead[0], cancelled])
    archived = await kept.store.read([ids[0], dead[0], cancelled])
    for task, was in zip(archived, live, strict=True):
        was.due_ms = 0  # the archive keeps no due time
        assert task == was


@on_every_database
async def test_crash_between_the_commit_and_the_trim_stores_each_task_once(kept: Room, archive: TaskArchive) -> None:
    ids = await end(kept, 30, tags=["t"])
    found = [task for task in await kept.store.read_live(ids) if task is not None]
    await archive.write(found)  # committed, and then the leader was killed
    assert (await kept.look()).number("task:outbox:count") == 30
    assert await archive_all(kept, archive) == 30
    assert (await archive.counts())["SUCCESS"] == 30 == len(await archive.page(tag="t", limit=100))
    assert {t.id: t for t in found} == await archive.get_many(ids)


@on_every_database
async def test_two_archivers_at_once_store_each_task_once(kept: Room, archive: TaskArchive, url: str) -> None:
    await end(kept, 2500, tags=["t"])
    other = await open_sql(url, None)
    await asyncio.gather(archive_all(kept, archive), archive_all(kept, TaskArchive(other)))
    await other.close()
    assert (await archive.counts())["SUCCESS"] == 2500
    assert (await kept.look()).number("task:outbox:count") == 0 == await kept.redis.xlen(kept.keys.outbox())


@on_one
async def test_locked_file_keeps_the_outbox_and_submit_says_so_at_the_bound(
    make_room: Callable[..., Room], archive: TaskArchive, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.sql.engine.BUSY_S", 0.2)
    impatient = await open_sql(url, None)
    room = make_room(TaskArchive(impatient), tasks={"outbox_max": 5})
    await end(room, 5)
    holder = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        await archive_all(room, TaskArchive(impatient))
    assert (await room.look()).number("task:outbox:count") == 5
    before = await room.look()
    with pytest.raises(Overloaded) as caught:
        await room.submit()
    assert caught.value.code == "outbox_full" and (await room.look()).values == before.values
    holder.execute("ROLLBACK")
    holder.close()
    assert await archive_all(room, TaskArchive(impatient)) == 5
    assert await room.submit()
    await impatient.close()


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_lost_database_keeps_the_outbox_and_its_return_is_noticed(make_room: Callable[..., Room]) -> None:
    with servers.postgres_server() as server:
        sql = await open_sql(server.url, None)
        archive = TaskArchive(sql)
        room = make_room(archive, tasks={"outbox_max": 10})
        await end(room, 12)
        server.kill()
        with pytest.raises(Unavailable):
            await Archiver(room.plane, archive).run()
        with pytest.raises(Overloaded):
            await room.submit()
        assert (await room.look()).number("task:outbox:count") == 12
        server.start()
        assert await archive_all(room, archive) == 12 and (await archive.counts())["SUCCESS"] == 12
        await sql.close()


@on_every_database
async def test_rows_that_can_never_be_stored_hold_up_no_neighbour(kept: Room, archive: TaskArchive) -> None:
    for odd in ({"ids": b"\xff\xfe"}, {"x": "y"}, {"ids": ""}, {"ids": "gone"}):  # of another program
        await kept.redis.xadd(kept.keys.outbox(), odd)
    ids = await end(kept, 40)
    await kept.redis.hset(kept.keys.task(ids[7]), "at", str(2**70))  # no database takes that number
    await kept.redis.hset(kept.keys.task(ids[20]), "n", "often")
    await kept.redis.set(kept.keys.body(ids[30]), b"not JSON\n{")
    await kept.redis.hset(kept.keys.task(ids[31]), "worker", b"\xff\xfe")
    assert await archive_all(kept, archive) == 42
    assert await kept.redis.xlen(kept.keys.outbox()) == 0
    stored = set(await archive.get_many(ids))
    assert set(ids) - stored == {ids[7], ids[20], ids[30]}
    for task_id in ids:
        await lives(kept.redis, kept.keys.task(task_id), 300)


@on_every_database
async def test_task_brought_back_before_its_archive_is_archived_when_it_ends_again(
    kept: Room, archive: TaskArchive
) -> None:
    (task_id,) = await end(kept, 1, "FAILED")
    await kept.store.retry(task_id)
    assert await archive_all(kept, archive) == 1 and await archive.get(task_id) is None
    assert await kept.redis.ttl(kept.keys.task(task_id)) == -1
    kept.clock.advance(1)
    worker = await kept.join()
    await worker.finish([ending(t, result=5) for t in await kept.start(worker)])
    await archive_all(kept, archive)
    task = await archive.get(task_id)
    assert task is not None and task.status == "SUCCESS" and task.result == 5


@on_one
async def test_task_brought_back_between_read_and_trim_does_not_expire(kept: Room, archive: TaskArchive) -> None:
    (task_id,) = await end(kept, 1, "FAILED")

    class Slow(TaskArchive):
        async def write_rows(self, rows: object) -> None:
            await super().write_rows(rows)  # type: ignore[arg-type]
            await kept.store.retry(task_id)

    await Archiver(kept.plane, Slow(archive._sql)).step()
    assert await kept.status(task_id) == "QUEUED" and await kept.redis.ttl(kept.keys.task(task_id)) == -1


@on_every_database
@pytest.mark.parametrize("status", ["FAILED", "DEAD", "TIMEOUT", "CANCELLED"])
async def test_archived_task_is_brought_back(kept: Room, archive: TaskArchive, status: str) -> None:
    (task_id,) = await end(kept, 1, status, priority="high", max_attempts=3, tags=["t"], idempotency_key="k")
    await archive_all(kept, archive)
    await forget(kept, [task_id])
    assert codec.decode(await kept.store.view(task_id))["status"] == status
    assert await kept.store.retry(task_id) == "ASSIGNED"  # its worker is idle
    shown = codec.decode(await kept.store.view(task_id))
    assert (shown["status"], shown["priority"], shown["max_attempts"]) == ("ASSIGNED", "high", 3)
    assert shown["args"] == [0] and shown["tags"] == ["t"]
    assert task_id not in (await kept.look()).values.get("queue:dead", {})


@on_one
async def test_archived_success_is_not_brought_back_and_not_cancelled(kept: Room, archive: TaskArchive) -> None:
    (task_id,) = await end(kept, 1)
    await archive_all(kept, archive)
    await forget(kept, [task_id])
    with pytest.raises(Conflict, match="SUCCESS"):
        await kept.store.retry(task_id)
    answer = (await kept.store.cancel([task_id]))[0]
    assert not answer.is_done and answer.status == "SUCCESS"
    assert await kept.store.wait("client", [task_id]) == ["SUCCESS"]
    with pytest.raises(NotFound):
        await kept.store.retry("nobody")


@on_one
async def test_cancelled_task_whose_place_in_the_queue_outlived_its_record_runs_once(
    kept: Room, archive: TaskArchive
) -> None:
    task_id = await kept.submit()
    await kept.store.cancel([task_id])
    await archive_all(kept, archive)
    await forget(kept, [task_id])
    assert await kept.store.retry(task_id) == "QUEUED"
    assert await kept.redis.lrange(kept.keys.queue("normal"), 0, -1) == [task_id.encode()] * 2
    worker = await kept.join(capacity=1)
    started = []
    for _ in range(3):
        taken = await kept.start(worker)
        started += [t.id for t in taken]
        for t in taken:
            await worker.finish([ending(t)])
    assert started == [task_id] and not (await kept.look()).places


@on_one
async def test_old_rows_are_purged_by_the_same_clock(kept: Room, archive: TaskArchive) -> None:
    old = await end(kept, 3)
    await archive_all(kept, archive)
    kept.clock.advance(29 * DAY_S)
    young = await end(kept, 2)
    kept.clock.advance(1.5 * DAY_S)
    job = asyncio.create_task(Archiver(kept.plane, archive).run())
    async with asyncio.timeout(10):
        while set(await archive.get_many([*old, *young])) != set(young):
            assert not job.done()
            await asyncio.sleep(0.02)
    job.cancel()


@on_one
async def test_archive_runs_on_by_itself(kept: Room, archive: TaskArchive) -> None:
    job = asyncio.create_task(Archiver(kept.plane, archive).run())
    for _ in range(3):
        ids = await end(kept, 4)
        async with asyncio.timeout(5):
            while len(await archive.get_many(ids)) < 4:  # noqa: ASYNC110 — another task does it
                await asyncio.sleep(0.01)
    job.cancel()
    assert isinstance(await archive.get(ids[0]), Task)


@on_one
async def test_ends_that_no_worker_has_seen_are_logged_with_their_reason(kept: Room, archive: TaskArchive) -> None:
    await kept.join()
    late = await kept.submit(deadline=kept.clock.ms + 1000)
    kept.clock.advance(2)
    await kept.assign()
    seen = await end(kept, 1, "FAILED")
    with structlog.testing.capture_logs() as lines:
        await archive_all(kept, archive)
    failed = [line for line in lines if line["event"] == "task_failed"]
    assert [(line["task"], line["error_type"], line["log_level"]) for line in failed] == [
        (late, "DeadlineExceeded", "warning")
    ], "a worker has logged the other one"
    assert failed[0]["error"] and late != seen[0]
