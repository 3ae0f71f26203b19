"""The scheduler as a whole: lost workers, overdue attempts, sweeps; one leads, others stand by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import pytest
from structlog.testing import capture_logs

from tests.servers import Server
from tests.tasks.room import Room, ending
from tradewind.clock import FakeClock, now_ms
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings, SchedulerSettings, Settings
from tradewind.sql import open_sql
from tradewind.tasks.archive_table import TaskArchive
from tradewind.tasks.leader_store import LeaderStore
from tradewind.tasks.periodic import Schedule, ScheduleStore
from tradewind.tasks.plane import Plane
from tradewind.tasks.scheduler import Scheduler

SHORT = SchedulerSettings(leader_ttl_s=3, renew_s=1, lease_s=1.5)
DAY_MS = 86_400_000


class ServersClock(FakeClock):
    """Real time in a place where tests put a fake clock."""

    def __init__(self) -> None:
        pass

    @property
    def ms(self) -> int:  # type: ignore[override]
        return now_ms()

    def now_arg(self) -> str:
        return ""


@pytest.fixture
def real(link: Link, key_prefix: str) -> Room:
    return Room(link, Settings(key_prefix=key_prefix, scheduler=SHORT), ServersClock())


@asynccontextmanager
async def scheduling(room: Room) -> AsyncIterator[Scheduler]:
    scheduler, stop = Scheduler(room.plane, room.store, "s1"), asyncio.Event()
    job = asyncio.create_task(scheduler.run(stop))
    await until(lambda: scheduler.leads)
    yield scheduler
    stop.set()
    await asyncio.wait_for(job, 5)


async def until(is_true: Callable[[], Awaitable[bool] | bool], within_s: float = 5) -> float:
    """How long it took."""
    began = time.monotonic()
    async with asyncio.timeout(within_s):
        while True:
            answer = is_true()
            if answer if isinstance(answer, bool) else await answer:
                return time.monotonic() - began
            await asyncio.sleep(0.005)


async def submit_many(room: Room, count: int = 20, **options: object) -> list[str]:
    """More than a submit assigns by itself."""
    return [a.id for a in await room.store.submit([room.submission("a", n, **options) for n in range(count)])]


async def test_news_are_assigned_at_once(real: Room) -> None:
    async with scheduling(real):
        worker = await real.join(capacity=50)
        for _ in range(3):
            ids = await submit_many(real)
            got: list[str] = []

            async def taken(wanted: int = len(ids), got: list[str] = got) -> bool:
                found = await worker.take(50)
                got.extend(t.id for t in found)
                if found:
                    await worker.finish([ending(t) for t in found])
                return len(got) == wanted

            assert await until(taken) < 1
            assert sorted(got) == sorted(ids)


async def test_delayed_tasks_and_retries_come_in_time(real: Room) -> None:
    async with scheduling(real):
        worker = await real.join(capacity=50)
        began = time.monotonic()
        await submit_many(real, delay_s=0.5, max_attempts=2)
        taken = await worker.take(50, wait_s=3)
        assert 0.45 < time.monotonic() - began < 1.5
        began = time.monotonic()
        await worker.finish([ending(taken[0], "RETRYING", delay_ms=300)])
        while (again := (await worker.take(50, wait_s=3))) and again[0].attempt == 1:
            pass
        assert again[0].id == taken[0].id and 0.25 < time.monotonic() - began < 1.5


async def test_periodic_and_delayed_tasks_are_punctual(redis_7: Server, key_prefix: str) -> None:
    """Measured against a clock that does nothing but wait for the same moments and ask Redis once: a busy machine makes
    all of them late."""
    link = await open_link(RedisSettings(url=redis_7.url))
    room = Room(link, Settings(key_prefix=key_prefix), ServersClock())
    async with scheduling(room):
        worker = await room.join(capacity=50)
        first = now_ms() // 200 * 200 + 400
        await ScheduleStore(room.plane).set(Schedule("s", "later", every_ms=200))
        ids = [await room.submit(delay_s=(first + 200 * k - now_ms()) / 1000) for k in range(8)]
        delayed: dict[str, int] = {}

        async def take() -> None:
            while len(delayed) < len(ids):
                for taken in await worker.take(50, wait_s=1):
                    delayed[taken.id] = now_ms() - (first + 200 * ids.index(taken.id))

        taking, plain = asyncio.create_task(take()), []
        for k in range(8):
            await asyncio.sleep((first + 200 * k - now_ms()) / 1000)
            await room.redis.ping()
            plain.append(now_ms() - (first + 200 * k))
        await asyncio.wait_for(taking, 5)
        tasks = (await room.look()).tasks
        periodic = [int(task["at"]) - int(name[2:]) for name, task in tasks.items() if name.startswith("s_")]
    await link.close()
    assert len(periodic) >= 3  # after a pause only the latest slot is fired
    for late in (sorted(periodic), sorted(delayed.values())):
        told = f"{late} beside {sorted(plain)}"
        assert -1 <= late[0] <= 100 + 2 * median(plain) and median(late) <= 100 + 4 * median(plain), told


async def test_lost_worker_is_evicted_and_its_work_goes_on(real: Room) -> None:
    async with scheduling(real):
        lost = await real.join("lost", capacity=50)
        ids = await submit_many(real)
        await until(lambda: _has(real, "worker:lost:queue"))
        await lost.take(10)
        heir = await real.join("heir", capacity=50)
        got: set[str] = set()

        async def taken() -> bool:
            await heir.beat()
            got.update(t.id for t in await heir.take(50))
            return got == set(ids)

        assert await until(taken, 8) < 4  # the lease of 1.5 s and a tick
        assert "worker:lost" not in await real.names()


async def _has(room: Room, name: str) -> bool:
    return name in await room.names()


async def test_figures_are_written_and_schedules_fired(real: Room) -> None:
    async with scheduling(real):
        await real.join(capacity=3)
        await ScheduleStore(real.plane).set(Schedule("s", "a", every_ms=200))
        await until(lambda: _has(real, "metrics:queue:length"))
        assert await real.redis.get(real.keys.metric_worker_count()) == b"1"

        async def fired() -> bool:
            return sum(i.startswith("s_") for i in (await real.look()).tasks) >= 3

        assert await until(fired) < 3


async def test_ended_tasks_are_archived(link: Link, key_prefix: str, tmp_path: Path) -> None:
    sql = await open_sql("", tmp_path)
    archive = TaskArchive(sql)
    room = Room(link, Settings(key_prefix=key_prefix), ServersClock(), archive)
    async with scheduling(room):
        worker = await room.join(capacity=50)
        ids = await submit_many(room)
        done = 0
        while done < 20:
            taken = await worker.take(50, wait_s=2)
            await worker.finish([ending(t) for t in taken])
            done += len(taken)

        async def archived() -> bool:
            return len(await archive.get_many(ids)) == 20

        await until(archived)
    await sql.close()


async def test_scheduler_that_stops_lets_the_next_one_lead_at_once(real: Room) -> None:
    other = Scheduler(real.plane, real.store, "s2")
    stop = asyncio.Event()
    async with scheduling(real) as first:
        job = asyncio.create_task(other.run(stop))
        assert first.leads and not other.leads
    assert await until(lambda: other.leads) < 1
    assert not first.leads
    stop.set()
    await job


async def test_scheduler_whose_term_was_ended_by_another_stands_again(real: Room) -> None:
    async with scheduling(real) as scheduler:
        await real.redis.incr(real.keys.epoch())  # another term began
        await until(lambda: not scheduler.leads)
        await real.redis.delete(real.keys.leader())
        await until(lambda: scheduler.leads)
        assert await real.redis.get(real.keys.epoch()) == b"3"
        worker = await real.join(capacity=50)
        await submit_many(real)
        assert await worker.take(50, wait_s=3)


async def test_sweep_bounds_dead_letters_and_forgets_old_types(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"dead_keep": 3})
    worker = await room.join("w1", ["a"])
    ids = []
    for _ in range(5):
        ids.append(await room.submit())
        (taken,) = await room.start(worker)
        await worker.finish([ending(taken, "FAILED")])
        room.clock.advance(0.01)
    seen = [room.clock.ms - 8 * DAY_MS, room.clock.ms - 6 * DAY_MS]
    types = {"old": b'{"seen_ms":%d}' % seen[0], "young": b'{"seen_ms":%d}' % seen[1], "a": b'{"seen_ms":1}'}
    await room.redis.hset(room.keys.types(), mapping=types)
    await room.redis.sadd(room.keys.worker_types(), "old")
    leader = await room.leader()
    await leader.sweep()
    look = await room.look()
    assert set(look.values["queue:dead"]) == set(ids[2:])
    assert set(look.values["task:types"]) == {"young", "a"} and look.values["worker:types"] == ["a"]
    assert all(look.status(i) == "FAILED" for i in ids), "only the list is bounded"


async def test_deposed_leader_sweeps_nothing(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"dead_keep": 0})
    await room.redis.zadd(room.keys.dead(), {"x": 1})
    old: LeaderStore = await room.lead("s1")
    await room.lead("s2")
    before = await room.look()
    try:
        await old.sweep()
    finally:
        assert (await room.look()).values == before.values


async def test_reaped_and_cancelled_attempts_wake_the_leader(room: Room) -> None:
    """Their slots are free; without news the leader would look five seconds later."""
    worker = await room.join(capacity=2)
    await room.submit(timeout_s=1)
    await room.start(worker)
    assigned = await room.submit()
    await room.redis.delete(room.keys.wake())
    await room.store.cancel([assigned])
    assert await room.redis.llen(room.keys.wake()) == 1
    await room.redis.delete(room.keys.wake())
    room.clock.advance(7)
    assert await (await room.leader()).reap("w1") == 1
    assert await room.redis.llen(room.keys.wake()) == 1


@pytest.mark.parametrize("waiting", ["high", "normal", "parked", "retry", "nothing"])
async def test_an_end_wakes_the_leader_when_something_waits_for_the_slot(room: Room, waiting: str) -> None:
    worker = await room.join(capacity=1)
    await room.submit()
    (taken,) = await room.start(worker)
    if waiting in ("high", "normal", "parked"):
        await room.submit(priority="normal" if waiting == "parked" else waiting)
    if waiting == "parked":
        await room.join("idle", ["x"])
        await room.assign()
        assert "queue:normal" not in await room.names()
    await room.redis.delete(room.keys.wake())
    is_retry = waiting == "retry"
    await worker.finish([ending(taken, "RETRYING", delay_ms=60_000) if is_retry else ending(taken)])
    assert await room.redis.llen(room.keys.wake()) == (0 if waiting == "nothing" else 1)
    round_ = await (await room.leader()).assign(10)
    assert (round_.assigned, round_.next_ms) == ((0, room.clock.ms + 60_000) if is_retry else (waiting != "nothing", 0))


async def test_plane_with_the_servers_clock_asks_it(link: Link, key_prefix: str) -> None:
    plane = Plane(link, Settings(key_prefix=key_prefix))
    seconds, _ = await link.client.time()
    assert abs(await LeaderStore(plane, "s", 1).now_ms() - seconds * 1000) < 3000


async def test_a_job_that_meets_what_nobody_expects_ends_neither_the_leader_nor_its_other_jobs(real: Room) -> None:
    begun: list[int] = []

    async def odd() -> None:
        begun.append(1)
        raise KeyError("foreign")

    scheduler, stop = Scheduler(real.plane, real.store, "s1", rooms=[lambda term: {"odd": odd}]), asyncio.Event()
    with capture_logs() as logs:
        job = asyncio.create_task(scheduler.run(stop))
        await until(lambda: len(begun) > 1)
        worker = await real.join(capacity=50)
        await submit_many(real)
        assert await worker.take(50, wait_s=3)
        assert scheduler.leadership is not None
        assert scheduler.leadership.progress.report().trouble["odd"][0] == "KeyError: 'foreign'"
        stop.set()
        await asyncio.wait_for(job, 5)
    assert [line["job"] for line in logs if line["event"] == "unexpected_error"] == ["odd"]
