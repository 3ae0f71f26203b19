"""What a task costs in Redis, and that nothing of it stays when it is over."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import servers
from tests.tasks.room import Room, ending
from tradewind.clock import FakeClock
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.sql import open_sql
from tradewind.tasks.archive import Archiver
from tradewind.tasks.archive_table import TaskArchive
from tradewind.tasks.record import Request

MOST_FIELDS = 12


async def test_record_stays_compact_through_a_successful_life(room: Room) -> None:
    worker = await room.join()
    options = {"max_attempts": 3, "timeout_s": 60, "priority": "high", "tags": ["x"], "idempotency_key": "k"}
    plain, rich = await room.submit("a", 1), await room.submit("a", 2, delay_s=0, **options)

    async def check() -> None:
        assert await room.redis.hlen(room.keys.task(plain)) <= MOST_FIELDS, await room.fields(plain)
        for task_id in (plain, rich):
            assert await room.redis.object("ENCODING", room.keys.task(task_id)) == b"listpack"

    await check()
    await room.assign()
    await check()
    taken = await worker.take(2)
    await check()
    for t in taken:
        await worker.progress(t.id, t.token, b"0.5")
    await check()
    await worker.finish([ending(t, result=list(range(100))) for t in taken])
    await check()
    assert len(await room.fields(plain)) < len(await room.fields(rich))


async def test_queued_task_costs_at_most_400_bytes_beyond_its_payload() -> None:
    count = 20_000
    line = b'{"args":["customer-%06d@example.com","your order has left"]}'
    with servers.redis_server() as server:
        link = await open_link(RedisSettings(url=server.url))
        room = Room(link, Settings(), FakeClock())
        await room.store.submit_plain("warm_up", Request(), [b"{}"] * 10)
        before = (await room.redis.info("memory"))["used_memory"]
        for start in range(0, count, 1000):
            await room.store.submit_plain("send_email", Request(), [line % n for n in range(start, start + 1000)])
        after = (await room.redis.info("memory"))["used_memory"]
        assert await room.redis.llen(room.keys.queue("normal")) == count + 10
        await link.close()
    each = (after - before) / count - len(line % 0)
    assert each <= 400, f"{each:.0f} bytes"


async def lives(room: Room) -> None:
    """Tasks that were cached, waited for, locked, parked, cancelled, flagged, lost, retried and ended in every way."""
    worker = await room.join("w1", ["a"], capacity=50)
    other = await room.join("w2", ["z"], capacity=50)
    ids = []
    for number, status in enumerate(("SUCCESS", "FAILED", "DEAD", "TIMEOUT", "CANCELLED", "RETRYING")):
        options = {"exclusive": f"door{number}", "idempotency_key": f"k{number}", "max_attempts": 3, "timeout_s": 5}
        options["deadline"] = room.clock.ms + 9000
        task_id = await room.submit("a", number, **options)
        ids.append(task_id)
        await room.store.wait("client", [task_id])
        (taken,) = await room.start(worker)
        await room.store.view(task_id)
        await room.store.wait("client", [task_id])
        if number % 2:
            await room.store.cancel([task_id])
        await worker.finish([ending(taken, status)])
    for delay_s in (0, 60):
        ids.append(task_id := await room.submit("nobody", delay_s=delay_s, labels=["gpu"]))
        await room.store.view(task_id)
        await room.assign()
        await room.store.cancel([task_id])
    lost = await room.submit("a")
    await room.start(worker)
    await room.store.view(lost)
    await room.store.cancel([lost])
    room.clock.advance(11)
    await other.beat()
    await (await room.leader()).evict("w1")
    finder = await room.join("w3", ["nobody"], capacity=9, labels="gpu")
    await room.assign()  # meets the tombstones
    assert await finder.take(5) == []
    for task_id in (*ids, lost):
        assert (await room.store.get(task_id)).is_terminal
    await (await room.leader()).expire()
    for store in (other, finder):
        assert await store.leave()


#: What stays: counters, the list of dead letters (bounded), a token; and what the leader holds.
CONSTANT = re.compile(
    r"metrics:task:count:\w+|queue:dead|task:token|task:types|task:outbox|task:outbox:count|scheduler:\w+|ratelimit:config"
)


#: What workers offer: gone 30 s after the last of them.
OFFER = re.compile(r"task:types:\w+")


async def gone(room: Room, within_s: float = 8) -> set[str]:
    """The keys that stay, once those that expire are gone; fails when something else stays."""
    async with asyncio.timeout(within_s):
        while left := {n for n in await room.names() if not CONSTANT.fullmatch(n) and not OFFER.fullmatch(n)}:
            short = [await room.redis.pttl(room.keys.p + name) for name in left]
            lasting = {name: ms for name, ms in zip(left, short, strict=True) if not -2 <= ms <= 2000 or ms == -1}
            assert not lasting
            await asyncio.sleep(0.05)
    names = await room.names()
    offers = {name: await room.redis.pttl(room.keys.p + name) for name in names if OFFER.fullmatch(name)}
    assert all(ms == -2 or 0 < ms <= 30_000 for ms in offers.values()), offers
    return names - offers.keys()


async def test_nothing_stays_of_archived_tasks(make_room: Callable[..., Room], tmp_path: Path) -> None:
    sql = await open_sql("", tmp_path)
    archive = TaskArchive(sql)
    room = make_room(archive, tasks={"result_ttl_s": 1, "idempotency_ttl_s": 1})
    names = set()
    for _ in range(2):
        await lives(room)
        while await Archiver(room.plane, archive).step():
            pass
        names = await gone(room)
    assert "task:marked" not in names and "queue:parked" not in names
    await sql.close()


@pytest.mark.parametrize("ttl_s", [1, 0])
async def test_nothing_stays_of_tasks_without_an_archive(make_room: Callable[..., Room], ttl_s: int) -> None:
    room = make_room(tasks={"archive": False, "result_ttl_s": ttl_s, "idempotency_ttl_s": 1})
    worker = await room.join()
    for n in range(20):
        task_id = await room.submit("a", n, exclusive=f"d{n}", idempotency_key=f"k{n}")
        await room.store.wait("client", [task_id])
        (taken,) = await room.start(worker)
        await room.store.view(task_id)
        if n % 3 == 0:
            await room.store.cancel([task_id])
        await worker.finish([ending(taken, "CANCELLED" if n % 3 == 0 else "SUCCESS")])
    cancelled = await room.submit("nobody")
    await room.store.cancel([cancelled])
    await room.assign()
    assert await worker.leave()
    if ttl_s == 0:
        assert not {n for n in await room.names() if n.startswith("task:") and n.endswith(":body")}
    await gone(room)


async def test_dead_letters_without_an_archive_wait_a_week(make_room: Callable[..., Room]) -> None:
    room = make_room(tasks={"archive": False, "result_ttl_s": 0})
    worker = await room.join()
    task_id = await room.submit()
    (taken,) = await room.start(worker)
    await worker.finish([ending(taken, "FAILED")])
    for key in (room.keys.task(task_id), room.keys.body(task_id)):
        assert 7 * 86_400 - 5 < await room.redis.ttl(key) <= 7 * 86_400
