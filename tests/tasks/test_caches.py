"""`task:cache:` and `task:status:`: filled on read, gone with every transition, never older than the task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.tasks.room import Room, ending
from tradewind import codec
from tradewind.tasks.worker_store import Taken, WorkerStore

Step = Callable[[Room, WorkerStore, str], Awaitable[object]]


async def _take(room: Room, worker: WorkerStore, _: str) -> object:
    return await worker.take(5)


async def _finish(worker: WorkerStore, room: Room, task_id: str, status: str) -> None:
    (held,) = await worker.sync()
    attempt = Taken(task_id, "a", 1, held[1], 0, await room.redis.get(room.keys.body(task_id)), "", 0)
    assert await worker.finish([ending(attempt, status, delay_ms=1000)]) == [1]


def _ends(status: str) -> Step:
    async def step(room: Room, worker: WorkerStore, task_id: str) -> None:
        await _finish(worker, room, task_id, status)

    return step


async def _progress(room: Room, worker: WorkerStore, task_id: str) -> None:
    (held,) = await worker.sync()
    assert await worker.progress(task_id, held[1], b"0.5")


async def _release(room: Room, worker: WorkerStore, task_id: str) -> None:
    await worker.release([(task_id, "")], queue_too=True)


async def _evict(room: Room, worker: WorkerStore, task_id: str) -> None:
    room.clock.advance(11)
    await (await room.leader()).evict(worker.id)


async def _reap(room: Room, worker: WorkerStore, task_id: str) -> None:
    room.clock.advance(7)
    assert await (await room.leader()).reap(worker.id) == 1


async def _rejoin(room: Room, worker: WorkerStore, task_id: str) -> None:
    await room.join(worker.id)


async def _cancel(room: Room, worker: WorkerStore, task_id: str) -> None:
    await room.store.cancel([task_id])


async def _cancel_and_stop(room: Room, worker: WorkerStore, task_id: str) -> None:
    await room.store.cancel([task_id])
    await _finish(worker, room, task_id, "CANCELLED")


async def _cancel_and_lose(room: Room, worker: WorkerStore, task_id: str) -> None:
    await room.store.cancel([task_id])
    await _evict(room, worker, task_id)


async def _assign(room: Room, worker: WorkerStore, task_id: str) -> None:
    assert await room.assign() == 1


async def _promote_later(room: Room, worker: WorkerStore, task_id: str) -> None:
    room.clock.advance(3)
    await worker.beat("draining")
    await room.assign()


async def _miss_deadline(room: Room, worker: WorkerStore, task_id: str) -> None:
    room.clock.advance(9)
    await worker.beat()
    assert await room.start(worker) == []


async def _find_lock_taken(room: Room, worker: WorkerStore, task_id: str) -> None:
    await room.redis.set(room.keys.lock("door"), "somebody")
    assert await worker.take(1) == []


CASES: dict[str, tuple[str, Step, str]] = {
    "assign": ("QUEUED", _assign, "ASSIGNED"),
    "take": ("ASSIGNED", _take, "PROCESSING"),
    "progress": ("PROCESSING", _progress, "PROCESSING"),
    "success": ("PROCESSING", _ends("SUCCESS"), "SUCCESS"),
    "failure": ("PROCESSING", _ends("FAILED"), "FAILED"),
    "death": ("PROCESSING", _ends("DEAD"), "DEAD"),
    "retry of an attempt": ("PROCESSING", _ends("RETRYING"), "RETRYING"),
    "promotion": ("PENDING", _promote_later, "QUEUED"),
    "release of a running one": ("PROCESSING", _release, "QUEUED"),
    "release of an assigned one": ("ASSIGNED", _release, "QUEUED"),
    "eviction of a running one": ("PROCESSING", _evict, "QUEUED"),
    "eviction of an assigned one": ("ASSIGNED", _evict, "QUEUED"),
    "another life of the worker": ("PROCESSING", _rejoin, "QUEUED"),
    "reaping": ("PROCESSING", _reap, "RETRYING"),
    "cancel of a queued one": ("QUEUED", _cancel, "CANCELLED"),
    "cancel of a delayed one": ("PENDING", _cancel, "CANCELLED"),
    "cancel of an assigned one": ("ASSIGNED", _cancel, "CANCELLED"),
    "cancel of a running one": ("PROCESSING", _cancel_and_stop, "CANCELLED"),
    "cancel and loss of the worker": ("PROCESSING", _cancel_and_lose, "CANCELLED"),
    "deadline of a queued one": ("QUEUED", _miss_deadline, "TIMEOUT"),
    "deadline of an assigned one": ("ASSIGNED", _miss_deadline, "TIMEOUT"),
    "lock that is taken": ("ASSIGNED", _find_lock_taken, "PENDING"),
}


@pytest.mark.parametrize("case", CASES)
async def test_every_transition_empties_the_caches(room: Room, case: str) -> None:
    state, step, after = CASES[case]
    deadline = room.clock.ms + 9000 if "deadline" in case else None
    task_id = await room.submit(
        delay_s=2 if state == "PENDING" else 0, max_attempts=2, timeout_s=1, deadline=deadline,
        exclusive="door" if "lock" in case else None,
    )  # fmt: skip
    worker = await room.join()
    if state in ("ASSIGNED", "PROCESSING"):
        await room.assign()
    if state == "PROCESSING":
        await worker.take(1)
    names = [room.keys.cache(task_id), room.keys.status(task_id)]
    for _ in range(2):  # the second one is answered by the cache
        assert codec.decode(await room.store.view(task_id))["status"] == state
    text, kept = await room.redis.mget(names)
    seen = {
        **codec.decode(await room.store.view(task_id)),
        "waiting_for": None,
    }  # which is not a fact of the task alone
    assert (codec.decode(text), kept) == (seen, state.encode())
    await step(room, worker, task_id)
    assert await room.redis.exists(*names) == 0
    shown = codec.decode(await room.store.view(task_id))
    assert shown["status"] == after == (await room.redis.get(names[1])).decode()
    assert shown["progress"] == (0.5 if case == "progress" else None)


async def test_bringing_a_task_back_empties_the_caches(room: Room) -> None:
    task_id = await room.submit()
    await room.store.cancel([task_id])
    await room.store.view(task_id)
    await room.store.retry(task_id)
    assert codec.decode(await room.store.view(task_id))["status"] == "QUEUED"


async def test_reader_that_was_overtaken_fills_nothing(room: Room) -> None:
    """It read QUEUED; before its cache arrives the task has moved on, even to the same state under another token."""
    worker = await room.join()
    task_id = await room.submit()
    names = [room.keys.task(task_id), room.keys.cache(task_id), room.keys.status(task_id), room.keys.marked()]
    assert await room.plane.scripts.run("task_cache", names, ["QUEUED", "", b"{}", 300_000, task_id]) == 0
    (first,) = await room.start(worker)
    await worker.release([(task_id, first.token)], queue_too=False)
    (second,) = await room.start(worker)
    args = ["PROCESSING", first.token, b"{}", 300_000, task_id]
    assert await room.plane.scripts.run("task_cache", names, args) == 0
    assert await room.plane.scripts.run("task_cache", names, [args[0], second.token, *args[2:]]) == 1
