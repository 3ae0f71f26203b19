"""The archive of finished tasks: one contract over both databases."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests import servers
from tests.sql.databases import DIALECTS, fresh_database
from tradewind.errors import Invalid, Unavailable
from tradewind.sql import Sql, open_sql
from tradewind.tasks.archive_row import ArchiveRow, row_from_redis
from tradewind.tasks.archive_table import TaskArchive
from tradewind.tasks.record import DEAD_LETTERS, TERMINAL, Failure, Request, Status, Task, from_redis

BATCH = 100
WRITER = f"""
import asyncio, sys
from tradewind.sql import open_sql
from tradewind.tasks.archive_table import ArchiveRow, TaskArchive
async def main():
    sql = await open_sql(sys.argv[1], None)
    archive = TaskArchive(sql)
    for batch in range(100_000):
        row = ArchiveRow("", "echo", "SUCCESS", "normal", 1, 0, "w", 1, 2, 3 + batch, "{{}}", "1", tags=("t",))
        await archive.write_rows([row._replace(id=f"b{{batch:06}}-{{n:03}}") for n in range({BATCH})])
        print(batch, flush=True)
asyncio.run(main())
"""


@pytest.fixture(params=DIALECTS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with fresh_database(request, request.param, tmp_path) as url:
        yield url


@pytest.fixture
async def sql(url: str) -> AsyncIterator[Sql]:
    sql = await open_sql(url, None)
    yield sql
    await sql.close()


@pytest.fixture
def archive(sql: Sql) -> TaskArchive:
    return TaskArchive(sql)


def finished(task_id: str, finished_ms: int = 3, tags: tuple[str, ...] = (), **more: Any) -> Task:
    values: dict[str, Any] = {"type": "echo", "status": Status.SUCCESS, "created_ms": 1, "started_ms": 2, **more}
    return Task(id=task_id, finished_ms=finished_ms, request=Request(tags=list(tags)), **values)


async def ids(archive: TaskArchive, **filters: Any) -> list[str]:
    return [task.id for task in await archive.page(**{"limit": 1000, **filters})]


async def test_a_task_comes_back_as_it_was_written(archive: TaskArchive) -> None:
    task = Task(
        id="x" * 160,
        type="echo",
        status=Status.DEAD,
        priority="high",
        attempt=3,
        stalls=1,
        created_ms=1_700_000_000_000,
        started_ms=1_700_000_000_001,
        finished_ms=1_700_000_000_002,
        worker_id="w1",
        progress={"done": 0.5},
        request=Request(args=[1, "ä\0🙂"], kwargs={"k": [None]}, max_attempts=3, tags=["a", "b"]),
        result={"nested": [1.5, True]},
        error=Failure(type="ValueError", message="bad % $1 ? :x", traceback="line\nline"),
    )
    await archive.write([task, finished("plain")])
    assert await archive.get("x" * 160) == task
    assert await archive.get("plain") == finished("plain")
    assert await archive.get("unknown") is None


async def test_a_row_made_from_redis_equals_the_task_made_from_redis(archive: TaskArchive) -> None:
    fields = {"type": "t", "status": "FAILED", "pri": "high", "n": "2", "stalls": "1", "at": "5", "start": "6"}
    fields |= {"end": "7", "worker": "w", "prog": '{"a":1}'}
    bodies = {
        "both": b'{"args":[1],"tags":["red","blue"]}\n{"result":["\\u0000"],"error":{"type":"E","message":"m"}}',
        "living": b'{"args":[1]}',
        "none": b"",
    }
    await archive.write_rows([row_from_redis(name, fields, body) for name, body in bodies.items()])
    assert await archive.get_many(bodies) == {name: from_redis(name, fields, body) for name, body in bodies.items()}
    assert await ids(archive, tag="blue") == ["both"]


async def test_an_error_only_in_the_hash_is_archived(archive: TaskArchive) -> None:
    fields = {"type": "t", "status": "DEAD", "end": "7", "err": "worker died"}
    await archive.write_rows([row_from_redis("a", fields, b"{}")])
    assert await archive.get("a") == from_redis("a", fields, b"{}")


async def test_writing_the_same_batch_twice_changes_nothing(archive: TaskArchive, sql: Sql) -> None:
    batch = [finished(f"t{n}", 10 + n, tags=("a", "a", "b")) for n in range(50)]
    await archive.write(batch)
    await archive.write(batch)
    assert await ids(archive) == await ids(archive, tag="a") == [f"t{n}" for n in reversed(range(50))]
    async with sql.read("test") as connection:
        assert (await connection.execute(text("SELECT count(*) FROM task_tags"))).scalar() == 100


async def test_a_later_run_replaces_and_an_earlier_one_never_does(archive: TaskArchive) -> None:
    first = finished("a", 10, tags=("old", "both"), status=Status.DEAD)
    second = finished("a", 20, tags=("new", "both"), result=2)
    for order in ([first, second], [second, first]):
        await archive.delete(["a"])
        for task in order:
            await archive.write([task])
        assert await archive.get("a") == second
        assert await ids(archive, tag="both") == await ids(archive, tag="new") == ["a"]
        assert await ids(archive, tag="old") == []
    await archive.delete(["a"])
    await archive.write([second, first, finished("b")])
    assert await archive.get("a") == second


async def test_a_run_that_ended_in_the_same_millisecond_replaces(archive: TaskArchive) -> None:
    await archive.write([finished("a", 10, result=1), finished("a", 10, result=2)])
    assert (await archive.get_many(["a"]))["a"].result == 2
    await archive.write([finished("a", 10, result=3)])
    assert (await archive.get_many(["a"]))["a"].result == 3


async def test_pages_walk_every_row_exactly_once(archive: TaskArchive) -> None:
    chance = random.Random(1)
    statuses = sorted(TERMINAL)
    every = [
        finished(f"t{n:04}", 100 + n // 200, ("tag",), status=chance.choice(statuses), type=chance.choice("ab"))
        for n in range(1000)
    ]
    chance.shuffle(every)
    await archive.write(every)

    async def walk(**filters: Any) -> list[str]:
        seen: list[Task] = []
        while page := await archive.page(
            before=(seen[-1].finished_ms, seen[-1].id) if seen else None, limit=37, **filters
        ):
            assert len(page) <= 37
            seen += page
        return [task.id for task in seen]

    def expected(keep: Any) -> list[str]:
        kept = sorted((t for t in every if keep(t)), key=lambda t: (t.finished_ms, t.id), reverse=True)
        return [task.id for task in kept]

    assert await walk() == await walk(tag="tag") == expected(lambda t: True)
    assert await walk(type="a") == expected(lambda t: t.type == "a")
    assert await walk(statuses={Status.SUCCESS}) == expected(lambda t: t.status == "SUCCESS")
    some = await walk(statuses=DEAD_LETTERS, type="b")
    assert some == expected(lambda t: t.status in DEAD_LETTERS and t.type == "b")
    assert await walk(statuses=DEAD_LETTERS, type="b", tag="tag") == some


async def test_filters_that_match_nothing_give_an_empty_page(archive: TaskArchive) -> None:
    await archive.write([finished("a", tags=("t",))])
    assert await ids(archive, statuses=[]) == await ids(archive, statuses=[Status.QUEUED]) == []
    assert await ids(archive, type="other") == await ids(archive, tag="other") == await ids(archive, limit=0) == []
    assert await ids(archive, before=(3, "a")) == []


async def test_counts_by_status(archive: TaskArchive) -> None:
    await archive.write([finished("a"), finished("b"), finished("c", status=Status.DEAD)])
    assert await archive.counts() == {"SUCCESS": 2, "DEAD": 1, "FAILED": 0, "CANCELLED": 0, "TIMEOUT": 0}


async def test_purge_takes_the_old_in_bounded_batches_with_their_tags(archive: TaskArchive, sql: Sql) -> None:
    await archive.write([finished(f"t{n}", n, ("tag",), status=sorted(TERMINAL)[n % 5]) for n in range(100)])
    assert [await archive.purge(60, limit=25) for _ in range(4)] == [25, 25, 10, 0]
    assert await ids(archive) == await ids(archive, tag="tag") == [f"t{n}" for n in reversed(range(60, 100))]
    async with sql.read("test") as connection:
        assert (await connection.execute(text("SELECT count(*) FROM task_tags"))).scalar() == 40


async def test_delete_and_get_many_take_thousands_of_ids(archive: TaskArchive) -> None:
    names = [f"t{n}" for n in range(2500)]
    await archive.write([finished(name) for name in names])
    assert (await archive.get_many([*names, "other"])).keys() == set(names)
    assert await archive.delete([*names[:2400], "other"]) == 2400
    assert set(await ids(archive)) == set(names[2400:])
    await archive.write([])
    assert await archive.get_many([]) == {}
    assert await archive.delete([]) == 0


async def test_a_nul_in_an_error_does_not_stop_the_batch(archive: TaskArchive) -> None:
    await archive.write([finished("a", status=Status.FAILED, error=Failure("E", "a\0b", "\0"))])
    task = await archive.get("a")
    assert task is not None
    assert task.error == Failure("E", "a\ufffdb", "\ufffd")


@pytest.mark.parametrize("bad", [{"status": "QUEUED"}, {"created_ms": 2**70}, {"worker_id": "\ud800"}])
async def test_a_row_that_can_never_be_stored_is_invalid_and_none_is_written(
    archive: TaskArchive, bad: dict[str, Any]
) -> None:
    good = ArchiveRow("a", "echo", "SUCCESS", "normal", 1, 0, "w", 1, 2, 3, "{}", "1")
    with pytest.raises(Invalid):
        await archive.write_rows([good, good._replace(id="b", **bad)])
    assert await ids(archive) == []
    await archive.write_rows([good])


async def test_two_writers_of_the_same_rows_do_not_disturb_each_other(url: str, archive: TaskArchive) -> None:
    other = await open_sql(url, None)
    batches = [
        [finished(f"t{n}", 10 + run, ("x",)) for n in random.Random(run).sample(range(200), 150)] for run in range(20)
    ]
    await asyncio.gather(*((archive, TaskArchive(other))[i % 2].write(batch) for i, batch in enumerate(batches)))
    last = {task.id: task for batch in batches for task in batch}
    assert await archive.get_many(last) == last
    assert len(await ids(archive, tag="x")) == len(last)
    await other.close()


async def test_killing_the_writer_loses_no_committed_batch(url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        committed = -1
        for line in writer.stdout:
            committed = int(line)
            if committed == 20:
                writer.send_signal(signal.SIGKILL)
    sql = await open_sql(url, None)
    archive = TaskArchive(sql)
    names = {
        task.id
        for task in (
            await archive.get_many([f"b{b:06}-{n:03}" for b in range(committed + 1) for n in range(BATCH)])
        ).values()
    }
    assert len(names) == (committed + 1) * BATCH
    count = (await archive.counts())["SUCCESS"]
    assert count % BATCH == 0
    async with sql.read("test") as connection:
        assert (await connection.execute(text("SELECT count(*) FROM task_tags"))).scalar() == count
    await archive.write([finished("after")])
    await sql.close()


async def test_a_full_disk_is_unavailable_and_keeps_what_was_committed(tmp_path: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))"
    script = WRITER.replace("    archive =", f"    import resource; {limit}\n    archive =")
    argv = [sys.executable, "-c", script, f"sqlite:///{tmp_path}/test.db"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert "tradewind.errors.Unavailable: cannot archive 100 tasks" in done.stderr
    sql = await open_sql(f"sqlite:///{tmp_path}/test.db", None)
    assert (await TaskArchive(sql).counts())["SUCCESS"] == len(done.stdout.split()) * BATCH
    await sql.close()


async def test_a_lost_server_is_unavailable_and_its_return_is_noticed() -> None:
    with servers.postgres_server() as server:
        sql = await open_sql(server.url, None)
        archive = TaskArchive(sql)
        await archive.write([finished("a")])
        server.kill()
        for attempt in (archive.write([finished("b")]), archive.get("a"), archive.page(), archive.purge(100)):
            with pytest.raises(Unavailable):
                await attempt
        server.start()
        await archive.write([finished("b")])
        assert await ids(archive) == ["b", "a"]
        await sql.close()


async def test_a_reader_in_another_process_does_not_stop_the_sqlite_writer(tmp_path: Path) -> None:
    sql = await open_sql("", tmp_path)
    archive = TaskArchive(sql)
    await archive.write([finished("a")])
    reader = sqlite3.connect(tmp_path / "tradewind.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
    await archive.write([finished("b")])
    assert reader.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
    reader.close()
    assert await ids(archive) == ["b", "a"]
    await sql.close()
