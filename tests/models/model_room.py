"""The models' part of a station on any Redis, with a key prefix of its own: board, store, engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tradewind.clock import Clock, FakeClock
from tradewind.models.engine import ModelEngine
from tradewind.models.store import ModelStore
from tradewind.points.board import Batch, Board
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link
from tradewind.settings import Settings

#: Short leases, so that a takeover is seen soon.
LEASES = {"leader_ttl_s": 1.5, "renew_s": 0.4}


def settings_of(prefix: str, ttl_days: int = 0, **points: Any) -> Settings:
    groups = {"scheduler": LEASES, "points": points, "models": {"output_ttl_days": ttl_days}}
    return Settings.model_validate({"key_prefix": prefix, **groups})


class ModelRoom:
    def __init__(self, link: Link, prefix: str, clock: Clock | None = None, **points: Any) -> None:
        self.clock = clock or FakeClock()
        self.link = link
        self.plane = PointPlane(link, settings_of(prefix, **points), self.clock)
        self.board = Board(self.plane)
        self.keys = self.plane.keys
        self.store = ModelStore(link, self.keys)

    @asynccontextmanager
    async def engine(self, engine_id: str = "") -> AsyncIterator[ModelEngine]:
        """An engine of its own, leading unless another one does."""
        engine = ModelEngine(self.plane, Board(self.plane), ModelStore(self.link, self.keys), engine_id=engine_id)
        stop = asyncio.Event()
        task = asyncio.create_task(engine.run(stop), name="engine")
        try:
            yield engine
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)

    async def write(self, ts_ms: int, values: dict[str, float], channel: str = "1001", **quality: str) -> None:
        words = {name.lstrip("_"): word for name, word in quality.items()}
        await self.board.write([Batch.of_channel(channel, "m", values, ts_ms, words)])

    async def values(self, model: str, side: int = 0) -> dict[str, str]:
        """What a bare client sees: the values (0), times (1) or qualities (2) of a model."""
        keys = self.keys
        name = (keys.model_values, keys.model_ts, keys.model_quality)[side](model, "measurement")
        found = await self.plane.redis.hgetall(name)
        return {field.decode(): text.decode() for field, text in found.items()}

    async def becomes(self, model: str, expected: dict[str, str], side: int = 0) -> None:
        async def is_so() -> bool:
            return await self.values(model, side) == expected

        try:
            await until(is_so)
        except TimeoutError:
            raise AssertionError(f"{await self.values(model, side)} instead of {expected}") from None

    async def states(self) -> dict[str, bytes]:
        return {k.decode(): v for k, v in (await self.plane.redis.hgetall(self.keys.model_states())).items()}

    async def is_caught_up(self) -> bool:
        """The engine has stored its cursor behind everything that channels wrote (not in a cluster)."""
        last = await self.plane.redis.xrevrange(self.keys.feed(), count=1)
        cursor = await self.plane.redis.hget(self.keys.feed_cursors(), "modsrv")
        return bool(last) and cursor == last[0][0]


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 15.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 - the change happens in a server
            await asyncio.sleep(0.02)
