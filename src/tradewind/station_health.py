"""How a station is: each of its parts with its state, as health checks, the page and `tradewind status` show it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import tradewind
from tradewind import clock
from tradewind.errors import TradewindError
from tradewind.redis.connection import ServerFacts, translated
from tradewind.tasks.control import TaskControl
from tradewind.tasks.plane import Plane

if TYPE_CHECKING:
    from tradewind.sql import Sql

#: A role → whether it is well (None: nobody needs it), and what is to be said of it.
Look = Callable[[], Awaitable[Mapping[str, tuple[bool | None, str]]]]


class StationHealth:
    """`looks`: of the rooms that know more of their roles than that they run."""

    def __init__(
        self, plane: Plane, facts: ServerFacts, sql: Sql | None, control: TaskControl, looks: list[Look]
    ) -> None:
        self._plane = plane
        self._facts = facts
        self._sql = sql
        self._control = control
        self._looks = looks

    async def look(self) -> dict[str, Any]:
        """Each part with its state; `down` when Redis is away, `degraded` when anything else is."""
        parts = {"redis": await self._redis_health(), "sql": await self._sql_health()}
        if self._plane.all_settings.signals.transport == "amqp":
            parts["broker"] = await self._broker_health()
        if parts["redis"]["status"] == "ok":
            leader = await self._control.leader()
            parts["scheduler"] = _part(leader is not None, f"leader {leader}" if leader else "no scheduler leads")
            workers = await self._control.workers()
            active = [w for w in workers if w.status == "active"]
            parts["worker"] = _part(bool(active), f"{len(active)} active of {len(workers)}")
            for look in self._looks:
                for role, (is_ok, detail) in (await look()).items():
                    parts[role] = {"status": "off", "detail": detail} if is_ok is None else _part(is_ok, detail)
        else:
            parts["scheduler"] = parts["worker"] = {"status": "unknown", "detail": "Redis is away"}
        parts["api"] = _part(True, f"version {tradewind.__version__}")
        status = "ok"
        if any(part["status"] not in ("ok", "off") for part in parts.values()):
            status = "degraded"
        if parts["redis"]["status"] != "ok":
            status = "down"
        return {"status": status, "version": tradewind.__version__, "at": clock.iso(clock.now_ms()), "parts": parts}

    async def _redis_health(self) -> dict[str, str]:
        try:
            async with asyncio.timeout(3):
                await self._plane.link.wait_ready(1)
        except (TradewindError, TimeoutError) as error:
            return _part(False, str(error) or "no answer within 3 s")
        facts = self._facts
        return _part(True, "; ".join([f"{facts.name} {facts.version}", *facts.warnings]))

    async def _broker_health(self) -> dict[str, str]:
        """Looked at through what waits for it: a process without its own connection sees that, too."""
        keys, now = self._plane.keys, self._plane.clock.now_ms()
        try:
            async with asyncio.timeout(3):
                with translated():
                    waiting = await self._plane.redis.zcount(keys.flows_held(), "-inf", now - 3000)
                    waiting += await self._plane.redis.zcount(keys.flows_unsent(), "-inf", now - 5000)
        except (TradewindError, TimeoutError) as error:
            return _part(False, str(error) or "no answer within 3 s")
        return _part(not waiting, f"{waiting} cycles wait for it" if waiting else "RabbitMQ")

    async def _sql_health(self) -> dict[str, str]:
        if self._sql is None:
            return {"status": "off", "detail": "tasks.archive is off"}
        try:
            async with asyncio.timeout(3):
                await self._sql.ping()
        except (TradewindError, TimeoutError) as error:
            return _part(False, str(error) or "no answer within 3 s")
        return _part(True, self._sql.dialect)


def _part(is_ok: bool, detail: str) -> dict[str, str]:
    return {"status": "ok" if is_ok else "down", "detail": detail}
