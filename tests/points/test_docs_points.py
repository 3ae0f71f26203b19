"""The examples of docs/points.md run as they stand there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from tests import servers
from tests.points.board_room import board_room
from tradewind.clock import Clock
from tradewind.points.board import Batch
from tradewind.points.feed import FeedReader
from tradewind.redis.connection import Link

PAGE = Path(__file__).resolve().parents[2] / "docs" / "points.md"


def names() -> dict[str, Any]:
    space: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        exec(compile(block, str(PAGE), "exec"), space)
    return space


async def test_the_board_of_the_page() -> None:
    with servers.redis_server() as server:
        assert await names()["main"](server.url) == [25.123456, 1200.5]


async def test_the_feed_of_the_page(link: Link, key_prefix: str, capsys: Any) -> None:
    async with board_room(link, key_prefix, Clock()) as room:
        reader = FeedReader(room.plane, "page")
        await reader.open()
        cursors = room.keys.feed_cursors()
        first = await room.plane.redis.hgetall(cursors)
        task = asyncio.create_task(names()["follow"](reader))
        await room.board.write([Batch.of_channel("1001", "m", {"10001": 25.123456})])
        async with asyncio.timeout(10):
            while first == await room.plane.redis.hgetall(cursors):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await reader.close()
    assert "comsrv:1001:m" in capsys.readouterr().out
