"""Lists of tasks: page by page every task exactly once, wherever it stands; filters; dead letters; bad cursors."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.room import Room, ending
from tradewind.errors import Invalid
from tradewind.sql import open_sql
from tradewind.tasks.archive import Archiver
from tradewind.tasks.archive_table import TaskArchive
from tradewind.tasks.listing import Filter, TaskListing
from tradewind.tasks.record import DEAD_LETTERS, Status, Task

MANY = 2500


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[TaskArchive]:
    sql = await open_sql("", tmp_path)
    yield TaskArchive(sql)
    await sql.close()


@pytest.fixture
def kept(make_room: Callable[..., Room], archive: TaskArchive) -> Room:
    return make_room(archive)


async def submit_many(room: Room, count: int, kind: str = "a", **options: Any) -> list[str]:
    return [a.id for a in await room.store.submit([room.submission(kind, **options) for _ in range(count)])]


async def end(room: Room, statuses: list[str], **options: Any) -> list[str]:
    worker = await room.join("ender", ["ended"], capacity=1000)
    ids = await submit_many(room, len(statuses), "ended", **options)
    await room.assign(1000)
    taken = {t.id: t for t in await worker.take(1000)}
    await worker.finish([ending(taken[i], s) for i, s in zip(ids, statuses, strict=True)])
    return ids


async def walk(room: Room, limit: int = 500, **wanted: Any) -> list[Task]:
    listing, items, cursor = TaskListing(room.store), [], None
    while True:
        page = await listing.page(Filter(**wanted), cursor, limit)
        assert len(page.items) <= limit
        items += page.items
        if page.next_cursor is None:
            return items
        cursor = page.next_cursor


async def fill_every_place(room: Room, archive: TaskArchive) -> dict[str, list[str]]:
    """`MANY` tasks, some in each place where a task can stand; ids by place."""
    places = {"archived": await end(room, ["SUCCESS"] * 500 + ["DEAD"] * 50, tags=["old"])}
    while await Archiver(room.plane, archive).step():
        pass
    room.clock.advance(1)
    places["outbox"] = await end(room, ["SUCCESS"] * 100 + ["FAILED", "TIMEOUT", "CANCELLED"])
    places["parked"] = await submit_many(room, 210, "nobody") + await submit_many(room, 5, "a", labels=["gpu"])
    worker = await room.join("w1", ["a"], capacity=300, window=300)
    places["running"], places["assigned"] = await submit_many(room, 250), await submit_many(room, 300, tags=["x"])
    for _ in range(3):
        await room.assign()
    await worker.take(250)
    await room.redis.hset(room.keys.worker("hand"), mapping={"id": "hand", "capacity": 20})
    await room.redis.sadd(room.keys.worker_type("h"), "hand")
    places["by hand"] = await submit_many(room, 20, "h")
    await room.assign()
    places["delayed"] = await submit_many(room, 220, delay_s=60)
    places["high"] = await submit_many(room, 230, "b", priority="high", tags=["x"])
    places["normal"] = await submit_many(room, MANY - sum(map(len, places.values())), "b")
    places["cancelled"] = await submit_many(room, 7, "b")
    await room.store.cancel(places["cancelled"])
    return places


async def test_pages_meet_each_task_of_every_place_exactly_once(kept: Room, archive: TaskArchive) -> None:
    places = await fill_every_place(kept, archive)
    everything = sorted(i for ids in places.values() for i in ids)
    for limit in (1000, 137):
        assert sorted(t.id for t in await walk(kept, limit)) == everything
    by_status = Counter(str(t.status) for t in await walk(kept, 1000))
    assert by_status == {
        "PROCESSING": 250, "ASSIGNED": 320, "PENDING": 220, "SUCCESS": 600, "DEAD": 50, "FAILED": 1, "TIMEOUT": 1,
        "CANCELLED": 8, "QUEUED": 215 + 230 + len(places["normal"]),
    }  # fmt: skip
    live = [t.id async for t in TaskListing(kept.store).walk(Filter(statuses=frozenset({Status.QUEUED})))]
    assert sorted(live) == sorted(places["parked"] + places["high"] + places["normal"])


async def test_filters_by_status_type_and_tag(kept: Room, archive: TaskArchive) -> None:
    places = await fill_every_place(kept, archive)
    for status in Status:
        found = await walk(kept, 300, statuses=frozenset({status}))
        assert {t.status for t in found} <= {status}
        assert len(found) == len({t.id for t in found})
    assert {t.id for t in await walk(kept, 1000, tag="x")} == set(places["assigned"] + places["high"])
    assert {t.id for t in await walk(kept, 1000, tag="old")} == set(places["archived"])
    assert {t.id for t in await walk(kept, type="h")} == set(places["by hand"])
    both = frozenset({Status.QUEUED, Status.DEAD})
    assert {t.id for t in await walk(kept, statuses=both, tag="x")} == set(places["high"])
    assert await walk(kept, tag="none") == [] == await walk(kept, type="none")


async def test_places_that_come_and_go_between_two_pages_do_not_move_the_cursor(kept: Room) -> None:
    workers = [await kept.join(f"w{n}", ["z"]) for n in range(4)]
    high = await submit_many(kept, 30, "b", priority="high")
    normal = await submit_many(kept, 30, "b")
    listing = TaskListing(kept.store)
    first = await listing.page(Filter(), None, 10)
    for worker in workers[:2]:
        assert await worker.leave()
    second = await listing.page(Filter(), first.next_cursor, 10)
    for n in range(5):
        await kept.join(f"v{n}", ["z"])
    third = await listing.page(Filter(), second.next_cursor, 1000)
    met = [t.id for page in (first, second, third) for t in page.items]
    assert sorted(met) == sorted(high + normal) and third.next_cursor is None


async def test_cursor_of_a_place_that_is_gone_goes_on_with_the_next(kept: Room) -> None:
    worker = await kept.join("w1", capacity=50)
    running = await submit_many(kept, 20)
    normal = await submit_many(kept, 5, "b")
    taken = await kept.start(worker)
    listing = TaskListing(kept.store)
    page = await listing.page(Filter(), None, 10)
    assert {t.id for t in page.items} <= set(running)
    await worker.finish([ending(t) for t in taken])
    await worker.leave()
    live = frozenset({Status.QUEUED, Status.PROCESSING})
    assert {t.id for t in (await listing.page(Filter(statuses=live), page.next_cursor, 50)).items} == set(normal)


async def test_task_that_was_brought_back_is_listed_once_as_it_is_now(kept: Room, archive: TaskArchive) -> None:
    dead, ended_twice = await end(kept, ["DEAD", "FAILED"])
    while await Archiver(kept.plane, archive).step():
        pass
    listing = TaskListing(kept.store)
    assert {t.id for t in (await listing.dead()).items} == {dead, ended_twice}
    for task_id in (dead, ended_twice):
        await kept.store.retry(task_id)
    assert (await listing.dead()).items == []
    worker = await kept.join("ender", ["ended"], capacity=2)
    await kept.assign()
    taken = {t.id: t for t in await worker.take(2)}
    for status in ("FAILED", "DEAD"):
        kept.clock.advance(1)
        await worker.finish([ending(taken[ended_twice], status)])
        if status == "FAILED":
            await kept.store.retry(ended_twice)
            taken |= {t.id: t for t in await kept.start(worker)}
    assert [(t.id, t.status) for t in (await listing.dead()).items] == [(ended_twice, "DEAD")]
    assert Counter(t.id for t in await walk(kept)) == {dead: 1, ended_twice: 1}


async def test_dead_letters_with_and_without_an_archive(make_room: Callable[..., Room], archive: TaskArchive) -> None:
    statuses = [str(s) for s in DEAD_LETTERS] * 10 + ["SUCCESS", "CANCELLED"]
    for room in (make_room(tasks={"archive": False}), make_room(archive)):
        ids = []
        for status in statuses:
            room.clock.advance(1)
            ids += await end(room, [status])
        listing, met, cursor = TaskListing(room.store), list[str](), None
        while True:
            page = await listing.dead(cursor, 7)
            met += [t.id for t in page.items]
            if (cursor := page.next_cursor) is None:
                break
        assert met == ids[:30][::-1], "newest first"
        await room.store.retry(ids[0])
        assert ids[0] not in {t.id for t in (await listing.dead(None, 100)).items}
        keys = [k async for k in room.redis.scan_iter(match=f"{room.keys.p}*", count=1000)]
        await room.redis.delete(*keys)


async def test_filter_that_matches_little_ends_a_page_early_with_a_cursor(
    kept: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.tasks.listing.MAX_LOOKED_AT", 400)
    await submit_many(kept, 1500, "b")
    (wanted,) = await submit_many(kept, 1, "b", tags=["rare"], priority="normal")
    page = await TaskListing(kept.store).page(Filter(type="none"), None, 50)
    assert page.items == [] and page.next_cursor is not None
    assert [t.id for t in await walk(kept, tag="rare")] == [wanted]


def _cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "x", "%%%", "äö", "e30", _cursor("[1,2]"), _cursor('["nowhere",0,0,""]'), _cursor('["high",-1,0,""]'),
        _cursor('["archive",0,1e400,"a"]'), _cursor(f'["archive",0,{2**70},"a"]'), _cursor('["high",0,0,"",'),
        _cursor('["archive",0,1,"a\\u0000"]'), _cursor(f'["{"high" * 1000}",0,0,""]'),
    ],
)  # fmt: skip
async def test_bad_cursor_is_refused(kept: Room, cursor: str) -> None:
    for verb in (lambda: TaskListing(kept.store).page(Filter(), cursor), lambda: TaskListing(kept.store).dead(cursor)):
        with pytest.raises(Invalid) as caught:
            await verb()
        assert caught.value.problems[0].code == "bad_cursor"


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_bad_page_size_is_refused(make_room: Callable[..., Room], limit: int) -> None:
    listing = TaskListing(make_room(tasks={"archive": False}).store)
    for verb in (lambda: listing.page(Filter(), None, limit), lambda: listing.dead(None, limit)):
        with pytest.raises(Invalid):
            await verb()
