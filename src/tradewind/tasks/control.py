"""Queues, types, workers and limits as operators see and steer them. Callers: the API and the CLI."""

from __future__ import annotations

import contextlib

import msgspec

from tradewind.clock import iso
from tradewind.errors import Invalid, NotFound, Problem
from tradewind.ids import is_id
from tradewind.numerals import stored_whole
from tradewind.redis.connection import translated
from tradewind.redis.faults import other_types
from tradewind.tasks.check import offered
from tradewind.tasks.function import Signature
from tradewind.tasks.offers import Offers
from tradewind.tasks.plane import Plane
from tradewind.tasks.record import TERMINAL

QUEUES = ("high", "normal")


class Queue(msgspec.Struct, frozen=True):
    """`length` counts waiting tasks: in the list itself plus those parked because their type cannot run now."""

    name: str
    length: int
    parked: int = 0
    is_paused: bool = False


class RateLimit(msgspec.Struct, frozen=True):
    """At most `limit` tasks of `type` start in any `window_s` seconds; `used` started in the running window."""

    type: str
    limit: int
    window_s: int = 1
    used: int = 0


class Worker(msgspec.Struct, frozen=True):
    id: str
    name: str
    status: str
    capacity: int
    queued: int
    running: int
    types: list[str]
    labels: list[str]
    address: str
    last_heartbeat: str
    started_at: str | None = None

    @property
    def load(self) -> int:
        return self.queued + self.running


class TaskControl:
    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.offers = Offers(plane)

    async def queues(self) -> list[Queue]:
        """high, normal, delayed, dead, and `type:{type}` for each paused type."""
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            pipe = client.pipeline(transaction=False)
            for name in QUEUES:
                pipe.llen(keys.queue(name))
            pipe.zcard(keys.delayed())
            pipe.zcard(keys.dead())
            pipe.smembers(keys.paused())
            pipe.smembers(keys.parked())
            high, normal, delayed, dead, paused, places = await pipe.execute()
            parked = {"high": 0, "normal": 0}
            if places:
                pipe = client.pipeline(transaction=False)
                order = sorted(p.decode(errors="replace") for p in places if p.startswith((b"high:", b"normal:")))
                for place in order:
                    pipe.llen(keys.parking(*place.split(":", 1)))
                for place, length in zip(order, await pipe.execute(), strict=True):
                    parked[place.split(":", 1)[0]] += length
        held = {p.decode(errors="replace") for p in paused}
        return [
            Queue("high", high + parked["high"], parked["high"], "high" in held),
            Queue("normal", normal + parked["normal"], parked["normal"], "normal" in held),
            Queue("delayed", delayed),
            Queue("dead", dead),
            *(Queue(name, 0, 0, True) for name in sorted(held - set(QUEUES))),
        ]

    async def pause(self, name: str) -> None:
        """Stop assigning from a queue (`high`, `normal`) or of a type (`type:{type}`); what runs goes on."""
        with translated():
            await self.plane.redis.sadd(self.plane.keys.paused(), _pausable(name))

    async def resume(self, name: str) -> None:
        with translated():
            await self.plane.redis.srem(self.plane.keys.paused(), _pausable(name))
            await self._wake()

    async def rate_limits(self) -> list[RateLimit]:
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            config = await client.hgetall(keys.rate_config())
            now_s = self.plane.clock.now_ms() // 1000
            limits = []
            for name, value in sorted(config.items()):
                limit, _, window_ms = value.partition(b":")
                window_s = stored_whole(window_ms) // 1000
                if window_s <= 0:
                    continue  # nobody can read it
                task_type = name.decode(errors="replace")
                used = await client.get(keys.rate_window(task_type, now_s // window_s * window_s))
                limits.append(RateLimit(task_type, stored_whole(limit), window_s, stored_whole(used)))
        return limits

    async def set_rate_limit(self, task_type: str, limit: int, window_s: int = 1) -> RateLimit:
        problems = []
        if not is_id(task_type):
            problems.append(Problem("bad_type", "type", "letters, digits, _ and -, at most 64 characters"))
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 10_000_000:
            problems.append(Problem("out_of_range", "limit", "give a whole number from 1 to 10000000"))
        if isinstance(window_s, bool) or not isinstance(window_s, int) or not 1 <= window_s <= 86_400:
            problems.append(Problem("out_of_range", "window_s", "give whole seconds from 1 to 86400"))
        if problems:
            raise Invalid("the rate limit is not valid", hint="see problems", problems=problems)
        with translated():
            await self.plane.redis.hset(self.plane.keys.rate_config(), task_type, f"{limit}:{window_s * 1000}")
            await self._wake()
        return RateLimit(task_type, limit, window_s)

    async def remove_rate_limit(self, task_type: str) -> None:
        with translated():
            removed = await self.plane.redis.hdel(self.plane.keys.rate_config(), task_type)
            await self._wake()
        if not removed:
            raise NotFound(
                f"there is no rate limit for {task_type!r}", code="rate_limit_not_found", hint="see rate-limits"
            )

    async def workers(self) -> list[Worker]:
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            ids = {i.decode(errors="replace") for i in await client.zrange(keys.workers(), 0, -1)}
            types = await client.smembers(keys.worker_types())
            if types:
                members = await client.sunion([keys.worker_type(t.decode(errors="replace")) for t in types])
                ids |= {m.decode(errors="replace") for m in members}
            found = []
            for worker_id in sorted(ids):
                pipe = client.pipeline(transaction=False)
                pipe.hgetall(keys.worker(worker_id))
                pipe.llen(keys.worker_queue(worker_id))
                pipe.zcard(keys.worker_inflight(worker_id))
                fields, queued, running = other_types(await pipe.execute(raise_on_error=False))
                if fields and isinstance(fields, dict):
                    found.append(
                        _worker(
                            worker_id,
                            {k.decode(errors="replace"): v.decode(errors="replace") for k, v in fields.items()},
                            queued if isinstance(queued, int) else 0,
                            running if isinstance(running, int) else 0,
                        )
                    )
        return found

    async def types(self) -> dict[str, Signature]:
        """Every task type that live workers offer, with all their signatures; one registered by hand, or whose workers
        have left within 7 days, accepts any arguments."""
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            pipe = client.pipeline(transaction=False)
            pipe.hgetall(keys.types())
            pipe.smembers(keys.worker_types())
            remembered, served = await pipe.execute()
        return offered(await self.offers.read(), remembered, [name.decode(errors="replace") for name in served])

    async def has_type(self, task_type: str) -> bool:
        """Also true for a type whose workers were registered by hand, as in the seed; the leader then learns of it."""
        keys, client = self.plane.keys, self.plane.redis
        with translated():
            is_served = bool(await client.exists(keys.worker_type(task_type)))
            if is_served:
                await client.sadd(keys.worker_types(), task_type)
        return is_served

    async def _wake(self) -> None:
        pipe = self.plane.redis.pipeline(transaction=True)
        pipe.lpush(self.plane.keys.wake(), "1")
        pipe.ltrim(self.plane.keys.wake(), 0, 0)
        await pipe.execute()

    async def counts(self) -> dict[str, int]:
        """How many tasks ever ended in each state, and `submitted` and `retrying`."""
        names = [*(str(s) for s in sorted(TERMINAL)), "submitted", "retrying"]
        with translated():
            values = await self.plane.redis.mget([self.plane.keys.metric_task_count(n.lower()) for n in names])
        return {name: stored_whole(value) for name, value in zip(names, values, strict=True)}

    async def leader(self) -> str | None:
        with translated():
            value = await self.plane.redis.get(self.plane.keys.leader())
        return value.decode(errors="replace") if value else None


def _pausable(name: str) -> str:
    if name in QUEUES or (name.startswith("type:") and is_id(name[5:])):
        return name
    raise NotFound(f"there is no queue {name!r}", code="queue_not_found", hint="use high, normal or type:NAME")


def _worker(worker_id: str, f: dict[str, str], queued: int, running: int) -> Worker:
    """The record as it stands; what somebody has written by hand and makes no sense counts as absent."""

    def names(*fields: str) -> list[str]:
        for field in fields:
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.json.decode(f.get(field, ""), type=list[str])
        return []

    def number(field: str) -> float:
        try:
            return min(max(0.0, float(f.get(field, 0))), 1e12)  # in this order a NaN counts as 0
        except ValueError:
            return 0

    def when(seconds: float) -> str | None:
        return iso(int(seconds * 1000)) if 0 < seconds < 1e11 else None

    return Worker(
        id=worker_id,
        name=f.get("name", worker_id),
        status=f.get("status", "active"),
        capacity=int(number("capacity")),
        queued=queued,
        running=running,
        types=names("supported_types", "supported_nodes"),
        labels=[w for w in f.get("labels", "").split(",") if w],
        address=f.get("address") or f.get("api_url", ""),
        last_heartbeat=when(number("last_heartbeat")) or "",
        started_at=when(number("started_ms") / 1000),
    )
