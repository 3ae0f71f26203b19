"""How a station is: each of its parts with its state, as health checks, the page and `tradewind status` show it.

Every part is asked by itself. One that cannot be asked is `unknown`, with the reason; it is never shown as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

import tradewind
from tradewind import clock
from tradewind.errors import TradewindError
from tradewind.health_part import Part
from tradewind.redis.connection import ServerFacts, translated
from tradewind.station_parts import leading, missing
from tradewind.tasks.control import TaskControl
from tradewind.tasks.plane import Plane
from tradewind.tasks.progress import read_report

if TYPE_CHECKING:
    from tradewind.sql import Sql

#: Of a room that knows more of its roles: each part with how it is. Raises what stands in the way.
Look = Callable[[], Awaitable[Mapping[str, Part]]]
#: How long one part may take to answer.
PATIENCE_S = 3.0
#: A tiny write is tried at most so often.
PROBE_S = 5.0
#: What waits longer than this in Redis for SQL is late.
LATE_MS = 30_000
#: What a key of another type, or the record of a stranger, leads to.
UNREADABLE = (RedisError, ValueError, TypeError, LookupError, AttributeError)


class StationHealth:
    """`looks`: of the rooms, under the names of the parts that each of them answers for."""

    def __init__(
        self,
        plane: Plane,
        facts: ServerFacts,
        sql: Sql | None,
        control: TaskControl,
        looks: Mapping[tuple[str, ...], Look],
    ) -> None:
        self._plane = plane
        self._facts = facts
        self._sql = sql
        self._control = control
        self._probe_redis = Remembered(self._write_to_redis)
        self._probe_sql = Remembered(sql.probe) if sql is not None else None
        self._looks: dict[tuple[str, ...], Look] = {("sql",): self._sql_health}
        if plane.all_settings.signals.transport == "amqp":
            self._looks["broker",] = self._broker_health
        self._looks |= {("scheduler",): self._scheduler_health, ("worker",): self._worker_health, **looks}

    async def look(self) -> dict[str, Any]:
        """Each part with its state; `down` when Redis is away, `degraded` when anything else is not well."""
        redis = await self._redis_health()
        parts = {"redis": redis}
        is_away = redis.status == "down"
        needs_no_redis = {("sql",), ("store",)}
        asked = [(names, look) for names, look in self._looks.items() if not is_away or names in needs_no_redis]
        for found in await asyncio.gather(*(_ask(names, look) for names, look in asked)):
            parts |= found
        for names in self._looks:
            for name in names:
                parts.setdefault(name, Part("unknown", "not known while Redis is away"))
        parts["api"] = Part("ok", f"version {tradewind.__version__}")
        status = "ok" if all(part.status in ("ok", "off") for part in parts.values()) else "degraded"
        return {
            "status": "down" if is_away else status,
            "version": tradewind.__version__,
            "at": clock.iso(clock.now_ms()),
            "parts": {name: part.view() for name, part in parts.items()},
        }

    async def _redis_health(self) -> Part:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._plane.link.wait_ready(1)
        except (TradewindError, TimeoutError) as error:
            if not (isinstance(error, TradewindError) and error.code == "redis_disk"):  # that one is told below
                return Part("down", str(error) or f"no answer within {PATIENCE_S:g} s")
        facts = self._facts
        known = "; ".join([f"{facts.name} {facts.version}", *facts.warnings])
        try:
            async with asyncio.timeout(PATIENCE_S):
                trouble = await self._probe_redis()
        except (TradewindError, TimeoutError) as error:
            return Part("unknown", f"{known}; whether it takes writes is not known: {str(error) or 'no answer'}")
        if trouble is not None:
            return Part("degraded", f"{known}; it refuses writes: {trouble.message}", trouble.hint)
        return Part("ok", known)

    async def _write_to_redis(self) -> None:
        """A write, and what the server says of its files. Raises TradewindError when it takes none."""
        with translated(self._plane.link):
            await self._plane.redis.set(self._plane.keys.health_probe(), str(self._plane.clock.now_ms()), px=60_000)

    async def _sql_health(self) -> dict[str, Part]:
        """Whether it takes writes, and whether what is to be stored gets there: another process may store it."""
        if self._sql is None or self._probe_sql is None:
            return {"sql": Part("off", "this process uses none: tasks.archive is off, or its role needs none")}
        trouble = await self._probe_sql()
        if trouble is not None:
            return {"sql": Part("down", f"{self._sql.dialect}: {trouble.message}", trouble.hint)}
        late = await self._late()
        if late:
            hint = "does the scheduler run, and alarmsrv? their parts here and their logs say what stops them"
            return {"sql": Part("degraded", f"{self._sql.dialect}; {late}", hint)}
        return {"sql": Part("ok", self._sql.dialect)}

    async def _late(self) -> str:
        """What has waited in Redis for too long to be stored, in words."""
        keys, now = self._plane.keys, self._plane.clock.now_ms()
        streams = {"ended tasks": keys.outbox(), "records of flows": keys.flow_outbox()}
        with translated(self._plane.link):
            pipe = self._plane.redis.pipeline(transaction=False)
            for key in streams.values():
                pipe.xrange(key, count=1)
            firsts = await pipe.execute()
        late = []
        for what, first in zip(streams, firsts, strict=True):
            since_ms = int(first[0][0].split(b"-")[0]) if first else now
            if now - since_ms > LATE_MS:
                late.append(f"{what} wait to be stored since {clock.iso(since_ms)}")
        return "; ".join(late)

    async def _scheduler_health(self) -> dict[str, Part]:
        keys, redis = self._plane.keys, self._plane.redis
        with translated(self._plane.link):
            leader, report = await redis.mget(keys.leader(), keys.progress(keys.leader()))
        if leader is None:
            return {"scheduler": missing("scheduler", "no scheduler leads")}
        return {"scheduler": leading(leader.decode(), "", read_report(report), clock.now_ms())}

    async def _worker_health(self) -> dict[str, Part]:
        workers = await self._control.workers()
        active = [w for w in workers if w.status == "active"]
        said = f"{len(active)} active of {len(workers)}"
        return {"worker": Part("ok", said) if active else missing("worker", said)}

    async def _broker_health(self) -> dict[str, Part]:
        """Looked at through what waits for it: a process without its own connection sees that, too."""
        keys, now = self._plane.keys, self._plane.clock.now_ms()
        with translated(self._plane.link):
            waiting = await self._plane.redis.zcount(keys.flows_held(), "-inf", now - 3000)
            waiting += await self._plane.redis.zcount(keys.flows_unsent(), "-inf", now - 5000)
        return {"broker": Part("down", f"{waiting} cycles wait for it") if waiting else Part("ok", "RabbitMQ")}


class Remembered:
    """A probe whose outcome counts for a while: None when it went well, else what it met."""

    def __init__(self, probe: Callable[[], Awaitable[None]]) -> None:
        self._probe = probe
        self._lock = asyncio.Lock()
        self._at = float("-inf")
        self._trouble: TradewindError | None = None

    async def __call__(self) -> TradewindError | None:
        async with self._lock:
            if time.monotonic() - self._at >= PROBE_S or self._trouble is not None:
                try:
                    await self._probe()
                    self._trouble = None
                except TradewindError as error:
                    self._trouble = error
                self._at = time.monotonic()
            return self._trouble


async def _ask(names: tuple[str, ...], look: Look) -> dict[str, Part]:
    """What a room says of its parts; `unknown` for those that it says nothing of."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = dict(await look())
        reason, hint = "nothing was said of it", ""
    except TimeoutError:
        found, reason, hint = {}, f"no answer within {PATIENCE_S:g} s", ""
    except TradewindError as error:
        found, reason, hint = {}, error.message, error.hint
    except UNREADABLE as error:
        found, reason = {}, f"what is stored cannot be read: {error}"
        hint = "a key of another type, or a record that somebody else wrote: `tradewind doctor`"
    return {name: Part("unknown", reason, hint) for name in names} | found
