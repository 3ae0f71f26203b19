"""From the outbox to SQL: nothing lost or doubled in a crash, nothing blocked by one bad record."""

from __future__ import annotations

import asyncio
import signal as signals
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs

from tests import servers
from tests.flows.record_outbox import Outbox, cycle, gone, log, signal
from tests.sql.databases import fresh_database
from tradewind import codec
from tradewind.flows import recorder as recorder_module
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings
from tradewind.sql import Sql, open_sql
from tradewind.sql.tables import flow_logs

on_every_database = pytest.mark.parametrize(
    ("any_redis", "dialect"),
    [("redis_7", "sqlite"), ("valkey", "postgresql"), ("cluster3", "sqlite")],
    indirect=["any_redis"],
)
on_both = pytest.mark.parametrize(
    ("any_redis", "dialect"), [("redis_7", "sqlite"), ("valkey", "postgresql")], indirect=["any_redis"]
)
on_one = pytest.mark.parametrize(("any_redis", "dialect"), [("redis_7", "sqlite")], indirect=["any_redis"])
#: A recorder that is killed when it wants to trim.
KILLED = """
import asyncio, os, signal, sys
from tradewind.flows.recorder import FlowRecorder
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.sql import open_sql
from tradewind.tasks.plane import Plane
redis_url, sql_url, prefix = sys.argv[1:]
class Killed(FlowRecorder):
    async def _trim(self, last):
        os.kill(os.getpid(), signal.SIGKILL)
async def main():
    link = await open_link(RedisSettings(url=redis_url))
    await Killed(Plane(link, Settings(key_prefix=prefix)), await open_sql(sql_url, None)).run()
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
def outbox(link: Link, sql: Sql, key_prefix: str) -> Outbox:
    return Outbox(link, sql, key_prefix)


async def until(job: asyncio.Task[None], is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for what `job` does."""
    async with asyncio.timeout(60):
        while True:
            found = is_so()
            if found if isinstance(found, bool) else await found:
                return
            assert not job.done()
            await asyncio.sleep(0.02)


async def is_empty(outbox: Outbox) -> bool:
    return await outbox.waiting() == 0


@on_every_database
async def test_records_reach_sql_in_order_and_leave_the_outbox(outbox: Outbox) -> None:
    for number in range(4):
        await outbox.add(cycle("f", number, "running"), log("f", number, f"Starting cycle {number}"))
        await outbox.add(signal("f", number), log("f", number))
        await outbox.add(cycle("f", number), log("f", number, f"Cycle {number} completed"))
    assert await outbox.drain() == 12
    lines = [line for n in range(4) for line in (f"Starting cycle {n}", "work", f"Cycle {n} completed")]
    assert await outbox.messages("f") == lines
    assert (await outbox.cycles_in("f"))["flow_signals"] == [0, 1, 2, 3]
    assert await outbox.drain() == 0


@on_every_database
async def test_kill_between_the_commit_and_the_trim_stores_each_record_once(
    outbox: Outbox, any_redis: servers.Server, url: str, key_prefix: str
) -> None:
    for number in range(8):
        await outbox.add(cycle("f", number, "running"), log("f", number), log("f", number), signal("f", number))
        await outbox.add(cycle("f", number, nodes={"A": ["completed", 1, 2, ""]}))
    argv = [sys.executable, "-c", KILLED, any_redis.url, url, key_prefix]
    for _ in range(2):
        assert await asyncio.to_thread(subprocess.call, argv, timeout=60) == -signals.SIGKILL
        assert await outbox.waiting() == 16
        assert await outbox.messages("f") == ["work"] * 10 + ["Cleaned up 6 old log entries"]
    await outbox.drain()
    assert await outbox.messages("f") == ["work"] * 10 + ["Cleaned up 6 old log entries"]
    expected = {"flow_logs": [3, 4, 5, 6, 7], "flow_signals": [3, 4, 5, 6, 7], "flow_cycles": list(range(8))}
    assert await outbox.cycles_in("f") == expected


@on_both
async def test_two_recorders_at_once_store_each_record_once(
    outbox: Outbox, link: Link, url: str, key_prefix: str
) -> None:
    for number in range(1200):
        await outbox.add(log("f", 1, f"line {number}"), signal("f", 1, f"N{number}"))
    other_sql = await open_sql(url, None)
    other = Outbox(link, other_sql, key_prefix)
    await asyncio.gather(outbox.drain(), other.drain())
    await other_sql.close()
    assert sorted(await outbox.messages("f")) == sorted(f"line {number}" for number in range(1200))


@on_every_database
async def test_bad_records_are_named_and_hold_up_no_neighbour(outbox: Outbox) -> None:
    await outbox.add(log("f", 1, "first"))
    bad = [await outbox.add_raw(b"not JSON"), await outbox.add_raw(b'[{"k":"what"}]'), await outbox.add_raw(b"7")]
    nameless = (await outbox.plane.redis.xadd(outbox.key, {"other": "field"})).decode()
    mixed = await outbox.add_raw(b'[{"k":"gone"},%b]' % codec.encode(log("f", 1, "second")))
    too_late = await outbox.add(signal("f", 1, timestamp=1e300))
    await outbox.add(log("f", 1, "last"))
    with capture_logs() as logged:
        assert await outbox.drain() == 8
    assert await outbox.messages("f") == ["first", "second", "last"]
    named = {entry["record"] for entry in logged if entry["log_level"] == "error"}
    assert named == {bad[0], f"{bad[1]}-0", bad[2], nameless, f"{mixed}-0", f"{too_late}-0"}
    assert any(entry.get("data") == "not JSON" for entry in logged)


@on_every_database
async def test_a_deleted_flow_leaves_nothing(outbox: Outbox) -> None:
    for flow in ("f", "g"):
        await outbox.add(cycle(flow, 0), log(flow, 0), signal(flow, 0))
    await outbox.drain()
    await outbox.add(cycle("f", 1), log("f", 1), signal("f", 1), gone("f"), log("g", 0))
    await outbox.drain()
    assert await outbox.cycles_in("f") == {"flow_logs": [], "flow_signals": [], "flow_cycles": []}
    assert await outbox.messages("g") == ["work", "work"]


@on_both
async def test_a_flow_registered_again_keeps_what_came_after_its_end(outbox: Outbox) -> None:
    await outbox.add(cycle("f", 7), log("f", 7, "old"))
    await outbox.drain()
    await outbox.add(log("f", 8, "old"), gone("f"), log("f", 0, "old"))
    await outbox.add(gone("f"))
    await outbox.add(cycle("f", 0), log("f", 0, "new"))
    await outbox.drain()
    assert await outbox.messages("f") == ["new"]
    assert (await outbox.cycles_in("f"))["flow_cycles"] == [0]


@on_both
async def test_lines_that_come_after_the_end_of_their_flow_are_swept(outbox: Outbox) -> None:
    await outbox.add(log("f", 0), signal("f", 0), log("young", 0, at=outbox.plane.clock.now_ms()))
    await outbox.add(log("g", 0), cycle("g", 0, "running"))
    await outbox.drain()
    await outbox.recorder._sweep()
    assert (await outbox.messages("f"), await outbox.messages("young"), await outbox.messages("g")) == (
        [],
        ["work"],
        ["work"],
    )
    assert (await outbox.cycles_in("f"))["flow_signals"] == []


@on_one
async def test_a_large_backlog_is_moved_in_bounded_batches(outbox: Outbox) -> None:
    for _ in range(12):
        await outbox.add(signal("f", 1, payload="x" * 1_000_000))
    step = await outbox.recorder.step()
    assert step.is_more is False  # twelve are read at once, before their size is known
    pipe = outbox.plane.redis.pipeline(transaction=False)
    for number in range(40):
        pipe.xadd(outbox.key, {"d": codec.encode([signal("f", 1, f"N{number}", payload="x" * 300_000)])})
    await pipe.execute()
    step = await outbox.recorder.step()
    assert step.is_more and step.entries == 20
    await outbox.drain()


@on_both
async def test_ten_thousand_entries_are_drained_by_a_running_recorder(outbox: Outbox, sql: Sql) -> None:
    for start in range(0, 10_000, 1000):
        pipe = outbox.plane.redis.pipeline(transaction=False)
        for n in range(start, start + 1000):
            data = [log("f", n // 100), signal("f", n // 100, f"N{n % 100}"), cycle("f", n // 100)]
            pipe.xadd(outbox.key, {"d": codec.encode(data)})
        await pipe.execute()
    job = asyncio.create_task(outbox.recorder.run())
    await until(job, lambda: is_empty(outbox))
    job.cancel()
    assert (await outbox.cycles_in("f"))["flow_logs"] == [95, 96, 97, 98, 99]
    query = select(func.count()).select_from(flow_logs).where(flow_logs.c.message == "work")
    async with sql.read("test") as connection:
        assert (await connection.execute(query)).scalar() == 500


@on_one
async def test_a_running_recorder_gathers_what_comes_together(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    step = outbox.recorder.step

    async def counted() -> recorder_module.Step:
        found = await step()
        batches.append(found.entries)
        return found

    monkeypatch.setattr(outbox.recorder, "step", counted)
    job = asyncio.create_task(outbox.recorder.run())
    await until(job, lambda: bool(batches))
    pipe = outbox.plane.redis.pipeline(transaction=True)
    for _ in range(50):
        pipe.xadd(outbox.key, {"d": codec.encode([log("f", 1)])})
    await pipe.execute()
    await until(job, lambda: sum(batches) >= 50)
    job.cancel()
    assert [count for count in batches if count] == [50]


@pytest.mark.parametrize("any_redis", ["redis_7"], indirect=True)
async def test_a_lost_database_is_told_once_and_its_return_is_noticed(link: Link, key_prefix: str) -> None:
    with servers.postgres_server() as server:
        sql = await open_sql(server.url, None)
        outbox = Outbox(link, sql, key_prefix)
        await outbox.add(log("f", 1, "before"))
        await outbox.drain()
        server.kill()
        with capture_logs() as logged:
            job = asyncio.create_task(outbox.recorder.run())
            await outbox.add(log("f", 1, "meanwhile"), cycle("f", 1))
            await until(job, lambda: outbox.recorder._failures >= 3)
            assert await outbox.waiting() == 1
            server.start()
            await until(job, lambda: is_empty(outbox))
            await until(job, lambda: not outbox.recorder._failures)
            job.cancel()
        assert await outbox.messages("f") == ["before", "meanwhile"]
        assert [entry["log_level"] for entry in logged] == ["warning", "info"]
        await sql.close()


async def test_a_lost_redis_is_waited_for(tmp_path: Path, key_prefix: str) -> None:
    sql = await open_sql("", tmp_path)
    with servers.redis_server(appendonly=True) as server:
        link = await open_link(RedisSettings(url=server.url))
        outbox = Outbox(link, sql, key_prefix)
        job = asyncio.create_task(outbox.recorder.run())
        await outbox.add(cycle("f", 1, "running"), log("f", 1, "before"))
        await until(job, lambda: is_empty(outbox))
        server.kill()
        await until(job, lambda: outbox.recorder._failures > 0)
        server.start()
        await link.wait_ready(20)
        await outbox.add(log("f", 1, "after"))
        await until(job, lambda: is_empty(outbox))
        job.cancel()
        assert await outbox.messages("f") == ["before", "after"]
        await link.close()
    await sql.close()
