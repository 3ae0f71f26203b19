"""The recorder's part of a station on any Redis, with a key prefix and a folder of its own: board, store, recorders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tradewind.history.recorder import HistoryRecorder
from tradewind.history.sink import Sink
from tradewind.history.store import HistoryStore
from tradewind.points.board import Batch, Board
from tradewind.points.plane import PointPlane
from tradewind.redis.connection import Link
from tradewind.settings import Settings

#: Short leases, so that a takeover is seen soon.
LEASES = {"leader_ttl_s": 1.5, "renew_s": 0.4}
#: Batches that do not keep a test waiting.
QUICK = {"batch_config": {"size": 1000, "timeout_ms": 50}}


def settings_of(prefix: str, **history: Any) -> Settings:
    return Settings.model_validate({"key_prefix": prefix, "scheduler": LEASES, "history": history})


class HistoryRoom:
    def __init__(self, link: Link, prefix: str, folder: Path, **history: Any) -> None:
        self.link = link
        self.plane = PointPlane(link, settings_of(prefix, **history))
        self.keys = self.plane.keys
        self.board = Board(self.plane)
        self.store = HistoryStore(link, self.keys)
        self.folder = folder

    @asynccontextmanager
    async def recorder(self, sink: Sink, folder: str = "spool", name: str = "") -> AsyncIterator[HistoryRecorder]:
        recorder = HistoryRecorder(self.plane, sink, self.folder / folder, recorder_id=name)
        stop = asyncio.Event()
        task = asyncio.create_task(recorder.run(stop), name="recorder")
        try:
            yield recorder
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)

    async def write(self, ts_ms: int, values: dict[str, float], key: str = "comsrv:1001:m", **quality: str) -> None:
        words = {name.lstrip("_"): word for name, word in quality.items()}
        await self.board.write([Batch(key, values, ts_ms, words)])

    async def status(self, name: str) -> int:
        text = (await self.store.status()).get(name, "0")
        return int(text) if text.isdigit() else 0

    async def faults(self) -> list[tuple[str, str, str]]:
        """Source, code and state of each, in order."""
        found = await self.plane.redis.xrange(self.keys.faults())
        return [(f[b"source"].decode(), f[b"code"].decode(), f[b"state"].decode()) for _, f in found]

    async def cursor(self) -> bytes | None:
        found: bytes | None = await self.plane.redis.hget(self.keys.feed_cursors(), "history")
        return found


async def until(condition: Callable[[], Awaitable[bool] | bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            found = condition()
            if (found if isinstance(found, bool) else await found) is True:
                return
            await asyncio.sleep(0.02)
