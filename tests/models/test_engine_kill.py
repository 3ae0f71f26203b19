"""kill -9 of the engine at any moment: counters are exact in the end, outputs and memory fit together."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tests import servers
from tests.models.examples import energy, total
from tests.models.model_room import ModelRoom, until
from tradewind.clock import Clock, now_ms
from tradewind.redis.connection import open_link
from tradewind.settings import RedisSettings

STEP_MS = 1000
SAMPLES = 400


@contextmanager
def engine_process(url: str, prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "tests.models.engine_process", url, prefix]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, preexec_fn=servers.die_with_parent)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_killed_again_and_again_the_engine_counts_every_sample_once(
    redis_7: servers.Server, key_prefix: str
) -> None:
    link = await open_link(RedisSettings(url=redis_7.url))
    room = ModelRoom(link, key_prefix, Clock())
    chance = random.Random(7)
    try:
        await room.store.apply([total(points=1), energy("meter", {"model": "total", "field": "total"})])
        start = now_ms() - (SAMPLES + 10) * STEP_MS
        values = [float(chance.randrange(0, 3600)) for _ in range(SAMPLES)]

        async def write() -> None:
            for at, value in enumerate(values):
                await room.write(start + at * STEP_MS, {"1": value})
                await asyncio.sleep(0.02)

        with engine_process(redis_7.url, key_prefix):
            await until(lambda: _knows_the_meter(room))
        writing = asyncio.create_task(write())
        for _ in range(3):
            with engine_process(redis_7.url, key_prefix):
                before = await _cursor(room)
                await until(lambda before=before: _moved(room, before))  # type: ignore[misc]
                await asyncio.sleep(chance.random() * 0.2)
            await _fits_together(room)
        await writing
        expected = f"{sum(values[:-1]) * STEP_MS / 3_600_000:.6f}"
        with engine_process(redis_7.url, key_prefix):
            await room.becomes("meter", {"energy": expected})
        await _fits_together(room)
        assert (await room.values("total"))["total"] == f"{values[-1]:.6f}"
    finally:
        await link.close()


async def _cursor(room: ModelRoom) -> bytes | None:
    found: bytes | None = await room.plane.redis.hget(room.keys.feed_cursors(), "modsrv")
    return found


async def _knows_the_meter(room: ModelRoom) -> bool:
    return "meter" in await room.states()


async def _moved(room: ModelRoom, before: bytes | None) -> bool:
    return await _cursor(room) != before


async def _fits_together(room: ModelRoom) -> None:
    """What the counter remembers is what the board shows: they were written in one step."""
    kept = msgspec.msgpack.decode((await room.states())["meter"])
    total_kwh, first, since, _, until_ms = kept["counter"][1]
    stretch = 0.0 if first is None else first * (until_ms - since) / 3_600_000
    assert (await room.values("meter"))["energy"] == f"{total_kwh + stretch:.6f}"
