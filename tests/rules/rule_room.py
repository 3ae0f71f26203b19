"""The rules' part of a station on any Redis, with a key prefix of its own: board, store, engines, actions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tradewind.clock import Clock, FakeClock
from tradewind.models.store import ModelStore
from tradewind.points.board import Batch, Board
from tradewind.points.channel_store import ChannelStore
from tradewind.points.commands import Commands
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link
from tradewind.rules.actions import ActionRunner
from tradewind.rules.engine import RuleEngine
from tradewind.rules.store import RuleStore
from tradewind.settings import Settings
from tradewind.tasks.gate import RedisGate
from tradewind.tasks.plane import Plane

#: Short leases, so that a takeover is seen soon.
LEASES = {"leader_ttl_s": 1.5, "renew_s": 0.4}
#: 2024-01-01T10:00:00Z, the time of the seed's examples.
SEED_MS = 1_704_103_200_000
SOURCE = "comsrv:1001:m:10001"


def settings_of(prefix: str, **groups: Any) -> Settings:
    return Settings.model_validate({"key_prefix": prefix, "scheduler": LEASES, **groups})


def seed_rule(**more: Any) -> dict[str, Any]:
    """The example of seed 3.4.2."""
    return {
        "id": "rule_temperature_monitor",
        "name": "温度监控规则",
        "description": "监控设备温度超过阈值",
        "group_id": "group_temperature",
        "enabled": True,
        "priority": 5,
        "conditions": [{"field": "temperature", "operator": ">", "value": "75.0", "source": SOURCE}],
        "actions": [{"type": "create_alarm", "parameters": {"level": "Critical", "title": "温度告警"}}],
        "created_at": "2024-01-01T10:00:00Z",
        "updated_at": "2024-01-01T10:00:00Z",
        **more,
    }


def rule(rule_id: str = "hot", point: str = "1", limit: float = 75.0, **more: Any) -> dict[str, Any]:
    """Raises an alarm while the point is above the limit."""
    document: dict[str, Any] = {
        "id": rule_id,
        "conditions": [{"field": "t", "operator": ">", "value": limit, "source": f"comsrv:1001:m:{point}"}],
        "actions": [{"type": "create_alarm", "parameters": {"level": "High", "title": f"{rule_id} is hot"}}],
    }
    return {**document, **more}


class RuleRoom:
    def __init__(self, link: Link, prefix: str, clock: Clock | None = None, **groups: Any) -> None:
        self.clock = clock or FakeClock(SEED_MS)
        self.link = link
        self.settings = settings_of(prefix, **groups)
        self.plane = PointPlane(link, self.settings, self.clock)
        self.board = Board(self.plane)
        self.keys = self.plane.keys
        self.channels = ChannelStore(link, self.keys)
        self.models = ModelStore(link, self.keys)
        self.commands = Commands(self.plane, self.board, self.channels, self.models.find_control)
        self.store = RuleStore(link, self.keys, self.settings, self.clock)
        self.history = self.store.history

    @asynccontextmanager
    async def engine(self, engine_id: str = "", **options: Any) -> AsyncIterator[RuleEngine]:
        """An engine of its own with its actions, leading unless another one does."""
        gate = RedisGate(self.settings, Plane(self.link, self.settings, self.clock))
        await gate.open()
        runner = ActionRunner(self.plane, self.commands, self.models, gate)
        store = RuleStore(self.link, self.keys, self.settings, self.clock)
        engine = RuleEngine(self.plane, store, runner, engine_id=engine_id, **options)
        stop = asyncio.Event()
        task = asyncio.create_task(engine.run(stop), name="engine")
        try:
            yield engine
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)
            await gate.close()

    @asynccontextmanager
    async def leading(self, **options: Any) -> AsyncIterator[RuleEngine]:
        """As `engine`, once it judges."""
        async with self.engine(**options) as engine:
            await until(lambda: leads(engine))
            yield engine

    async def write(self, ts_ms: int, values: dict[str, float], channel: str = "1001", **quality: str) -> None:
        words = {name.lstrip("_"): word for name, word in quality.items()}
        await self.board.write([Batch.of_channel(channel, "m", values, ts_ms, words)])

    async def show(self, value: float, after_s: float = 0.0, point: str = "1") -> None:
        """A value as of now, for a clock that the test turns."""
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(after_s)
        await self.write(self.clock.ms, {point: value})

    async def alarms(self) -> list[dict[str, str]]:
        """All records as a bare client sees them, oldest first."""
        names = [key async for key in self.link.client.scan_iter(match=f"{self.keys.alarm('alarm_')}*", count=1000)]
        rows = [await self.plane.redis.hgetall(name) for name in names]
        found = [{k.decode(): v.decode() for k, v in row.items()} for row in rows]
        return sorted(found, key=lambda row: (row["first_seen"], row["id"]))

    async def statuses(self) -> list[str]:
        return [alarm["status"] for alarm in await self.alarms()]

    async def alarms_become(self, *statuses: str, timeout_s: float = 15.0) -> list[dict[str, str]]:
        async def is_so() -> bool:
            return sorted(await self.statuses()) == sorted(statuses)

        try:
            await until(is_so, timeout_s)
        except TimeoutError:
            raise AssertionError(f"{await self.statuses()} instead of {list(statuses)}") from None
        return await self.alarms()

    async def told(self, rule_id: str, count: int) -> list[dict[str, Any]]:
        """The executions, oldest first, once there are so many; as JSON."""

        async def is_so() -> bool:
            return int(await self.plane.redis.llen(self.keys.rule_history(rule_id))) >= count

        await until(is_so)
        rows = await self.plane.redis.lrange(self.keys.rule_history(rule_id), 0, -1)
        assert len(rows) == count, rows
        return [json.loads(row) for row in reversed(rows)]

    async def states(self) -> dict[str, Any]:
        stored = await self.plane.redis.hgetall(self.keys.rule_states())
        return {name.decode(): msgspec.msgpack.decode(data) for name, data in stored.items()}

    async def is_caught_up(self) -> bool:
        """The engine has stored its cursor behind everything that channels wrote (not in a cluster)."""
        last = await self.plane.redis.xrevrange(self.keys.feed(), count=1)
        cursor = await self.plane.redis.hget(self.keys.feed_cursors(), "rulesrv")
        return bool(last) and cursor == last[0][0]


async def leads(engine: RuleEngine) -> bool:
    return engine.is_leading and engine.stats.rounds > 0


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 15.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 - the change happens in a server
            await asyncio.sleep(0.01)
