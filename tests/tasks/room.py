"""The task room by hand: every verb of callers, leader and workers with a fake clock, one call at a time."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from tests.tasks.standing import Standing, read_standing
from tradewind import codec
from tradewind.clock import FakeClock
from tradewind.redis.connection import Link, open_link
from tradewind.settings import RedisSettings, Settings
from tradewind.tasks.archive_table import TaskArchive
from tradewind.tasks.check import check_tasks
from tradewind.tasks.control import TaskControl
from tradewind.tasks.function import Signature
from tradewind.tasks.leader_store import LeaderStore
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import Status, Submission
from tradewind.tasks.store import TaskStore
from tradewind.tasks.worker_store import Ending, Taken, WorkerStore

ANYTHING = Signature(var_args=True, var_kwargs=True)


class Room:
    def __init__(self, link: Link, settings: Settings, clock: FakeClock, archive: TaskArchive | None = None) -> None:
        self.clock = clock
        self.plane = Plane(link, settings, clock)
        self.keys, self.redis = self.plane.keys, self.plane.redis
        self.store, self.control = TaskStore(self.plane, archive), TaskControl(self.plane)
        self._leader: LeaderStore | None = None

    def submission(self, kind: str = "a", *args: Any, **options: Any) -> Submission:
        raw = {"type": kind, "args": list(args), **options}
        most = self.plane.settings.max_payload_bytes
        return check_tasks([raw], {kind: ANYTHING}, now_ms=self.clock.ms, max_payload=most, single=True)[0]

    async def submit(self, kind: str = "a", *args: Any, **options: Any) -> str:
        return (await self.store.submit([self.submission(kind, *args, **options)]))[0].id

    async def lead(self, name: str = "s1") -> LeaderStore:
        """Make `name` the leader, whoever leads now."""
        await self.redis.delete(self.keys.leader())
        fence = [self.keys.leader(), self.keys.epoch()]
        epoch = await self.plane.scripts.run("leader_acquire", fence, [name, 10_000])
        self._leader = LeaderStore(self.plane, name, epoch)
        return self._leader

    async def leader(self) -> LeaderStore:
        return self._leader or await self.lead()

    async def join(
        self, worker_id: str = "w1", kinds: Iterable[str] = ("a",), *, capacity: int = 10, **fields: Any
    ) -> WorkerStore:
        store = WorkerStore(self.plane, worker_id, secrets.token_hex(4))
        record = {"capacity": capacity, "status": "active", "pull": "1", **fields}
        await store.register(record, {kind: b"{}" for kind in kinds})
        return store

    async def assign(self, limit: int = 500) -> int:
        return (await (await self.leader()).assign(limit)).assigned

    async def start(self, worker: WorkerStore, many: int = 100) -> list[Taken]:
        await self.assign()
        return await worker.take(many)

    async def status(self, task_id: str) -> str:
        return str((await self.store.get(task_id)).status)

    async def fields(self, task_id: str) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in (await self.redis.hgetall(self.keys.task(task_id))).items()}

    async def look(self) -> Standing:
        return await read_standing(self.plane)

    async def names(self) -> set[str]:
        """Every key there is, without the prefix."""
        return set((await self.look()).values)


@contextlib.asynccontextmanager
async def limited(room: Room, rights: Sequence[str]) -> AsyncIterator[Room]:
    """The same room for a user that may touch only some of its keys: the server refuses what it asks of the others."""
    link, user = room.plane.link, f"u{secrets.token_hex(4)}"
    await room.redis.execute_command("ACL", "SETUSER", user, "on", ">x", "+@all", "&*", *rights)
    node, port = link.target.nodes[0]
    other = await open_link(RedisSettings(url=f"redis://{user}:x@{node}:{port}/0", max_retries=0))
    try:
        yield Room(other, room.plane.all_settings, room.clock)
    finally:
        await other.close()
        await room.redis.execute_command("ACL", "DELUSER", user)


def ending(taken: Taken, status: str = "SUCCESS", result: Any = None, delay_ms: int = 0) -> Ending:
    outcome = {"result": result} if status == "SUCCESS" else {"error": {"type": "E", "message": "it failed"}}
    line = codec.encode(outcome)
    return Ending(taken.id, taken.token, taken.type, Status(status), taken.request, line, delay_ms, "E: it failed")
